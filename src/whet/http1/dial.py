"""Opens connections: directly or through a proxy, in the clear or with TLS.

Each stage (connecting with TLS, the proxy's part, TLS behind it) has the whole time limit.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from whet.http1.address import Address
from whet.http1.connection import HttpConnection
from whet.http1.failure import HttpFailed, Stage
from whet.http1.sockets import connected

if TYPE_CHECKING:
    from whet.http1.proxy import Proxy

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


async def dial(
    connection: HttpConnection,
    address: Address,
    proxy: Proxy | None,
    trust: ssl.SSLContext | None,
    limit_s: float,
) -> None:
    """Connect, as far as `connection` can send its request. Raises HttpFailed, with its cause."""
    if proxy is None or proxy.carries(address):
        if proxy is None:
            place, name = (address.host, address.port), address.server_name if address.is_secure else ""
        else:
            place, name = (proxy.host, proxy.port), proxy.host if proxy.scheme == "https" else ""
        await _in_time(_open(lambda: connection, place, name, trust), limit_s)
        return
    from whet.http1.proxy import Handshake  # noqa: PLC0415 most have no proxy

    name = proxy.host if proxy.scheme == "https" else ""
    transport, way = await _in_time(_open(Handshake, (proxy.host, proxy.port), name, trust), limit_s)
    loop = asyncio.get_running_loop()
    try:
        opened = await _in_time(way.open(proxy, address), limit_s, "proxy")
        if address.is_secure:
            opened = await _in_time(
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


async def _open(
    make: Callable[[], P], place: tuple[str, int], server_name: str, trust: ssl.SSLContext | None
) -> tuple[asyncio.Transport, P]:
    """Connect, with TLS where there is a name that the certificate must have."""
    context = _context(trust) if server_name else None
    return await asyncio.get_running_loop().create_connection(
        make, sock=await connected(*place), ssl=context, server_hostname=server_name or None
    )


def _context(trust: ssl.SSLContext | None) -> ssl.SSLContext:
    # A context without any certificate refuses every server.
    return trust or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _in_time(work: Awaitable[T], limit_s: float, stage: Stage = "connect") -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError as error:
        raise HttpFailed("connect", f"no answer within {limit_s:g} s", is_timeout=True) from error
    except OSError as error:  # an SSLError is one
        text = str(error).partition("\n")[0][:160] or type(error).__name__
        raise HttpFailed(stage, text) from error
