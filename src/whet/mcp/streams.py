"""Read a server's event streams: those of calls, and the one for messages between calls.

A stream that was cut is reopened after its last event (Last-Event-ID), after the pause that the server
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import httpx2
import msgspec

from whet.contract.errors import ToolError, WireError
from whet.mcp.transport import MAX_MESSAGE_BYTES, ServerFailed
from whet.providers.sse import SseParser

log: logging.Logger = logging.getLogger("whet.mcp")
EVENTS = "text/event-stream"
_RESUMES = 3
_PAUSE_S = 0.5
_MIN_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 60.0
_LATER = (409, 429, 500, 502, 503, 504)
_ReadResult = Literal["something", "nothing", "failed", "refused"]
Open = Callable[[str], AbstractAsyncContextManager[httpx2.Response]]
"""Opens the server's stream after the event with this id, or from the start if the id is empty."""


class StreamCursor(msgspec.Struct):
    """The position in a stream, and the pause before it is reopened."""

    last_id: str = ""
    pause_s: float = _PAUSE_S


class Streams:
    """The streams of one session with a server. `take` is called with each event's data."""

    def __init__(
        self, name: str, open_: Open, take: Callable[[bytes], None], pause: Callable[[float], Awaitable[Any]]
    ) -> None:
        self._name = name
        self._open = open_
        self._take = take
        self._pause = pause
        self._listen_task: asyncio.Task[None] | None = None

    async def follow(self, response: httpx2.Response, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Read a call's stream until its answer has arrived.

        Resumes a cut stream if its events have ids. Returns without an answer after three failures in a row.
        Raises ServerFailed, WireError.
        """
        cursor, failures = StreamCursor(), 0
        with contextlib.suppress(httpx2.TransportError):  # a cut; it is resumed below
            await self._read(response, cursor, answer.done)
        while not answer.done() and cursor.last_id and failures < _RESUMES:
            await self._pause(cursor.pause_s)
            result = await self._reopen(cursor, answer.done)
            if result == "refused":
                return
            failures = failures + 1 if result == "failed" else 0

    def start_listening(self) -> None:
        """Start reading the server's messages between calls, if it sends any."""
        if self._listen_task is None:
            self._listen_task = asyncio.create_task(self._listen())

    async def aclose(self) -> None:
        """Stop reading."""
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait({self._listen_task})

    async def _listen(self) -> None:
        cursor, silences = StreamCursor(), 0
        while True:
            try:
                result = await self._reopen(cursor, lambda: False)
            except (ToolError, WireError) as error:
                log.warning("the MCP server %s is not heard between calls: %s", self._name, error.message)
                return
            if result == "refused":
                return
            silences = 0 if result == "something" else min(silences + 1, 6)
            await self._pause(min(_LONGEST_PAUSE_S, max(cursor.pause_s, 2.0**silences - 1)))

    async def _reopen(self, cursor: StreamCursor, is_done: Callable[[], bool]) -> _ReadResult:
        """Open the stream after `cursor` and read it to its end. Returns whether events came, or why not."""
        try:
            async with self._open(cursor.last_id) as response:
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if response.status_code in _LATER:
                    return "failed"
                if response.status_code != 200 or kind != EVENTS:
                    return "refused"
                return "something" if await self._read(response, cursor, is_done) else "nothing"
        except httpx2.ReadTimeout:  # a long silence is not a failure
            return "something"
        except (httpx2.HTTPError, OSError):
            return "failed"

    async def _read(
        self, response: httpx2.Response, cursor: StreamCursor, is_done: Callable[[], bool]
    ) -> bool:
        """Pass each event's data to `take` and move `cursor`, until `is_done` returns True or the stream
        ends. Returns whether any event arrived."""
        parser, size = SseParser(), 0
        async for chunk in response.aiter_bytes():
            events = parser.feed(chunk)
            size = 0 if events else size + len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise ServerFailed(
                    f"the MCP server {self._name} sent more than {MAX_MESSAGE_BYTES:,} bytes in one event"
                )
            if parser.last_id.isascii() and parser.last_id.isprintable():
                cursor.last_id = parser.last_id or cursor.last_id
            if parser.retry_ms is not None:
                cursor.pause_s = min(max(parser.retry_ms / 1000, _MIN_PAUSE_S), _LONGEST_PAUSE_S)
            for _, data in events:
                if data:
                    self._take(data)
            if is_done():
                return True
        return parser.has_events
