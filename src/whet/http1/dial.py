"""Opens connections: directly or through a proxy, with or without TLS.

Each stage (connecting with TLS, the proxy's handshake, TLS through the proxy) has the whole time limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from whet.http1.address import Address
from whet.http1.connection import HttpConnection
from whet.http1.failure import HttpFailed, Stage

if TYPE_CHECKING:
    from whet.http1.proxy import OutboundProxy

_NEXT_ADDRESS_S = 0.25
_AddressInfo = tuple[int, int, int, str, Any]
T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


async def dial(
    connection: HttpConnection,
    address: Address,
    proxy: OutboundProxy | None,
    trust: ssl.SSLContext | None,
    limit_s: float,
) -> None:
    """Connect until `connection` can send its request. Raises HttpFailed, with its cause."""
    if proxy is None or proxy.carries(address):
        if proxy is None:
            target, name = (address.host, address.port), address.server_name if address.is_secure else ""
        else:
            target, name = (proxy.host, proxy.port), proxy.host if proxy.scheme == "https" else ""
        stage: Stage = "connect" if proxy is None else "proxy"
        await _run_with_limit(_open_transport(lambda: connection, target, name, trust), limit_s, stage)
        return
    from whet.http1.proxy import Handshake  # noqa: PLC0415 most have no proxy

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
    """Return a connected socket: try the addresses one after the other, a moment apart, and use the first
    that answers (RFC 8305). Raises OSError."""
    # asyncio does the same, but if it is cancelled just when an address has answered, Python 3.11 loses that
    # socket without closing it.
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
    """Wait for the first successful attempt and return its socket. Failed attempts are dropped."""
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
    """Return the addresses of a name, alternating between the two families. A numeric address needs no
    thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[:1]
    except OSError:
        pass
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = [row for row in rows if row[0] == rows[0][0]]
    second = [row for row in rows if row[0] != rows[0][0]]
    return [row for row in chain.from_iterable(zip_longest(first, second)) if row is not None]
