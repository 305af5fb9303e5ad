"""Keep the recent events of sessions in memory, numbered, so that a listener can continue after an
interruption.

An event's id is `<feed>-<number>`. If the events after a listener's id are no longer kept, or the id is of an
earlier process, the listener first receives a `gap` and must read the session's messages.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence, Sized
from typing import NamedTuple

from whet.contract.events import Event
from whet.contract.texts import encode_output
from whet.log import mask_known
from whet.serve.wire import Ticker

_KEPT_EVENTS, _KEPT_BYTES = 4_000, 2_000_000
_ALL_FEEDS, _ALL_BYTES = 1_000, 32_000_000
_EVENT_ID = re.compile(r"([0-9a-z]{1,32})-([0-9]{1,15})")
GAP_PIECE = b'event: gap\ndata: {"type":"gap"}\n\n'


def name_event(event: Event) -> str:
    """Return an event's name in the stream."""
    return str(event.__struct_config__.tag)


def number_of(event_id: str, feed_name: str) -> int | None:
    """Return the number in an event's id, or None if it is not an id of this feed."""
    match = _EVENT_ID.fullmatch(event_id)
    return int(match[2]) if match is not None and match[1] == feed_name else None


class FeedEvent(NamedTuple):
    """An event of a feed: its number, which grows from event to event, its name and its JSON."""

    number: int
    name: str
    body: bytes


def is_too_large(pieces: Sized, size_bytes: int) -> bool:
    """Return whether a feed has more events or bytes than it may keep."""
    return len(pieces) > _KEPT_EVENTS or (size_bytes > _KEPT_BYTES and len(pieces) > 1)


class Feed:
    """All events of one session after the number `start`, encoded for the stream."""

    def __init__(self, name: str, start: int = 0) -> None:
        self._name = name
        self.start: int = start
        self.newest: int = start
        self._numbers: deque[int] = deque()
        self._pieces: deque[bytes] = deque()
        self.size_bytes: int = 0
        self._changed = asyncio.Event()
        self.listeners = 0

    @property
    def last_id(self) -> str:
        """The id of the newest event."""
        return f"{self._name}-{self.newest}"

    def add(self, event: FeedEvent) -> None:
        """Add the newest event, drop old ones if necessary, and wake the listeners."""
        self._numbers.append(event.number)
        self._pieces.append(self._encode_piece(event))
        self.newest = event.number
        self.size_bytes += len(self._pieces[-1])
        while is_too_large(self._pieces, self.size_bytes):
            self.size_bytes -= len(self._pieces.popleft())
            self.start = self._numbers.popleft()
        self.wake()

    def begin_at(self, start: int, events: Sequence[FeedEvent]) -> None:
        """Extend the feed back to `start`. `events` are all events after it; those already here are
        skipped."""
        for event in reversed([event for event in events if event.number <= self.start]):
            self._numbers.appendleft(event.number)
            self._pieces.appendleft(self._encode_piece(event))
            self.size_bytes += len(self._pieces[0])
        self.start = min(start, self.start)

    def _encode_piece(self, event: FeedEvent) -> bytes:
        id_, name = f"{self._name}-{event.number}".encode(), event.name.encode()
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_, name, event.body)

    def wake(self) -> None:
        """Wake the listeners."""
        self._changed.set()
        self._changed = asyncio.Event()

    def after(self, last_id: str) -> tuple[int, bool]:
        """Return the number after which a listener's stream begins, and whether events before it are missing.
        An empty id means from now on."""
        if not last_id:
            return self.newest, False
        number = number_of(last_id, self._name)
        if number is None:
            return self.start, True
        return max(number, self.start), number < self.start

    def since(self, number: int) -> tuple[bytes, int]:
        """Return the encoded events after `number`, and the newest number. If some are no longer kept, a gap
        comes first."""
        gap = GAP_PIECE if number < self.start else b""
        first = bisect_right(self._numbers, number)
        return gap + b"".join(self._pieces[at] for at in range(first, len(self._pieces))), self.newest

    async def wait(self, gone: asyncio.Future[None], beat_s: float) -> bool:
        """Wait for an event or the listener's end. Returns False if neither came for `beat_s`."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait((changed, gone), timeout=beat_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return bool(done)


class Feeds:
    """The feeds of recently active sessions. `listeners` are called with every event of every session.

    The total size is bounded: feeds without listeners are dropped, the longest silent first.
    """

    def __init__(self, epoch: str, beat_s: float = 15.0, all_bytes: int = _ALL_BYTES) -> None:
        self._epoch = epoch
        self._feed_count = 0
        self._all_bytes = all_bytes
        self.size_bytes: int = 0
        self.beat_s = beat_s
        self.by_session: OrderedDict[str, Feed] = OrderedDict()
        self.is_closed = False
        self.listeners: list[Callable[[str, Event], None]] = []

    def feed_of(self, session_id: str) -> Feed:
        """Return a session's feed, created if necessary."""
        feed = self.by_session.get(session_id)
        if feed is None:
            self._feed_count += 1  # a recreated feed must not reuse ids of the old one
            feed = self.by_session[session_id] = Feed(f"{self._epoch}z{self._feed_count}")
            self._make_room(session_id)
        return feed

    def add(self, session_id: str, event: Event) -> None:
        """Add an event of a session and call the listeners."""
        feed = self.feed_of(session_id)
        body = mask_known(encode_output(event).decode()).encode()
        self._extend(session_id, FeedEvent(feed.newest + 1, name_event(event), body))
        self._notify(session_id, event)
        if self.size_bytes > self._all_bytes:
            self._make_room(session_id)

    def _extend(self, session_id: str, event: FeedEvent) -> None:
        feed = self.by_session[session_id]
        before = feed.size_bytes
        feed.add(event)
        self.size_bytes += feed.size_bytes - before
        self.by_session.move_to_end(session_id)

    def pass_on(self, session_id: str, event: Event) -> None:
        """Pass an event to the listeners. It is kept only if the session's feed exists.

        For turns whose own request receives the events, so that thousands of events without another reader
        don't fill the memory.
        """
        if session_id in self.by_session:
            self.add(session_id, event)
        else:
            self._notify(session_id, event)

    async def last_id(self, session_id: str) -> str:
        """Return the id of a session's newest event."""
        return self.feed_of(session_id).last_id

    def wake(self, session_id: str) -> None:
        """Wake the listeners of a session."""
        if (feed := self.by_session.get(session_id)) is not None:
            feed.wake()

    async def find_ready(self, session_id: str, last_id: str) -> Feed:
        """Return a session's feed, with those events after `last_id` that are still kept."""
        return self.feed_of(session_id)

    def _make_room(self, kept_session_id: str) -> None:
        while len(self.by_session) > _ALL_FEEDS or self.size_bytes > self._all_bytes:
            for session_id, feed in self.by_session.items():  # the longest silent first
                if not feed.listeners and session_id != kept_session_id:
                    break
            else:
                return
            del self.by_session[session_id]
            self.size_bytes -= feed.size_bytes

    def _notify(self, session_id: str, event: Event) -> None:
        for listener in self.listeners:
            listener(session_id, event)

    def close(self) -> None:
        """End every stream."""
        self.is_closed: bool = True
        for feed in self.by_session.values():
            feed.wake()

    async def listen(
        self,
        session_id: str,
        last_id: str,
        gone: asyncio.Future[None],
        may_go_on: Callable[[], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[bytes]:
        """Yield the encoded events for a listener until it disconnects or the server stops.

        Also ends when `may_go_on`, called at every beat, returns False, or when `is_over`, called whenever
        the feed wakes, returns True.
        """
        feed = await self.find_ready(session_id, last_id)
        number, is_gap = feed.after(last_id)
        feed.listeners += 1
        token_check = Ticker(self.beat_s)
        try:
            yield b"retry: 1000\n\n" + (GAP_PIECE if is_gap else b"")
            while not (self.is_closed or gone.done()):
                if token_check.is_due() and not may_go_on():
                    return
                is_last = is_over()
                pieces, number = feed.since(number)
                if pieces:
                    yield pieces
                if is_last:
                    return
                if not pieces and not await feed.wait(gone, self.beat_s):
                    yield b": beat\n\n"
        finally:
            feed.listeners -= 1
