"""JSON calls to a vendor's API: one client per channel, short limits, failures as SendFailed.

Tokens are part of URLs and headers; no error text here quotes either.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from socket import SOCK_STREAM
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from whet.config.key_hosts import is_loopback, is_same_server
from whet.config.secrets import find_proxy
from whet.contract.channels import SendFailed
from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON, from_foreign_json, split_http_url
from whet.http1.client import Answer, HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.http1.response import retry_after_s as waiting_time_s
from whet.internet import is_public
from whet.log import mask

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
CALL_TIMEOUT_S = 15.0
_MAX_BYTES = 1_000_000
# Servers on Node and uvicorn close a connection after 5 idle seconds. A message sent at that moment may or
# may not arrive.
MAX_IDLE_S = 3.0
_SENT = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "whet"}


class VendorAnswer(msgspec.Struct, frozen=True):
    """The vendor's answer: its status, its body, and Retry-After."""

    status: int
    body: bytes
    retry_after_s: float | None

    def read(self, shape: type[T]) -> T | None:
        """Decode the body as this type, or return None if it does not match."""
        return read(self.body, shape)


class VendorHttp:
    """The HTTP client for one vendor."""

    def __init__(
        self,
        vendor: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        """`max_bytes`: the limit of a body; a longer one is cut."""
        self._vendor = vendor
        self._max_bytes = max_bytes
        self._base_url = base_url.rstrip("/")
        self._headers = _SENT | {name.lower(): value for name, value in (headers or {}).items()}
        self._http = HttpClient(Limits(idle_s=MAX_IDLE_S, max_idle=20, max_connections=100))
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self, method: str, path: str, body: object | None = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> VendorAnswer:
        """Make one call and return the answer, whatever its status. Raises SendFailed if there was none."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json; charset=utf-8"} if content else {}
        return await self.raw(method, path, content, headers, timeout_s)

    async def raw(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> VendorAnswer:
        """Make one call with this body. Raises SendFailed if there was no answer."""
        request = Request(
            method,
            self._base_url + path,
            self._merge_headers(headers),
            content,
            silence_s=timeout_s,
            connect_s=min(timeout_s, 10.0),
        )
        async with self._exchange(request) as answer:
            after_s = waiting_time_s(answer.headers.get("retry-after", ""), time.time())
            return VendorAnswer(answer.status, await answer.read(self._max_bytes), after_s)

    async def download(self, url: str, max_bytes: int, headers: Mapping[str, str] | None = None) -> bytes:
        """Download a file. An empty header removes the client's own. A file that is not on the vendor's
        server must be on the public internet.

        Raises SendFailed, also if the file is larger than `max_bytes`. The error does not contain the URL,
        because that may contain a token.
        """
        request = Request("GET", url, self._merge_headers(headers or {}), silence_s=60.0)
        if not is_same_server(url, self._base_url):
            request = await self._pin_public(request)
        async with self._exchange(request) as answer:
            if answer.status != 200:
                raise SendFailed(f"{urlsplit(url).hostname} answered {answer.status}", is_final=True)
            data = await answer.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise SendFailed(f"it is larger than {max_bytes // 1_000_000} MB", is_final=True)
        return data

    async def _pin_public(self, request: Request) -> Request:
        """Return the request without the token, and with the IP address that was checked. People choose such
        URLs, so they could lead into this machine's network. Raises SendFailed if they do."""
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        if is_loopback(self._base_url):
            return msgspec.structs.replace(request, headers=headers)  # a vendor on this machine is trusted
        parts = split_http_url(request.url)
        host = (parts.hostname or "") if parts is not None else ""
        if parts is None or parts.scheme != "https" or parts.username is not None or not host:
            raise SendFailed(f"{self._vendor}: the file has no https address", is_final=True)
        try:
            rows = await asyncio.get_running_loop().getaddrinfo(host, parts.port or 443, type=SOCK_STREAM)
        except (OSError, UnicodeError, ValueError):
            rows = []
        addresses = [str(row[4][0]) for row in rows]
        if not addresses or not all(map(is_public, addresses)):
            raise SendFailed(f"{self._vendor}: the file is not on the public internet", is_final=True)
        if find_proxy("https", host):
            return msgspec.structs.replace(request, headers=headers)  # the proxy connects
        literal = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        url = parts._replace(netloc=f"{literal}:{parts.port or 443}").geturl()
        return msgspec.structs.replace(request, url=url, headers=headers, host=parts.netloc, server_name=host)

    def _merge_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        merged = {**self._headers, **{name.lower(): value for name, value in headers.items()}}
        return {name: value for name, value in merged.items() if value}

    @contextlib.asynccontextmanager
    async def _exchange(self, request: Request) -> AsyncGenerator[Answer, None]:
        try:
            async with self._http.exchange(request) as answer:
                yield answer
        except HttpFailed as error:
            host = urlsplit(request.url).hostname
            text = (
                f"{host} did not answer in time"
                if error.is_timeout
                else f"can't reach {host} ({_cause_text(error)})"
            )
            raise SendFailed(f"{self._vendor}: {text}", maybe_sent=not error.is_unsent) from error
        except ConfigError as error:
            raise SendFailed(f"{self._vendor}: {error.message}") from error

    @property
    def client(self) -> httpx2.AsyncClient:
        """The client that opens this vendor's websockets."""
        if self._client is None:
            from httpx2 import AsyncClient  # noqa: PLC0415 30 ms of CPU; many vendors are only called

            self._client = AsyncClient(
                headers=self._headers,
                follow_redirects=False,
                event_hooks={"request": [self._strip_authorization]},
            )
        return self._client

    async def _strip_authorization(self, request: httpx2.Request) -> None:
        """Remove the token from a request to another host, because URLs of sockets come from answers."""
        if not is_same_server(str(request.url), self._base_url):
            request.headers.pop("authorization", None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def refused(vendor: str, answer: VendorAnswer, reason: str, retry_after_s: float | None = None) -> SendFailed:
    """Return the error for a refusal by the vendor.

    It is final except for 429, 408 and server errors. After a server error other than 503, the message may
    have been sent.
    """
    status = answer.status
    is_final = 400 <= status < 500 and status not in (408, 429)
    after_s = retry_after_s if retry_after_s is not None else answer.retry_after_s
    text = mask(str(reason))[:200] or "no reason given"
    return SendFailed(
        f"{vendor} answered {status}: {text}",
        is_final=is_final,
        retry_after_s=after_s,
        maybe_sent=status < 300 or (status >= 500 and status != 503),
        is_barred=status == 401,
        status=status,
    )


def read(body: bytes | str, shape: type[T]) -> T | None:
    """Decode JSON as a type, ignoring unknown fields, or return None if it does not match.

    Half of a surrogate pair becomes U+FFFD.
    """
    try:
        return from_foreign_json(body, shape)
    except NOT_JSON:
        return None


def _cause_text(error: HttpFailed) -> str:
    cause = error.__cause__
    return type(cause).__name__ if error.stage == "connect" and cause is not None else f"{error.stage} failed"
