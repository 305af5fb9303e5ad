"""uvicorn's HTTP protocol with limits on slow and oversized requests.

A request's head must be complete within ten seconds and 64 KiB, the whole request within thirty seconds;
otherwise the client gets an error and is disconnected. The application limits the size of the body. It finds
the `WebConnection` in `scope["extensions"]`. Requests to upgrade to another protocol are answered without the
upgrade.
"""

from __future__ import annotations

import resource
import socket
import struct
from asyncio import Event, Task, TimerHandle, current_task
from typing import Any, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from whet.web.connection import WebConnection
from whet.web.cycle import Cycle
from whet.web.first_step import run_first_step

HEAD_LIMIT_BYTES = 64 * 1024
# Headers that identify the caller, the origin and the content. Duplicates are refused: a proxy and the
# application could each read a different one.
_SINGLE_HEADERS = frozenset(
    (
        b"host",
        b"authorization",
        b"origin",
        b"sec-fetch-site",
        b"content-type",
        b"content-length",
        b"idempotency-key",
    )
)
_JSON = "content-type: application/json\r\nconnection: close\r\n"


class LimitedProtocol(HttpToolsProtocol):
    """One connection. A timer runs only while a request is incomplete.

    If the application's `may_start_at_once(scope)` returns True, a complete request is started in the
    callback that received it (`first_step.py`). Any other request gets a task.
    """

    head_time_s: float = 10.0
    request_time_s: float = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head, self._is_whole, self._head_bytes = True, False, 0
        self._timer: TimerHandle | None = None
        self._idle_timer: TimerHandle | None = None
        self._idle_since_s: float | None = None
        self._web_connection = WebConnection()
        self._extensions: Any = {"whet.line": self._web_connection}
        self._plain_head = b""  # the head of a request for an upgrade, without the upgrade
        self._earlier_cycles: list[Cycle] = []  # of unanswered requests before the newest one
        self._is_refused = False
        self._unstarted: Cycle | None = None
        self._may_start_at_once = getattr(cast("Any", self).app, "may_start_at_once", None)
        self._connected_at_s = self.loop.time()

    def connection_made(self, transport: Any) -> None:
        """Start the timer, so that a connection that sends nothing is closed."""
        super().connection_made(transport)
        if len(self.connections) > file_limit() * 7 // 8:
            self._close_idle_connection()
        if (user := _peer_user_id(transport)) is not None:
            self._extensions["whet.peer"] = user
        self._timer = self.loop.call_later(self.head_time_s, self._refuse_slow_request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and notify tasks that wait for the client."""
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)
        for cycle in self._earlier_cycles:  # uvicorn notifies only the newest request on the connection
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._web_connection.cut()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. If the request is still incomplete, start its timer."""
        if self.parser is None or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._unstarted is not None:
            self._start(self._unstarted)
        if self._is_whole:
            if self._timer is not None:
                self._stop_timer()
        elif self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT_BYTES:
                self._refuse(431, "the request's head is larger than 64 KiB")
            elif self._timer is None:
                self._timer = self.loop.call_later(self.head_time_s, self._refuse_slow_request)
        elif self._timer is None:
            self._timer = self.loop.call_later(self.request_time_s, self._refuse_slow_request)

    def on_message_begin(self) -> None:
        """Handle the beginning of a request."""
        self._in_head, self._is_whole, self._head_bytes = True, False, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers after a body are ignored."""
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue: bool = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Create the request's cycle. It starts at once, or after earlier requests on this connection."""
        untyped: Any = self  # uvicorn's attributes have no usable types; cast() would cost a call per request
        parser: HttpRequestParser = untyped.parser  # exists while the connection does
        if parser.should_upgrade() and parser.get_method() != b"CONNECT":
            self._plain_head = _head_without_upgrade(parser, self.url, untyped.headers)
            return
        self._in_head = False
        self._stop_timer()
        version = parser.get_http_version()
        if doubt := _find_ambiguity(self.url, version, untyped.headers):
            self._is_refused = True
            self._refuse(400, doubt)
            return
        application: ASGI3Application = untyped.app
        url = parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope.update(
            method=parser.get_method().decode("ascii"),
            http_version=version,
            path=unquote(path) if "%" in path else path,
            raw_path=url.path,
            query_string=url.query or b"",
            extensions=self._extensions,
        )
        previous: Cycle | None = untyped.cycle
        self.cycle: RequestResponseCycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if previous is None or previous.response_complete:
            self._unstarted = self.cycle
        else:
            cycles = (*self._earlier_cycles, previous)
            self._earlier_cycles = [cycle for cycle in cycles if not cycle.response_complete]
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, application))

    def on_message_complete(self) -> None:
        """Handle the end of a request."""
        if not self._plain_head and not self._is_refused:
            self._is_whole = True
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if not self._is_refused:
            super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the next request if it has already arrived, otherwise become idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, application = self.pipeline.pop()
            self._start_asgi_task(cycle, application)
            return
        self._idle_since_s = self.loop.time()
        # one timer per connection: starting one per answer would take a tenth of the answer's time
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _start(self, cycle: Cycle) -> None:
        """Start answering a request whose head was in the bytes just read."""
        untyped: Any = self
        self._unstarted = None
        may_start = self._may_start_at_once
        if cycle.more_body or self.transport.is_closing() or may_start is None or not may_start(cycle.scope):
            self._start_asgi_task(cycle, untyped.app)
        elif (task := run_first_step(self.loop, cycle.run_asgi(untyped.app))) is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.tasks.add(self.loop.create_task(self._answer(cycle, app)))

    async def _answer(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        try:
            await cycle.run_asgi(app)
        finally:  # not a done callback, which would cost one more loop iteration per request
            self.tasks.discard(cast("Task[None]", current_task()))

    def _unset_keepalive_if_required(self) -> None:
        """Override uvicorn's: mark the connection as busy, but keep its idle timer."""
        self._idle_since_s = None

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since_s is None:
            return  # the next answer starts the timer again
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._end_if_idle)
        else:
            self.timeout_keep_alive_handler()

    def _close_idle_connection(self) -> None:
        """Close the connection that has been idle for longest, to free a file descriptor for a new one."""
        others: list[Any] = [connection for connection in self.connections if connection is not self]
        idle = [other for other in others if isinstance(other, LimitedProtocol) and other.is_idle]
        if idle:
            min(idle, key=LimitedProtocol.waiting_since_s).transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered. A connection with an incomplete head counts as idle."""
        cycle: Any = self.cycle
        is_answering = cycle is not None and not cycle.response_complete
        return not is_answering and not self.transport.is_closing()

    def waiting_since_s(self) -> float:
        """Return the loop's time at which the connection began to wait for a request."""
        return self._connected_at_s if self._idle_since_s is None else self._idle_since_s

    def _parse(self, data: bytes) -> None:
        untyped: Any = self
        parser: HttpRequestParser = untyped.parser
        remaining = memoryview(data)
        try:
            while remaining:
                try:
                    parser.feed_data(remaining)
                    return
                except HttpParserUpgrade as upgrade:
                    if not self._plain_head:
                        return  # data after a CONNECT is ignored
                    remaining = remaining[upgrade.args[0] :]
                # The parser took everything after the head for the other protocol. Parse the head again
                # without the upgrade, then the remaining bytes.
                head, self._plain_head = self._plain_head, b""
                parser = untyped.parser = HttpRequestParser(self)
                parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                parser.feed_data(head)
        except HttpParserError:
            if not self._is_refused:
                self.send_400_response("Invalid HTTP request received.")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse_slow_request(self) -> None:
        self._timer = None
        self._refuse(408, "the request came too slowly")

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        if not self.cycle or self.cycle.response_complete or not self.cycle.response_started:
            body = f'{{"error":"{message}"}}'
            head = f"HTTP/1.1 {status} \r\n{_JSON}content-length: {len(body)}\r\n\r\n"
            self.transport.write((head + body).encode())
        self.transport.close()


def file_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 65_536


def _peer_user_id(transport: Any) -> int | None:
    """Return the user id of the process at the other end of a Unix socket, as the kernel reports it, or None
    for other connections."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _head_without_upgrade(parser: HttpRequestParser, url: bytes, sent: list[tuple[bytes, bytes]]) -> bytes:
    line = b"%s %s HTTP/%s\r\n" % (parser.get_method(), url, parser.get_http_version().encode())
    headers = (b"%s: %s\r\n" % pair for pair in sent if pair[0] != b"upgrade")
    return b"".join((line, *headers, b"\r\n"))


def _find_ambiguity(url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> str:
    """Return why a proxy and this server might read a head differently, or an empty string. The reasons are a
    duplicate header, a target on another host, and an unknown version."""
    sent = dict(headers)
    if len(sent) != len(headers):
        names = [name for name, _ in headers]
        if twice := next((name for name in names if name in _SINGLE_HEADERS and names.count(name) > 1), b""):
            return f"two {twice.decode().title()} headers"
    if version not in ("1.1", "1.0"):
        return "only HTTP/1.0 and HTTP/1.1 are supported"
    if url[:1] not in (b"/", b"*") and b"://" in url:
        target_host = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        if b"host" not in sent or target_host.lower() != sent[b"host"].lower():
            return "the request target's host differs from the Host header"
    return ""
