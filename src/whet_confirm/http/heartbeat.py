"""Sends heartbeats to all event streams with one timer, without waking the streams' tasks.

A heartbeat is written straight to the connection. Streams are divided into ten groups that take turns, so
that a thousand of them don't block the loop. A client that reads slowly still has unread bytes and needs
no heartbeat. Each caller's token is checked again once per group, however many streams the caller has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from whet.contract.errors import StoreError
from whet.web.beat import aligned_delay
from whet_confirm.http.guard import ApiGuard
from whet_confirm.http.wire import Scope, Send, header

BEAT_S = 45.0  # proxies commonly close a connection that is silent for a minute
_GROUPS = 10
_BEAT = {"type": "http.response.body", "body": b": beat\n\n", "more_body": True}


class HeartbeatStream:
    """One stream with a heartbeat.

    If its token has become invalid, `is_refused` is set and `end_wait` is called.
    """

    __slots__ = ("end_wait", "group", "is_refused", "scope", "send")

    def __init__(self, scope: Scope, send: Send, end_wait: Callable[[], None], group: int) -> None:
        self.scope: Scope = scope
        self.send: Send = send
        self.end_wait: Callable[[], None] = end_wait
        self.group: int = group
        self.is_refused: bool = False

    @property
    def credentials(self) -> tuple[str, object]:
        """The credentials of the stream's caller: a token, or the user at the other end of a socket."""
        return header(self.scope, b"authorization"), self.scope["extensions"].get("whet.peer")

    def beat(self) -> None:
        """Write a heartbeat if the connection accepts it without waiting."""
        write = self.send(_BEAT).__await__()
        try:
            next(write)
        except StopIteration:
            return
        write.close()  # type: ignore[attr-defined]  # it waits for the client, and has written nothing


class Heartbeats:
    """The streams of one service, and the task that sends heartbeats while there are any."""

    def __init__(self, guard: ApiGuard) -> None:
        self._guard = guard
        self._groups: list[set[HeartbeatStream]] = [set() for _ in range(_GROUPS)]
        self._next = 0
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, scope: Scope, send: Send, end_wait: Callable[[], None]) -> HeartbeatStream:
        """Start heartbeats for a stream, until `remove`."""
        self._next = (self._next + 1) % _GROUPS
        stream = HeartbeatStream(scope, send, end_wait, self._next)
        self._groups[stream.group].add(stream)
        self._count += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return stream

    def remove(self, stream: HeartbeatStream) -> None:
        """Stop heartbeats for a stream."""
        if stream in self._groups[stream.group]:
            self._groups[stream.group].remove(stream)
            self._count -= 1
        if not self._count and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(aligned_delay(BEAT_S / _GROUPS))
            number = (number + 1) % _GROUPS
            self.beat(number)

    def beat(self, number: int) -> None:
        """Check the tokens of a group's streams, and write a heartbeat to each stream that may continue."""
        group = [*self._groups[number]]
        for credentials in {stream.credentials for stream in group}:
            same = [stream for stream in group if stream.credentials == credentials]
            try:
                is_refused = self._guard.find_caller(same[0].scope) is None
            except StoreError:
                continue  # the disk may be available again at the next heartbeat
            for stream in same:
                stream.is_refused = is_refused
                if is_refused:
                    stream.end_wait()
                else:
                    stream.beat()
