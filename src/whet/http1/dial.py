"""Opens connections: directly or through a proxy, in the clear or with TLS.

The name is looked up and the addresses tried side by side by asyncio. Each stage has the whole time limit.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from whet.http1.address import Address
from whet.http1.connection import Connection
from whet.http1.failure import HttpFailed, Stage

if TYPE_CHECKING:
    from whet.http1.proxy import Proxy

_NEXT_ADDRESS_S = 0.25
T = TypeVar("T")


async def dial(
    connection: Connection,
    address: Address,
    proxy: Proxy | None,
    trust: ssl.SSLContext | None,
    limit_s: float,
) -> None:
    """Connect, as far as `connection` can send its request. Raises HttpFailed, with its cause."""
    loop = asyncio.get_running_loop()
    if proxy is None or proxy.carries(address):
        host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        is_secure = address.is_secure if proxy is None else proxy.scheme == "https"
        name = address.server_name if proxy is None else proxy.host
        await _in_time(
            loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=_context(is_secure, trust),
                server_hostname=name if is_secure else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_S,
            ),
            limit_s,
        )
        return
    from whet.http1.proxy import Handshake  # noqa: PLC0415 most have no proxy

    is_secure = proxy.scheme == "https"
    transport, way = await _in_time(
        loop.create_connection(
            Handshake,
            proxy.host,
            proxy.port,
            ssl=_context(is_secure, trust),
            server_hostname=proxy.host if is_secure else None,
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
        ),
        limit_s,
    )
    try:
        opened = await _in_time(way.open(proxy, address), limit_s, "proxy")
        if address.is_secure:
            context = _context(True, trust)
            assert context is not None
            opened = await _in_time(
                loop.start_tls(opened, connection, context, server_hostname=address.server_name), limit_s
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


def _context(is_secure: bool, trust: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if not is_secure:
        return None
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
