"""The way to one model server: a connection pool that lives as long as the provider, and typed failures.

Spoken through httpcore2, the transport under httpx2: redirects, cookies and charsets are not wanted here.
Proxies and certificates come from the environment. The read time-out is the longest silence on the wire,
not the length of an answer. Knows no wire format: bytes go in, bytes come out.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httpcore2

from whet import log
from whet.config.secrets import proxy_for
from whet.contract.errors import ConfigError, ProviderError, Unavailable
from whet.contract.protocols import ModelInfo
from whet.providers.network import WireBackend

CONNECT_TIMEOUT_S = 10.0
_ERROR_BODY_BYTES = 200_000
_PORTS = {"http": 80, "https": 443}
_SENT = ((b"accept", b"*/*"), (b"accept-encoding", b"identity"), (b"user-agent", b"whet"))
_BROKEN = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


class HttpAnswer:
    """An answer whose body is still on the wire; `headers` by their names in lower case."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }
        self.content_type: str = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.request_id: str = self.headers.get("x-request-id") or self.headers.get("request-id") or ""

    def chunks(self) -> AsyncIterator[bytes]:
        """Give the body as it comes."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        stream = self._response.aiter_stream()
        return _inflated(stream) if encoding in ("gzip", "x-gzip", "deflate") else stream

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
        self.base_url: str = base_url.rstrip("/")
        parts = parts_of(self.base_url)
        if parts is None:
            raise ConfigError(
                f"model.base_url {_nameless(base_url)!r} is no http(s) URL",
                hint="for example http://localhost:11434/v1",
            )
        if parts.password:
            log.protect((parts.password, unquote(parts.password)))
        self.where: str = parts.netloc.rpartition("@")[2]
        self._parts = parts
        self._timeout_s = timeout_s
        self._pool: httpcore2.AsyncConnectionPool | None = None

    @contextlib.asynccontextmanager
    async def post(
        self, info: ModelInfo, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[HttpAnswer, None]:
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
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None

    @contextlib.asynccontextmanager
    async def _exchange(
        self, info: ModelInfo, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[HttpAnswer, None]:
        if self._pool is None:
            self._pool = self._open()
        try:
            target, sent = _address(url, headers)
            async with self._pool.stream(
                method, target, headers=sent, content=body, extensions=self._limits()
            ) as response:
                answer = HttpAnswer(response)
                if not 200 <= answer.status < 300:
                    from whet.providers import failures  # noqa: PLC0415 read only where something failed

                    said = await answer.read(_ERROR_BODY_BYTES)
                    raise failures.from_response(info, answer.status, answer.headers, said, self.where)
                yield answer
        except (*_BROKEN, zlib.error, OSError, UnicodeError) as error:
            raise self._failure(info, error) from error

    def _limits(self) -> dict[str, dict[str, float]]:
        silence_s = self._timeout_s
        return {
            "timeout": {
                "connect": CONNECT_TIMEOUT_S,
                "read": silence_s,
                "write": silence_s,
                "pool": silence_s,
            }
        }

    def _open(self) -> httpcore2.AsyncConnectionPool:
        proxy = _proxy(self._parts)
        # Reading the machine's certificates costs CPU that a plain http server never needs; a context
        # without any certificate refuses every TLS peer, so that this fails closed.
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._parts.scheme == "https":
            try:
                trust = httpcore2.default_ssl_context()
            except OSError as error:
                raise ConfigError(
                    f"the certificates can't be read: {error}", hint="check SSL_CERT_FILE and SSL_CERT_DIR"
                ) from error
        return httpcore2.AsyncConnectionPool(
            ssl_context=trust,
            proxy=proxy,
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=60,
            network_backend=WireBackend(),
        )

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
        if isinstance(error, httpcore2.ProxyError):
            return (
                f"the proxy refused the way to {self.where}: {error}",
                "check HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
            )
        if isinstance(error, httpcore2.ConnectTimeout):
            return f"{self.where} did not answer within {CONNECT_TIMEOUT_S:.0f} s", "check the network"
        if isinstance(error, httpcore2.TimeoutException):
            return f"{self.where} was silent for {self._timeout_s:g} s", "model.timeout_s sets the limit"
        if isinstance(error, httpcore2.ConnectError):
            return f"can't connect to {self.where}", "is the server running? check model.base_url"
        return f"the connection to {self.where} broke ({_first_line(error)})", "trying again usually helps"


def _address(url: str, given: Mapping[str, str]) -> tuple[httpcore2.URL, list[tuple[bytes, bytes]]]:
    """Give a URL as the transport wants it, and all headers; a name and password in the URL are sent."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = name.encode("ascii" if name.isascii() else "idna")
    port = None if parts.port == _PORTS.get(parts.scheme) else parts.port
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/"
    target = f"{path}?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else path
    shown = b"[" + host + b"]" if b":" in host else host
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        given = {**given, "authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    headers = [(b"host", shown if port is None else b"%b:%d" % (shown, port)), *_SENT]
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in given.items()]
    scheme = parts.scheme.encode("ascii")
    return httpcore2.URL(scheme=scheme, host=host, port=port, target=target.encode("ascii")), headers


def _proxy(server: SplitResult) -> httpcore2.Proxy | None:
    """Give the environment's proxy for this server. Raises ConfigError for one that can't be used."""
    named = proxy_for(server.scheme, server.hostname or "")
    if not named:
        return None
    try:
        parts = urlsplit(named)
        _port = parts.port
        if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
            raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is no http, https or socks5 proxy")
        if parts.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise ValueError("a SOCKS proxy needs the package socksio")
        user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        return httpcore2.Proxy(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", auth=user)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the proxy settings can't be used: {error}", hint="check HTTPS_PROXY") from error


async def _inflated(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Undo a compression that was not asked for; deflate with and without its header."""
    inflater, head = None, b""
    async for chunk in stream:
        if inflater is None:
            head += chunk
            if len(head) < 2:  # the two bytes that tell, in pieces
                continue
            inflater, chunk = zlib.decompressobj(_window_bits(head)), head
        if text := inflater.decompress(chunk):
            yield text


def _window_bits(head: bytes) -> int:
    """Say how zlib is to read a body that begins so: with a header of gzip or zlib, or without any."""
    has_header = head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and int.from_bytes(head[:2]) % 31 == 0)
    return 47 if has_header else -15


def parts_of(url: str) -> SplitResult | None:
    """Split a URL; None where it is no http(s) URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, a port that is none
        return None
    return parts if usable else None


def _nameless(url: str) -> str:
    """Give a URL, usable or not, without the name and password in it."""
    head, mark, rest = url.partition("://")
    return head + mark + rest.rpartition("@")[2]


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
