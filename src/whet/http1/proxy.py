"""Open a tunnel through a proxy, by CONNECT or SOCKS 5 (RFC 1928, 1929).

If the proxy sends bytes after its answer, the tunnel is refused: they would be read as the server's first
bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import cast
from urllib.parse import unquote, urlsplit

import msgspec

from whet.contract.errors import ConfigError
from whet.http1.connection import PORTS, Address, basic_auth
from whet.http1.failure import HttpFailed

_MAX_ANSWER_BYTES = 64 * 1024
_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "too many hops",
    7: "command not supported",
    8: "address type not supported",
}


class OutboundProxy(msgspec.Struct, frozen=True):
    """A proxy from the environment. `basic` is its Proxy-Authorization header. `user` and `password` are for
    SOCKS. They are empty if the proxy needs no sign-in."""

    scheme: str
    host: str
    port: int
    basic: str = ""
    user: str = ""
    password: str = ""

    @property
    def is_socks(self) -> bool:
        """Whether it is a SOCKS proxy."""
        return self.scheme.startswith("socks")

    def carries(self, address: Address) -> bool:
        """Return whether the proxy forwards the request itself instead of tunnelling to the server."""
        return not self.is_socks and not address.is_secure


def parse_proxy(url: str) -> OutboundProxy:
    """Parse a proxy's URL. Raises ConfigError if it can't be used."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
            raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is not an http, https or socks5 proxy")
        return OutboundProxy(
            parts.scheme,
            parts.hostname,
            parts.port or PORTS.get(parts.scheme, 1080),
            basic_auth(parts),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )
    except ValueError as error:
        raise ConfigError(f"the proxy settings can't be used: {error}", hint="check HTTPS_PROXY") from error


class Handshake(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Store received bytes."""
        self._received += data
        self._wake()

    def eof_received(self) -> None:
        """Handle the end of the stream."""
        self._is_over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the loss of the connection."""
        self._is_over, self.transport = True, None
        self._wake()

    async def open_tunnel(self, proxy: OutboundProxy, address: Address) -> asyncio.Transport:
        """Have the proxy open a tunnel to the server and return the transport. Raises HttpFailed."""
        if proxy.is_socks:
            await self._socks(proxy, address)
        else:
            await self._connect(proxy, address)
        if self.transport is None or self._is_over:
            raise HttpFailed("proxy", "the proxy hung up")
        if self._received:
            raise HttpFailed("proxy", "something came before the server could speak")
        return self.transport

    async def _connect(self, proxy: OutboundProxy, address: Address) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        authority = f"{host}:{address.port}"
        user = f"proxy-authorization: {proxy.basic}\r\n" if proxy.basic else ""
        self._send(
            f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: whet\r\n{user}\r\n".encode()
        )
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > _MAX_ANSWER_BYTES:
                raise HttpFailed("proxy", "its answer has no end")
            await self._wait_for_data()
        words = bytes(self._received[:end]).split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise HttpFailed("proxy", "its answer is not HTTP")
        if not words[1].startswith("2"):
            reason = words[2][:80] if len(words) == 3 and words[2].isprintable() else ""
            raise HttpFailed("proxy", f"{words[1]} {reason}".strip())
        del self._received[: end + 4]

    async def _socks(self, proxy: OutboundProxy, address: Address) -> None:
        self._send(b"\x05\x02\x00\x02" if proxy.user else b"\x05\x01\x00")
        version, method = await self._take(2)
        if version != 5 or method not in ((0, 2) if proxy.user else (0,)):
            raise HttpFailed("proxy", "it wants another way to sign in")
        if method == 2:
            user, password = proxy.user.encode()[:255], proxy.password.encode()[:255]
            self._send(b"\x01%c%b%c%b" % (len(user), user, len(password), password))
            if (await self._take(2))[1] != 0:
                raise HttpFailed("proxy", "it does not take the name and password")
        self._send(b"\x05\x01\x00" + _socks_host(address.host) + address.port.to_bytes(2))
        version, refusal, _, kind = await self._take(4)
        if version != 5 or refusal:
            raise HttpFailed("proxy", _REFUSALS.get(refusal, "it refused"))
        size = (await self._take(1))[0] if kind == 3 else {1: 4, 4: 16}.get(kind, 0)
        await self._take(size + 2)

    def _send(self, data: bytes) -> None:
        if self.transport is None:
            raise HttpFailed("proxy", "the proxy hung up")
        self.transport.write(data)

    async def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            await self._wait_for_data()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def _wait_for_data(self) -> None:
        if self._is_over:
            raise HttpFailed("proxy", "the proxy hung up")
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _socks_host(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode()[:255]
        return b"\x03%c%b" % (len(name), name)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed
