"""asyncio's own sockets under httpcore2, in place of anyio's: a third of the CPU that a request took there.

What is written small is kept until something is read, so that the head of a request and its body leave
together. TLS is asyncio's. It does not know HTTP.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Iterable
from typing import Any, cast

from httpcore2 import (
    SOCKET_OPTION,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    ConnectTimeout,
    ReadError,
    ReadTimeout,
    WriteError,
    WriteTimeout,
)

_KEPT_BYTES = 64 * 1024
_READ_AHEAD_BYTES = 256 * 1024


class _Wire(asyncio.Protocol):
    """One connection: what came and was not read yet, what is to be sent, and who waits."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.came: bytearray = bytearray()
        self.is_over: bool = False
        self.error: Exception | None = None
        self._is_held = False
        self._is_full = False
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; `start_tls` puts another in its place."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came, and stop the peer when it is far ahead of the reader."""
        self.came += data
        if len(self.came) > _READ_AHEAD_BYTES and self.transport is not None and not self._is_held:
            self._is_held = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Nothing more comes."""
        self.is_over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes or goes."""
        self.is_over, self.error, self.transport = True, exc, None
        self._wake()

    def pause_writing(self) -> None:
        """The peer is slow."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_full = False
        self._wake()

    def take(self, most_bytes: int) -> bytes:
        """Give what came, at most so much."""
        data = bytes(self.came[:most_bytes])
        del self.came[:most_bytes]
        if self._is_held and self.transport is not None and len(self.came) < _READ_AHEAD_BYTES:
            self._is_held = False
            self.transport.resume_reading()
        return data

    async def arrival(self, timeout_s: float | None) -> None:
        """Wait until something came or the connection is over. Raises TimeoutError."""
        while not self.came and not self.is_over:
            await self._news(timeout_s)

    async def room(self, timeout_s: float | None) -> None:
        """Wait until the peer takes more. Raises TimeoutError."""
        while self._is_full and self.transport is not None:
            await self._news(timeout_s)

    async def _news(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _time_out, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class WireStream(AsyncNetworkStream):
    """A connection as httpcore2 uses it: one reader, one writer, which is the same task."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._kept = bytearray()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Send what was kept and give what comes next; empty at the end. Raises ReadError, ReadTimeout."""
        self._send()
        wire = self._wire
        try:
            await wire.arrival(timeout)
        except TimeoutError as error:
            raise ReadTimeout(str(error)) from error
        if not wire.came and wire.error is not None:
            raise ReadError(str(wire.error)) from wire.error
        return wire.take(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Take bytes to send; much is sent at once. Raises WriteError, WriteTimeout."""
        if self._wire.transport is None or self._wire.transport.is_closing():
            raise WriteError("the connection is closed") from self._wire.error
        self._kept += buffer
        if len(self._kept) > _KEPT_BYTES:
            self._send()
            try:
                await self._wire.room(timeout)
            except TimeoutError as error:
                raise WriteTimeout(str(error)) from error

    async def aclose(self) -> None:
        """Close at once."""
        self._kept.clear()
        if self._wire.transport is not None:
            self._wire.transport.abort()
            await asyncio.sleep(0)  # its end is told in the next pass of the loop

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> AsyncNetworkStream:
        """Go on encrypted. Raises ConnectError, ConnectTimeout, and the connection is closed then."""
        self._send()
        wire = self._wire
        if wire.transport is None:
            raise ConnectError("the connection is closed") from wire.error
        if wire.came:  # in the clear: whoever sent it, it would be read as the server's first answer
            await self.aclose()
            raise ConnectError("the server spoke before the handshake")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                # The protocol is not told of the new transport; writes to the old one would go in the clear.
                wire.transport = await loop.start_tls(
                    wire.transport, wire, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            await self.aclose()
            raise ConnectTimeout(str(error)) from error
        except OSError as error:  # an SSLError is one
            await self.aclose()
            raise ConnectError(str(error)) from error
        except BaseException:
            await self.aclose()
            raise
        if wire.transport is None:
            raise ConnectError("the connection was closed during the handshake") from wire.error
        return self

    def get_extra_info(self, info: str) -> Any:
        """Give what httpcore2 asks for: TLS, addresses, the socket, whether something came unasked."""
        wire = self._wire
        if info == "is_readable":
            return bool(wire.came) or wire.is_over or _has_come(wire.transport)
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return None if wire.transport is None else wire.transport.get_extra_info(names.get(info, info))

    def _send(self) -> None:
        if self._kept and self._wire.transport is not None:
            self._wire.transport.write(bytes(self._kept))
        self._kept.clear()


def _has_come(transport: asyncio.Transport | None) -> bool:
    """Whether the loop has not seen yet that something came, or that the other side has gone."""
    place = transport.get_extra_info("socket") if transport is not None else None
    if place is None or place.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(place.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class WireBackend(AsyncNetworkBackend):
    """Opens connections on the running event loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect, to the address of the name that answers first. Raises ConnectError, ConnectTimeout."""
        wire = _Wire()
        local = (local_address, 0) if local_address else None
        try:
            async with asyncio.timeout(timeout):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: wire, host, port, local_addr=local, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise ConnectTimeout(str(error)) from error
        except OSError as error:
            raise ConnectError(str(error)) from error
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return WireStream(wire)

    async def sleep(self, seconds: float) -> None:
        """Wait between tries."""
        await asyncio.sleep(seconds)
