"""One HTTP/1.1 connection: parse its address, encode a request's head, send a request, receive the answer.

Characters that could end a line of the head early are refused, so that no value can inject a header or a
request. Errors never quote a header, because it may contain a key.

Bytes are received into a buffer that the client's connections share, and are parsed in place. If an answer
arrives in many small pieces, the kernel buffers those of a few milliseconds, so that the loop wakes once
instead of once per piece.
"""

from __future__ import annotations

import asyncio
import base64
import select
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, cast
from urllib.parse import SplitResult, quote, unquote

import msgspec

from whet.contract.texts import PORTS, split_http_url
from whet.http1.failure import HttpFailed
from whet.http1.response import ResponseReader
from whet.late import late_pattern

READ_BYTES = 64 * 1024
_READ_AHEAD_BYTES = 256 * 1024
# A person sees at most 60 frames a second; a piece waits at most half a frame.
PACE_S = 0.008
_SMALL_BYTES = 8 * 1024
_QUICK_PIECES = 4
# How often a wait checks whether the machine slept, and the time that a connection then has to answer.
CHECK_S = 5.0
AFTER_SLEEP_S = 10.0
_NAME = late_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = late_pattern(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
_TARGET = late_pattern(r"[\x21-\x7e]+")


class Address(msgspec.Struct, frozen=True):
    """A URL in the form that a connection needs.

    `host` is the host to connect to, `server_name` the name that the certificate must have, `authority`
    the Host header; `user` is `Basic ...` if the URL contains a user name.
    """

    scheme: str
    host: str
    port: int
    target: str
    authority: str
    server_name: str
    user: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme == "https"


def parse_address(url: str) -> Address:
    """Parse a URL. Raises HttpFailed if it is not an http(s) URL."""
    parts = split_http_url(url)
    if parts is None:
        raise HttpFailed("request", "not an http or https URL")
    name = parts.hostname or ""
    try:
        host = name if name.isascii() else name.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HttpFailed("request", "the URL's host is not a name") from error
    port = parts.port or PORTS[parts.scheme]
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/"
    query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else ""
    host_text = f"[{host}]" if ":" in host else host
    return Address(
        scheme=parts.scheme,
        host=host,
        port=port,
        target=path + query,
        authority=host_text if port == PORTS[parts.scheme] else f"{host_text}:{port}",
        server_name=host,
        user=basic_auth(parts),
    )


def basic_auth(parts: SplitResult) -> str:
    """Return the authorization header for the credentials in a URL, or an empty string."""
    if not (parts.username or parts.password):
        return ""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def encode_head(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Encode a request's head. Raises HttpFailed for an invalid header name or value."""
    head = _encode_lines(method, target, tuple(headers.items()))
    if body is None and method not in ("POST", "PUT", "PATCH"):
        return head + b"\r\n"
    return b"%bcontent-length: %d\r\n\r\n" % (head, len(body or b""))


@lru_cache(maxsize=64)  # a session sends the same headers repeatedly, and checking them takes longer
def _encode_lines(method: str, target: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    if not (_NAME.fullmatch(method) and _TARGET.fullmatch(target)):
        raise HttpFailed("request", "a method or path that can't be sent")
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise HttpFailed("request", "a header's name can't be sent")
        if not _VALUE.fullmatch(value):
            raise HttpFailed("request", f"the header {name.lower()} has characters that can't be sent")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("ascii")


class HttpConnection(asyncio.BufferedProtocol):
    """A connection to a server or a proxy. `idle_since_s` is the loop's time at which it last became idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self.idle_since_s: float = 0.0
        self._loop = loop
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._response: ResponseReader | None = None
        self._failure: HttpFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._silence_s = 0.0
        self._came_s = 0.0
        self._since_s = 0.0
        self._unsent_bytes = 0
        self._listens_until_s = self._offset_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._pacer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._is_paused = False
        self._quick_pieces = 0

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the receive buffer, which is empty again when `buffer_updated` returns."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse received bytes. Bytes that come without a request close the connection."""
        response = self._response
        if response is None:
            self.abort()
            return
        now_s = self._loop.time()
        try:
            response.feed(self._buffer[:nbytes])
        except HttpFailed as failure:
            self._fail(failure)
            return
        if not response.is_whole:
            self._throttle_reading(response, nbytes, now_s)
        if response.has_head:  # a head that comes byte by byte is not progress
            self._came_s = now_s
            self._wake()

    def eof_received(self) -> None:
        """Handle the end of the stream; the transport closes itself."""
        self._handle_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the loss of the connection."""
        self._transport = None
        self._handle_end(exc)

    # Called by the client.

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent: the connection is open, and its socket has nothing to read."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._failure is not None:
            return False
        return _is_silent(transport)

    async def send(self, head: bytes, body: bytes | None, silence_s: float) -> ResponseReader:
        """Send a request and return its answer once the head has arrived. Raises HttpFailed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise HttpFailed("write", "the connection is closed")
        self._response = response = ResponseReader()
        self._silence_s, self._quick_pieces = silence_s, 0
        if body is None or len(body) < READ_BYTES:
            transport.write(head + body if body else head)
        else:
            transport.write(head)
            transport.write(body)
        while not response.has_head:
            await self._wait_for_change()
        return response

    async def next_piece(self) -> bytes:
        """Return received bytes of the body, or b"" at its end. Raises HttpFailed."""
        response = self._response
        while response is not None:
            if response.waiting_bytes:
                piece = response.take()
                if self._is_held:
                    self._is_held = False
                    self._resume()
                return piece
            if response.is_whole:
                break
            await self._wait_for_change()
        return b""

    def finish(self) -> bool:
        """End the exchange. Returns False, and closes the connection, if it can't be reused."""
        response, self._response = self._response, None
        for timer in (self._timer, self._pacer):
            if timer is not None:
                timer.cancel()
        self._timer = self._pacer = None
        transport = self._transport
        if response is not None:
            response.close()
        if response is None or transport is None:
            self.abort()
            return False
        if not (response.is_whole and response.can_follow) or transport.get_write_buffer_size():
            self.abort()
            return False
        self._is_held = False
        self._resume()
        self.idle_since_s = self._loop.time()
        return True

    def abort(self) -> None:
        """Close at once; the loop reports the end in its next pass."""
        if self._transport is not None:
            self._transport.abort()

    # Internal.

    def _throttle_reading(self, response: ResponseReader, size: int, now_s: float) -> None:
        """Pause reading for `PACE_S` if small pieces follow each other closely, and until the reader catches
        up if much of the body waits to be read."""
        if response.waiting_bytes > _READ_AHEAD_BYTES:
            self._is_held = True
            self._pause()
            return
        is_paced = self._quick_pieces >= _QUICK_PIECES
        if size > _SMALL_BYTES or now_s - self._came_s > (1.5 * PACE_S if is_paced else PACE_S):
            self._quick_pieces = 0
            return
        self._quick_pieces += 1
        if self._quick_pieces >= _QUICK_PIECES and self._pacer is None:
            self._pause()
            self._pacer = self._loop.call_later(PACE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pacer = None
        self._resume()

    def _pause(self) -> None:
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Resume reading unless there is another reason to pause."""
        if self._is_paused and not self._is_held and self._pacer is None:
            self._is_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    async def _wait_for_change(self) -> None:
        """Wait until bytes arrive or the stream ends. Raises HttpFailed, also after `silence_s` without a
        byte."""
        if self._failure is not None:
            raise self._failure
        self._waiter = waiter = self._loop.create_future()
        self._since_s = self._loop.time()
        if self._timer is None:
            self._start_silence_timer(self._silence_s)
        try:
            await waiter
        finally:
            self._waiter = None
        if self._failure is not None and (self._response is None or not self._response.waiting_bytes):
            raise self._failure

    def _start_silence_timer(self, after_s: float) -> None:
        transport = self._transport
        self._unsent_bytes = transport.get_write_buffer_size() if transport is not None else 0
        self._listens_until_s = self._loop.time() + after_s
        self._offset_s = time.time() - time.monotonic()
        self._timer = self._loop.call_later(min(after_s, CHECK_S), self._check_silence)

    def _check_silence(self) -> None:
        """Fail if the server has neither sent nor accepted a byte for the whole time limit."""
        self._timer = None
        if self._waiter is None:
            return  # no one is waiting; the next wait starts the timer again
        if self._may_be_dead():
            self._since_s, self._silence_s = self._loop.time(), min(self._silence_s, AFTER_SLEEP_S)
            self._start_silence_timer(self._silence_s)
            return
        if (remaining_s := self._listens_until_s - self._loop.time()) > 0.001:
            self._timer = self._loop.call_later(min(remaining_s, CHECK_S), self._check_silence)
            return
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unsent < self._unsent_bytes:  # the server accepts the data slowly
            self._start_silence_timer(self._silence_s)
            return
        left_s = max(self._since_s, self._came_s) + self._silence_s - self._loop.time()
        if left_s > 0.001:
            self._start_silence_timer(left_s)
            return
        stage: Literal["write", "read"] = "write" if unsent else "read"
        self._fail(HttpFailed(stage, f"silent for {self._silence_s:g} s", is_timeout=True))

    def _may_be_dead(self) -> bool:
        """Return whether the machine slept meanwhile, or now reaches the server through another network. Then
        the connection may be dead, although nothing reports it."""
        from whet.http1.machine import SLEPT_S, source_address  # noqa: PLC0415 only long waits need it

        offset_s = time.time() - time.monotonic()
        has_slept, self._offset_s = offset_s - self._offset_s > SLEPT_S, offset_s
        if has_slept or self._silence_s <= AFTER_SLEEP_S or self._transport is None:
            return has_slept
        local, remote = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
        return bool(local and remote) and source_address(remote[:2]) != local[0]

    def _handle_end(self, error: Exception | None) -> None:
        response = self._response
        if response is None or self._failure is not None:
            return
        if error is not None and not response.is_whole:
            failure = HttpFailed("read", _reason(error))
            failure.__cause__ = error
            self._failure = failure
        else:
            try:
                response.end()
            except HttpFailed as failure:
                self._failure = failure
        self._wake()

    def _fail(self, failure: HttpFailed) -> None:
        self._failure = self._failure or failure
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:160] or type(error).__name__


def _is_silent(transport: asyncio.Transport) -> bool:
    """Return whether the socket is open and has no bytes to read."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return not poll.poll(0)
