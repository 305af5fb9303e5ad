"""The way to one model server: a connection pool that lives as long as the provider, and typed failures.

Proxies and certificates come from the environment, as httpx2 reads it. The read time-out is the longest
silence on the wire, not the length of an answer. Knows no wire format: bytes go in, bytes come out.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import SplitResult, urlsplit

import httpx2

from whet.contract.errors import ConfigError, ProviderError, Unavailable
from whet.contract.protocols import ModelInfo
from whet.providers import failures

CONNECT_TIMEOUT_S = 10.0
_ERROR_BODY_BYTES = 200_000


class Answer:
    """A 2xx answer whose body is still on the wire."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        headers = response.headers
        self.request_id = headers.get("x-request-id") or headers.get("request-id") or ""

    def chunks(self) -> AsyncIterator[bytes]:
        """Give the body as it comes."""
        if "content-encoding" in self._response.headers:
            return self._response.aiter_bytes()
        return self._response.aiter_raw()

    async def read(self, limit_bytes: int) -> bytes:
        """Give the body's first `limit_bytes`."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) >= limit_bytes:
                break
        return bytes(body[:limit_bytes])


class Http:
    """A client for one base URL. Raises ConfigError for a URL that is none."""

    def __init__(self, base_url: str, *, timeout_s: float) -> None:
        self.base_url = base_url.rstrip("/")
        parts = parts_of(self.base_url)
        if parts is None:
            raise ConfigError(
                f"model.base_url {base_url!r} is no http(s) URL", hint="for example http://localhost:11434/v1"
            )
        self.where = parts.netloc.rpartition("@")[2]
        self._secure = parts.scheme == "https"
        self._timeout = httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        self._client: httpx2.AsyncClient | None = None

    @contextlib.asynccontextmanager
    async def post(
        self, info: ModelInfo, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[Answer, None]:
        """Send a JSON body; give the 2xx answer. Raises ProviderError, also while its body is read."""
        async with self._exchange(info, "POST", self.base_url + path, headers, body) as answer:
            yield answer

    async def get(
        self, info: ModelInfo, url: str, headers: Mapping[str, str], *, body: bytes | None = None
    ) -> bytes:
        """Fetch a small JSON answer, at most 20 MB, by POST where there is a body. Raises ProviderError."""
        method = "GET" if body is None else "POST"
        async with self._exchange(info, method, url, headers, body) as answer:
            return await answer.read(20_000_000)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @contextlib.asynccontextmanager
    async def _exchange(
        self, info: ModelInfo, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[Answer, None]:
        if self._client is None:
            self._client = self._open()
        try:
            request = self._client.build_request(method, url, headers=headers, content=body)
            response = await self._client.send(request, stream=True)
            try:
                answer = Answer(response)
                if not 200 <= response.status_code < 300:
                    said = await answer.read(_ERROR_BODY_BYTES)
                    raise failures.from_response(
                        info, response.status_code, response.headers, said, self.where
                    )
                yield answer
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
            raise self._failure(info, error) from error

    def _open(self) -> httpx2.AsyncClient:
        # Reading the machine's certificates costs CPU that a plain http server never needs; a context
        # without any certificate refuses every TLS peer, so that this fails closed.
        verify: bool | ssl.SSLContext = True if self._secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            return httpx2.AsyncClient(
                verify=verify,
                timeout=self._timeout,
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=100, keepalive_expiry=60
                ),
                headers={"accept-encoding": "identity", "user-agent": "whet"},
            )
        except (ValueError, ImportError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"the proxy settings can't be used: {error}", hint="check HTTPS_PROXY"
            ) from error

    def _failure(self, info: ModelInfo, error: Exception) -> ProviderError:
        message, hint = self._explain(error)
        return Unavailable(f"{info.provider}: {message}", hint=hint, provider=info.provider, model=info.model)

    def _explain(self, error: Exception) -> tuple[str, str]:
        causes = _causes(error)
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"the name {self.where} can't be resolved", "check model.base_url and the network (DNS)"
        certificate = next((c for c in causes if isinstance(c, ssl.SSLError)), None)
        if certificate is not None:
            reason = getattr(certificate, "verify_message", "") or certificate.reason or "handshake failed"
            return (
                f"no trusted TLS connection to {self.where}: {reason}",
                "SSL_CERT_FILE names extra certificates",
            )
        if isinstance(error, httpx2.ProxyError):
            return (
                f"the proxy refused the way to {self.where}: {error}",
                "check HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
            )
        if isinstance(error, httpx2.ConnectTimeout):
            return f"{self.where} did not answer within {CONNECT_TIMEOUT_S:.0f} s", "check the network"
        if isinstance(error, httpx2.TimeoutException):
            silence = self._timeout.read or 0
            return f"{self.where} was silent for {silence:g} s", "model.timeout_s sets the limit"
        if isinstance(error, httpx2.ConnectError):
            return f"can't connect to {self.where}", "is the server running? check model.base_url"
        return f"the connection to {self.where} broke ({_first_line(error)})", "trying again usually helps"


def parts_of(url: str) -> SplitResult | None:
    """Split a URL; None where it is no http(s) URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, a port that is none
        return None
    return parts if usable else None


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        if isinstance(error, BaseExceptionGroup):
            found.extend(error.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        error = error.__cause__ or error.__context__
    return found


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160] or type(error).__name__
