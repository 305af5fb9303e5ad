"""Wakes tasks that wait for the end of one request (long poll) or for every event (streams).

Used on the event loop's thread only. Events are published in the order of their ids. If there is a gap,
`publish` fetches the events of other processes from the database.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from whet.web.beat import aligned_delay
from whet_confirm.records import AuditEvent

_RECENT_EVENTS = 2048
ENDINGS = frozenset({"decided", "expired", "cancelled"})


class Hub:
    """The waiters by request, and the newest events for streams."""

    def __init__(self, last_id: int, fetch: Callable[[int, int], list[AuditEvent]]) -> None:
        self.last_id = last_id
        self.recent: deque[AuditEvent] = deque(maxlen=_RECENT_EVENTS)
        self.is_closed = False
        self._fetch = fetch
        self._waiters: dict[str, set[asyncio.Future[AuditEvent | None]]] = {}
        self.streams: set[asyncio.Future[None]] = set()
        self._background: set[asyncio.Future[None]] = set()
        self._idle_wait: asyncio.Future[None] | None = None

    @property
    def has_waiters(self) -> bool:
        """Whether a client waits now, for one request's end or for any event."""
        return bool(self._waiters or self.streams)

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a request's end."""
        return sum(len(group) for group in self._waiters.values())

    def publish(self, events: Sequence[AuditEvent]) -> list[AuditEvent]:
        """Publish committed events and return the new ones. Known events are skipped, gaps filled."""
        new: list[AuditEvent] = []
        last_id = self.last_id
        for event in events:
            if event.id > last_id + 1:
                new += self._fetch(last_id, event.id)
                last_id = event.id - 1
            if event.id > last_id:
                new.append(event)
                last_id = event.id
        self.last_id: int = last_id
        self.recent.extend(new)
        if self._waiters:
            for event in new:
                if event.kind in ENDINGS and (group := self._waiters.pop(event.request_id, None)):
                    wake(group, event)
        if new and (self.streams or self._background):
            streams, self.streams = self.streams, set()
            background, self._background = self._background, set()
            wake((*streams, *background))
        return new

    def recent_after(self, event_id: int) -> list[AuditEvent] | None:
        """Return the events after `event_id` from memory, or None if they must be read from the database."""
        if event_id >= self.last_id:
            return []
        count = self.last_id - event_id  # ids have no gaps
        if count > len(self.recent):
            return None
        return [self.recent[index] for index in range(-count, 0)]

    def listen_for_end(self, request_id: str) -> asyncio.Future[AuditEvent | None]:
        """Return a future for a request's end. No end from now on is missed.

        Its result is the event that ended the request, or None if the hub closes.
        """
        future: asyncio.Future[AuditEvent | None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        else:
            self._waiters.setdefault(request_id, set()).add(future)
            self._end_idle_wait()
        return future

    def stop_listening(self, future: asyncio.Future[AuditEvent | None], request_id: str) -> None:
        """Stop waiting for a request's end."""
        group = self._waiters.get(request_id)
        if group is not None:
            group.discard(future)
            if not group:
                del self._waiters[request_id]

    def next_event(self, *, is_background: bool = False) -> asyncio.Future[None]:
        """Return a future that is done when there is a newer event or the hub closes.

        `is_background`: no client waits for it.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        elif is_background:
            self._background.add(future)
        else:
            self.streams.add(future)
            self._end_idle_wait()
        return future

    def cancel_wait(self, future: asyncio.Future[None]) -> None:
        """Stop waiting for `next_event`."""
        self.streams.discard(future)
        self._background.discard(future)

    async def wait_for_change(self, attended_s: float, alone_s: float) -> None:
        """Sleep for `attended_s` if a client waits. Otherwise sleep until one does, at most `alone_s`."""
        if self.has_waiters:
            await asyncio.sleep(attended_s)
            return
        loop = asyncio.get_running_loop()
        self._idle_wait = future = loop.create_future()
        timer = loop.call_later(aligned_delay(alone_s), wake, (future,))
        try:
            await future
        finally:
            self._idle_wait = None
            timer.cancel()

    def close(self) -> None:
        """Wake all waiters, because the service stops."""
        self.is_closed: bool = True
        for group in self._waiters.values():
            wake(group)
        wake((*self.streams, *self._background))

    def _end_idle_wait(self) -> None:
        if self._idle_wait is not None:
            wake((self._idle_wait,))


def wake(futures: Iterable[asyncio.Future[Any]], event: AuditEvent | None = None) -> None:
    """Complete those of `futures` that are still pending, with `event` as the result."""
    for future in futures:
        if not future.done():
            future.set_result(event)
