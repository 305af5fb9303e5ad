"""An HTTP/1.1 client that reuses connections and sends each request once.

It never retries, follows redirects or stores cookies. Nobody knows whether a request arrived if the server
closed its connection meanwhile, so an idle connection is not used after `Limits.idle_s` or if the server has
sent anything on it. Connections are opened directly or through a proxy, with or without TLS. Each stage
(connecting with TLS, the proxy's handshake, TLS through the proxy) has the whole time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from whet.config.secrets import find_proxy
from whet.http1.connection import READ_BYTES, Address, HttpConnection, encode_head, parse_address
from whet.http1.failure import HttpFailed, Stage
from whet.http1.response import ResponseReader

if TYPE_CHECKING:
    from whet.http1.proxy import OutboundProxy

_MAX_ADDRESSES = 256
_Key = tuple[str, str, int, str]
_NEXT_ADDRESS_S = 0.25
_AddressInfo = tuple[int, int, int, str, Any]
T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Limits(msgspec.Struct, frozen=True):
    """A client's limits.

    `connect_s` is for each stage of connecting, `silence_s` the longest time without a byte sent or
    received, `idle_s` how long an idle connection is reused. `max_connections` 0 means no limit.
    """

    connect_s: float = 10.0
    silence_s: float = 60.0
    idle_s: float = 60.0
    max_idle: int = 100
    max_connections: int = 0


class Request(msgspec.Struct, frozen=True):
    """A request to send.

    If the URL contains a resolved address, `host` is the Host header and `server_name` the name that the
    certificate must have. `silence_s` and `connect_s` 0 mean the client's limits.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    silence_s: float = 0.0
    connect_s: float = 0.0
    host: str = ""
    server_name: str = ""


class Answer:
    """An answer whose body is still arriving. `headers` have lower-case names."""

    def __init__(self, connection: HttpConnection, response: ResponseReader) -> None:
        self.status: int = response.status
        self.headers: dict[str, str] = response.headers
        self._connection = connection
        self._response = response

    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived and been read."""
        return self._response.is_whole and not self._response.waiting_bytes

    @property
    def is_delimited(self) -> bool:
        """Whether a length or a last chunk marks the end of the body, not only the end of the connection."""
        return not self._response.ends_with_connection

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, decompressed. Raises HttpFailed."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        if coding in ("", "identity"):
            while piece := await self._connection.next_piece():
                yield piece
            return
        from whet.http1.inflate import inflate_pieces  # noqa: PLC0415 requests don't ask for compression

        async for piece in inflate_pieces(coding, self._connection.next_piece):
            yield piece

    async def read(self, limit_bytes: int, *, within_s: float | None = None) -> bytes:
        """Read at most the first `limit_bytes` of the body, for at most `within_s`. Raises HttpFailed, but
        not when the time is over."""
        body = bytearray()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), contextlib.aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) >= limit_bytes:
                        break
        return bytes(body[:limit_bytes])


class HttpClient:
    """The HTTP client of one part of the program. Used on one event loop."""

    def __init__(
        self, limits: Limits, *, uses_proxy: bool = True, trust: ssl.SSLContext | None = None
    ) -> None:
        self._limits = limits
        self._uses_proxy = uses_proxy
        self._trust = trust
        self._addresses: dict[str, Address] = {}
        self._proxies: dict[tuple[str, str], OutboundProxy | None] = {}
        self._idle: dict[_Key, list[HttpConnection]] = {}
        self._busy: set[HttpConnection] = set()
        self._closings = 0
        self._buffer = memoryview(bytearray(READ_BYTES))
        limit = limits.max_connections
        self._room = asyncio.Semaphore(limit) if limit else None

    @contextlib.asynccontextmanager
    async def exchange(self, request: Request) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its answer. If the answer was not read to its end, the connection is
        closed.

        Raises HttpFailed, or ConfigError for an unusable proxy or certificates.
        """
        address = self._address(request.url)
        if request.host:
            address = msgspec.structs.replace(
                address, authority=request.host, server_name=request.server_name or address.server_name
            )
        silence_s = request.silence_s or self._limits.silence_s
        async with contextlib.nullcontext() if self._room is None else _reserve_slot(self._room, silence_s):
            proxy = self._proxy(address)
            head, closings = self._head(request, address, proxy), self._closings
            connection = self._take_idle(address) or await self._dial(address, proxy, request)
            self._busy.add(connection)
            try:
                yield Answer(connection, await connection.send(head, request.body, silence_s))
            finally:
                self._busy.discard(connection)
                if connection.finish() and closings == self._closings:
                    self._store_idle(address, connection)
                else:
                    connection.abort()
                    await asyncio.sleep(0)  # the loop reports its end in the next pass

    async def aclose(self) -> None:
        """Close every connection; the next request opens a new one."""
        self._closings += 1
        for connection in [*self._busy, *chain.from_iterable(self._idle.values())]:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    def _address(self, url: str) -> Address:
        address = self._addresses.get(url)
        if address is None:
            if len(self._addresses) >= _MAX_ADDRESSES:
                self._addresses.clear()
            address = self._addresses[url] = parse_address(url)
        return address

    def _proxy(self, address: Address) -> OutboundProxy | None:
        if not self._uses_proxy:
            return None
        key = (address.scheme, address.host)
        if key not in self._proxies:
            if len(self._proxies) >= _MAX_ADDRESSES:
                self._proxies.clear()
            proxy_url = find_proxy(*key)
            if proxy_url:
                from whet.http1.proxy import parse_proxy  # noqa: PLC0415 most machines use no proxy

                self._proxies[key] = parse_proxy(proxy_url)
            else:
                self._proxies[key] = None
        return self._proxies[key]

    def _head(self, request: Request, address: Address, proxy: OutboundProxy | None) -> bytes:
        headers = {"host": address.authority, **request.headers}
        if address.user:
            headers["authorization"] = address.user
        target = address.target
        if proxy is not None and proxy.carries(address):
            target = f"http://{address.authority}{target}"
            if proxy.basic:
                headers["proxy-authorization"] = proxy.basic
        return encode_head(request.method, target, headers, request.body)

    async def _dial(self, address: Address, proxy: OutboundProxy | None, request: Request) -> HttpConnection:
        if self._trust is None and (address.is_secure or (proxy is not None and proxy.scheme == "https")):
            from whet.trust import create_trusted_context  # noqa: PLC0415 a server in the clear needs none of it

            self._trust: ssl.SSLContext | None = create_trusted_context()
        connection = HttpConnection(asyncio.get_running_loop(), self._buffer)
        await _dial(connection, address, proxy, self._trust, request.connect_s or self._limits.connect_s)
        return connection

    def _take_idle(self, address: Address) -> HttpConnection | None:
        """Return the most recently used idle connection to an address, or None. Closes unusable ones."""
        connections = self._idle.get(_key(address))
        oldest_s = asyncio.get_running_loop().time() - self._limits.idle_s
        while connections:
            connection = connections.pop()
            if connection.idle_since_s >= oldest_s and connection.is_usable:
                return connection
            connection.abort()
        return None

    def _store_idle(self, address: Address, connection: HttpConnection) -> None:
        connections = self._idle.setdefault(_key(address), [])
        connections.append(connection)
        oldest_s = connection.idle_since_s - self._limits.idle_s
        while (
            connections[0].idle_since_s < oldest_s
            or sum(map(len, self._idle.values())) > self._limits.max_idle
        ):
            connections.pop(0).abort()


@contextlib.asynccontextmanager
async def _reserve_slot(slots: asyncio.Semaphore, limit_s: float) -> AsyncGenerator[None, None]:
    """Hold one of the client's connection slots, waiting up to `limit_s` for it. Raises HttpFailed."""
    try:
        async with asyncio.timeout(limit_s):
            await slots.acquire()
    except TimeoutError as error:
        raise HttpFailed("wait", "too many requests at once", is_timeout=True) from error
    try:
        yield
    finally:
        slots.release()


def _key(address: Address) -> _Key:
    return (address.scheme, address.host, address.port, address.server_name)


async def _dial(
    connection: HttpConnection,
    address: Address,
    proxy: OutboundProxy | None,
    trust: ssl.SSLContext | None,
    limit_s: float,
) -> None:
    """Connect `connection` to the server, directly or through the proxy. Raises HttpFailed, with its
    cause."""
    if proxy is None or proxy.carries(address):
        if proxy is None:
            target, name = (address.host, address.port), address.server_name if address.is_secure else ""
        else:
            target, name = (proxy.host, proxy.port), proxy.host if proxy.scheme == "https" else ""
        stage: Stage = "connect" if proxy is None else "proxy"
        await _run_with_limit(_open_transport(lambda: connection, target, name, trust), limit_s, stage)
        return
    from whet.http1.proxy import Handshake  # noqa: PLC0415 most machines use no proxy

    name = proxy.host if proxy.scheme == "https" else ""
    transport, handshake = await _run_with_limit(
        _open_transport(Handshake, (proxy.host, proxy.port), name, trust), limit_s, "proxy"
    )
    loop = asyncio.get_running_loop()
    try:
        opened = await _run_with_limit(handshake.open_tunnel(proxy, address), limit_s, "proxy")
        if address.is_secure:
            opened = await _run_with_limit(
                loop.start_tls(opened, connection, _context(trust), server_hostname=address.server_name),
                limit_s,
            )
        else:
            opened.set_protocol(connection)
    except BaseException:
        transport.abort()
        await asyncio.sleep(0)
        raise
    if opened is None:
        raise HttpFailed("connect", "the connection was closed during the handshake")
    connection.connection_made(opened)


async def _open_transport(
    make: Callable[[], P], target: tuple[str, int], server_name: str, trust: ssl.SSLContext | None
) -> tuple[asyncio.Transport, P]:
    """Connect, with TLS if a server name is given."""
    context = _context(trust) if server_name else None
    return await asyncio.get_running_loop().create_connection(
        make, sock=await _connect(*target), ssl=context, server_hostname=server_name or None
    )


def _context(trust: ssl.SSLContext | None) -> ssl.SSLContext:
    # A context without certificates refuses every server.
    return trust or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _run_with_limit(work: Awaitable[T], limit_s: float, stage: Stage = "connect") -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError as error:
        raise HttpFailed(stage, f"no answer within {limit_s:g} s", is_timeout=True) from error
    except OSError as error:  # includes SSLError
        text = str(error).partition("\n")[0][:160] or type(error).__name__
        raise HttpFailed(stage, text) from error


async def _connect(host: str, port: int) -> socket.socket:
    """Return a connected socket. Tries the host's addresses 0.25 s apart and uses the first that answers (RFC
    8305). Raises OSError."""
    # asyncio can do this, too. But if it is cancelled just when an address has answered, Python 3.11 loses
    # that socket without closing it.
    addresses = await _resolve(host, port)
    if len(addresses) == 1:
        return await _connect_address(addresses[0])
    errors: list[BaseException] = []
    tries: list[asyncio.Task[socket.socket]] = []
    winner: socket.socket | None = None
    try:
        for address in addresses:
            tries.append(asyncio.create_task(_connect_address(address)))
            winner = await _wait_for_first(tries, _NEXT_ADDRESS_S, errors)
            if winner is not None:
                return winner
        winner = await _wait_for_first(tries, None, errors)
    finally:
        for attempt in tries:
            attempt.cancel()
        for late in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(late, socket.socket) and late is not winner:
                late.close()
    if winner is None:
        raise errors[0] if errors else OSError(f"{host} has no address")
    return winner


async def _wait_for_first(
    tries: list[asyncio.Task[socket.socket]], limit_s: float | None, errors: list[BaseException]
) -> socket.socket | None:
    """Return the socket of the first successful attempt, or None if there is none within `limit_s`. Failed
    attempts are moved from `tries` to `errors`."""
    loop = asyncio.get_running_loop()
    until_s = None if limit_s is None else loop.time() + limit_s
    while tries:
        left_s = None if until_s is None else max(until_s - loop.time(), 0.0)
        done, _ = await asyncio.wait(tries, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return None
        for attempt in done:
            error = attempt.exception()
            if error is None:
                return attempt.result()
            errors.append(error)
            tries.remove(attempt)
    return None


async def _connect_address(address: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, socket_address = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, socket_address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _resolve(host: str, port: int) -> Sequence[_AddressInfo]:
    """Return the addresses of a name, alternating between IPv6 and IPv4. A numeric address needs no
    thread."""
    name = host.encode() if host.isascii() else host  # for a str, Python would load its IDNA tables
    try:
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[:1]
    except OSError:
        pass
    rows = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    first = [row for row in rows if row[0] == rows[0][0]]
    second = [row for row in rows if row[0] != rows[0][0]]
    return [row for row in chain.from_iterable(zip_longest(first, second)) if row is not None]
