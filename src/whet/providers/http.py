"""HTTP requests to one model server, and the pool of its keys.

Failures become ProviderErrors. Proxies and certificates come from the environment. `timeout_s` limits silence
on the wire, not the length of an answer.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from urllib.parse import unquote

import msgspec

from whet import log
from whet.config.secrets import find_proxy
from whet.contract.errors import (
    AuthRejected,
    ConfigError,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Unavailable,
)
from whet.contract.protocols import ModelInfo
from whet.contract.texts import split_http_url, strip_credentials
from whet.http1.client import Answer, HttpClient, Limits, Request
from whet.http1.failure import HttpFailed

CONNECT_TIMEOUT_S = 10.0
_ERROR_BODY_BYTES = 200_000
# With these a proxy gives up while the model goes on with its answer. Other error statuses cost nothing.
_GAVE_UP_WAITING = frozenset({408, 504, 524})
_SENT = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "whet"}
_REJECTED_REST_S = 3600.0
_QUOTA_REST_S = 1800.0
_LIMITED_REST_S = 30.0


class Key(msgspec.Struct, frozen=True):
    """A key and the variable that holds it."""

    name: str
    value: str


class KeyPool:
    """The keys of one server. A key that failed rests: it is not used for a while. Without keys (a local
    server) `current` is an empty key."""

    def __init__(self, keys: Sequence[Key], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.keys: tuple[Key, ...] = tuple(keys) or (Key("", ""),)
        self._monotonic_s = monotonic_s
        self._rests_until_s = [0.0] * len(self.keys)
        self._index = 0

    @property
    def current(self) -> Key:
        """The key to use now. It stays the same while it works, because caches are per account."""
        return self.keys[self._index]

    def prefer(self, name: str) -> None:
        """Use the key of this variable until it fails. An unknown name changes nothing."""
        for index, key in enumerate(self.keys):
            if key.name == name:
                self._index = index
                return

    def rotate(self, used: Key, error: ProviderError) -> str | None:
        """Let the key `used` rest after `error`, and switch to the next key that is not resting.

        Returns one line for the person, or None if nothing changed: the error is not about the key, or all
        keys are resting.
        """
        rest_s = _rest_s(error)
        if rest_s is None:
            return None
        now_s, used_index = self._monotonic_s(), self.keys.index(used)
        self._rests_until_s[used_index] = now_s + rest_s
        for step in range(len(self.keys)):
            index = (used_index + step) % len(self.keys)
            if self._rests_until_s[index] <= now_s:
                self._index = index
                return f"{used.name} {_describe_rest(error)}; {self.current.name} is used now"
        return None


class Http:
    """A client for one base URL. Raises ConfigError if the URL is invalid."""

    def __init__(self, base_url: str, *, timeout_s: float) -> None:
        self.base_url: str = base_url.rstrip("/")
        parts = split_http_url(self.base_url)
        if parts is None:
            raise ConfigError(
                f"model.base_url {strip_credentials(base_url)!r} is not an http(s) URL",
                hint="for example http://localhost:11434/v1",
            )
        if parts.password:
            log.protect((parts.password, unquote(parts.password)))
        self.where: str = parts.netloc.rpartition("@")[2]
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self.timeout_s: float = timeout_s
        self.has_answered: bool = False  # with any status
        self._client = HttpClient(Limits(connect_s=CONNECT_TIMEOUT_S, silence_s=timeout_s))

    @property
    def is_loopback(self) -> bool:
        """Whether the server runs on this machine."""
        return self._host in ("localhost", "::1") or self._host.startswith("127.")

    def post(
        self, info: ModelInfo, path: str, headers: Mapping[str, str], body: bytes
    ) -> contextlib.AbstractAsyncContextManager[Answer]:
        """Send a JSON body and return the 2xx answer. Raises ProviderError, also while its body is read."""
        return self._exchange(info, "POST", self.base_url + path, headers, body)

    async def get(
        self, info: ModelInfo, url: str, headers: Mapping[str, str], *, body: bytes | None = None
    ) -> bytes:
        """Return the body of an answer, at most 20 MB. Sends a POST if there is a `body`. Raises
        ProviderError."""
        method = "GET" if body is None else "POST"
        async with self._exchange(info, method, url, headers, body) as answer:
            return await answer.read(20_000_000, within_s=self.timeout_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @contextlib.asynccontextmanager
    async def _exchange(
        self, info: ModelInfo, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[Answer, None]:
        try:
            async with self._client.exchange(Request(method, url, {**_SENT, **headers}, body)) as answer:
                self.has_answered = True
                if not 200 <= answer.status < 300:
                    from whet.providers import failures  # noqa: PLC0415 read only where something failed

                    error_body = await answer.read(_ERROR_BODY_BYTES, within_s=self.timeout_s)
                    failure = failures.from_response(
                        info, answer.status, answer.headers, error_body, self._name_answerer()
                    )
                    failure.was_sent = answer.status in _GAVE_UP_WAITING
                    raise failure
                yield answer
        except HttpFailed as error:
            message, hint = self._explain(error)
            failure = Unavailable(
                f"{info.provider}: {message}", hint=hint, provider=info.provider, model=info.model
            )
            failure.was_sent = not error.is_unsent
            raise failure from error

    def _name_answerer(self) -> str:
        """Return the name of the server that answered. Over plain HTTP it may also have been the proxy."""
        if self._scheme == "https" or not find_proxy(self._scheme, self._host):
            return self.where
        return f"the proxy {_proxy_host(self._scheme, self._host)}, or {self.where} behind it,"

    def _explain(self, error: HttpFailed) -> tuple[str, str]:
        causes = _list_causes(error)
        if error.stage == "proxy":
            proxy = _proxy_host(self._scheme, self._host)
            return (
                f"the proxy {proxy} gave no way to {self.where}: {error}",
                "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY; NO_PROXY names hosts to reach without one",
            )
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"the name {self.where} can't be resolved", "check model.base_url and the network (DNS)"
        certificate = next((c for c in causes if isinstance(c, ssl.SSLError)), None)
        if certificate is not None:
            reason = getattr(certificate, "verify_message", "") or certificate.reason or "handshake failed"
            return (
                f"no trusted TLS connection to {self.where}: {reason}",
                "SSL_CERT_FILE or REQUESTS_CA_BUNDLE names the file of a company's own authority",
            )
        if error.stage == "connect" and error.is_timeout:
            return f"{self.where} did not answer within {CONNECT_TIMEOUT_S:.0f} s", "check the network"
        if error.is_timeout:
            return f"{self.where} was silent for {self.timeout_s:g} s", "model.timeout_s sets the limit"
        if error.stage == "connect":
            return f"can't connect to {self.where}", "is the server running? check model.base_url"
        return f"the connection to {self.where} broke ({error})", "trying again usually helps"


def _proxy_host(scheme: str, host: str) -> str:
    """Return the proxy's host without its credentials."""
    return find_proxy(scheme, host).rpartition("@")[2].rpartition("/")[2] or "of the environment"


def _list_causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _rest_s(error: ProviderError) -> float | None:
    if isinstance(error, AuthRejected):
        return _REJECTED_REST_S
    if isinstance(error, QuotaExhausted):
        return _QUOTA_REST_S
    if isinstance(error, RateLimited):
        return error.retry_after_s or _LIMITED_REST_S
    return None


def _describe_rest(error: ProviderError) -> str:
    if isinstance(error, AuthRejected):
        return "was rejected"
    return "has no credit left" if isinstance(error, QuotaExhausted) else "is rate-limited"


def explain_rejected_key(error: ProviderError, key: Key, where: str, account: str = "") -> ProviderError:
    """Set the hint of an AuthRejected and return the error: it names the variable of the key that was sent,
    or says how to send one. Other errors are returned unchanged."""
    if isinstance(error, AuthRejected) and key.value:
        by_account = f" of account {account!r}" if account else ""
        error.hint = f"check the key in {key.name}{by_account}; whet doctor shows which variables are set"
    elif isinstance(error, AuthRejected):
        error.hint = (
            f"no key was sent to {where}: set model.base_url and model.api_key_env, both in config.yaml,"
            " or name a variable of its own with --api-key-env NAME"
        )
    return error
