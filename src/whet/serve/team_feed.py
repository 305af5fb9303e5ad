"""The events of a team's sessions. They are database rows, so a client misses none, whichever process it
reaches.

A process keeps the newest events of the sessions that have listeners here, and reads new ones when the
database reports the sessions with events. An event's id is its row's number.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from whet.contract.errors import StoreError
from whet.contract.events import Event, show_nothing
from whet.contract.texts import shared_decoder
from whet.serve.feed import EVENT_ID, GAP_PIECE, Feed, Feeds, is_too_much, piece_of
from whet.store.team import TeamDatabase
from whet.team.events import GAP, EventWriter

_NAME = "team"
MAX_READ = 5_000
MAX_TRACKED = 5_000
_AGAIN_S = 0.5
_event: msgspec.json.Decoder[Event] = shared_decoder(Event)
_POSITION = """
SELECT coalesce((SELECT max(id) FROM team_events WHERE session = ?),
  (SELECT coalesce(last_value, 0) FROM pg_sequences WHERE sequencename = 'team_events_id_seq'))
"""
_OLDEST = "SELECT min(id) FROM team_events"
_AFTER = """
SELECT e.id, e.session, e.turn, e.body FROM unnest($1::text[], $2::bigint[]) AS w (session, after)
JOIN team_events e ON e.session = w.session AND e.id > w.after ORDER BY e.id LIMIT $3
"""
Hear = Callable[[Event | None], None]


class EventRow(NamedTuple):
    """A stored event of a session; `turn` is the queue's id of its turn."""

    id: int
    session_id: str
    turn: str
    body: str

    @property
    def event(self) -> Event | None:
        """The event, or None if the row marks a gap."""
        return None if self.body == GAP else _event.decode(self.body)


class TeamFeed(Feed):
    """The newest events of one session: all events after `start`."""

    def __init__(self, start: int) -> None:
        super().__init__(_NAME, show_nothing)  # events are read as rows
        self.start: int = start
        self.newest: int = start
        self.size_bytes: int = 0
        self._ids: deque[int] = deque()

    @property
    def last_id(self) -> str:
        """The id of the newest event."""
        return f"{_NAME}-{self.newest}"

    def add_row(self, row: EventRow) -> None:
        """Keep an event that is newer than the others and wake the listeners."""
        self._ids.append(row.id)
        self._pieces.append(_piece(row))
        self.newest = row.id
        self.size_bytes += len(self._pieces[-1])
        while is_too_much(self._pieces, self.size_bytes):
            self.size_bytes -= len(self._pieces.popleft())
            self.start = self._ids.popleft()
        self.wake()

    def begin_at(self, start: int, rows: Sequence[EventRow]) -> None:
        """Add earlier events."""
        for row in reversed([row for row in rows if row.id <= self.start]):
            self._ids.appendleft(row.id)
            self._pieces.appendleft(_piece(row))
            self.size_bytes += len(self._pieces[0])
        self.start = min(start, self.start)

    def after(self, last_id: str) -> tuple[int, bool]:
        """Return the next number to send, and whether earlier events are missing. An empty id means from now
        on."""
        if not last_id:
            return self.newest, False
        number = _number_of(last_id)
        if number is None:
            return self.start, True
        return max(number, self.start), number < self.start

    def since(self, number: int) -> tuple[bytes, int]:
        """Return the events after `number` in the format of the stream, and the newest number."""
        gap = GAP_PIECE if number < self.start else b""
        first = bisect_right(self._ids, number)
        return gap + b"".join(self._pieces[at] for at in range(first, len(self._pieces))), self.newest


class TeamFeeds(Feeds):
    """The feeds of a team's sessions. Events of this process are sent to the other processes too."""

    size_bytes: int

    def __init__(self, database: TeamDatabase, beat_s: float = 15.0) -> None:
        super().__init__(_NAME, beat_s)
        self._database = database
        self._writer = EventWriter(database)
        self.read_to: dict[str, int] = {}
        self._newest = 0
        self._due: dict[str, None] = {}
        self.reading: asyncio.Task[None] | None = None
        self.followers: dict[str, tuple[str, int, Hear]] = {}

    async def last_id(self, session_id: str) -> str:
        """Return the id after which a session's further events come."""
        return f"{_NAME}-{await self.position(session_id)}"

    async def position(self, session_id: str) -> int:
        """Return the number after which a session's further events come."""
        row = await self._database.read(lambda db: db.execute(_POSITION, (session_id,)).fetchone())
        return row[0] if row else 0

    def add(self, session_id: str, event: Event) -> None:
        """Store an event of this process for all processes."""
        self._writer.enqueue(session_id, event)

    pass_on = add

    def follow(self, session_id: str, turn_id: str, after: int, hear: Hear) -> None:
        """Call `hear` with the events of one queued turn that come after a number."""
        self.followers[turn_id] = session_id, after, hear
        self.read_to[session_id] = min(self.read_to.get(session_id, after), after)
        self.handle_notification(session_id)

    def unfollow(self, turn_id: str) -> None:
        """Stop following a turn."""
        self.followers.pop(turn_id, None)

    def handle_notification(self, session_names: str) -> None:
        """Read the new events of the sessions that a notification names; "" means all sessions that matter
        here."""
        names: Iterable[str] = (
            session_names.split(" ") if session_names else (*self.read_to, *self.by_session)
        )
        self._due.update(dict.fromkeys(names))
        if self.reading is None and self._due:
            self.reading = asyncio.create_task(self._read_all())

    async def aclose(self) -> None:
        """Stop reading and write the pending events."""
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait((self.reading,))
        await self._writer.drain()

    async def find_ready(self, session_id: str, last_id: str) -> TeamFeed:
        """Return a session's feed with the events after `last_id`, as far as they are kept."""
        number = _number_of(last_id)
        feed = self.by_session.get(session_id)
        if isinstance(feed, TeamFeed) and (number is None or number >= feed.start):
            return feed
        position = await self.position(session_id)
        start = position
        if number is not None and number < position:
            row = await self._database.read(lambda db: db.execute(_OLDEST).fetchone())
            oldest = (row[0] if row else None) or position + 1
            start = max(number, oldest - 1)
        rows = await self._read_rows({session_id: start})
        feed = self.by_session.get(session_id)
        if not isinstance(feed, TeamFeed):  # no other task has created it meanwhile
            feed = self.by_session[session_id] = TeamFeed(start)
            for row in rows:
                feed.add_row(row)
            self.size_bytes += feed.size_bytes
        else:
            before = feed.size_bytes
            feed.begin_at(start, rows)
            self.size_bytes += feed.size_bytes - before
        self.read_to.setdefault(session_id, feed.newest)
        self._make_room(session_id)
        self.handle_notification(session_id)
        return feed

    async def _read_all(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                try:
                    await self._read_due(due)
                except StoreError:  # try the same sessions again
                    self._due.update(due)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self.reading = None

    async def _read_due(self, due: Iterable[str]) -> None:
        mine = {session_id for session_id, _, _ in self.followers.values()} | self.by_session.keys()
        positions = {
            name: self.read_to.get(name, self._newest) for name in due if self.listeners or name in mine
        }
        if not positions:
            return
        rows = await self._read_rows(positions)
        for row in rows:
            self._deliver(row)
        if len(rows) == MAX_READ:
            self._due.update(dict.fromkeys(positions))
        if len(self.read_to) > MAX_TRACKED:
            self.read_to = {name: at for name, at in self.read_to.items() if name in mine}

    async def _read_rows(self, positions: dict[str, int]) -> list[EventRow]:
        values = [*positions], [*positions.values()], MAX_READ
        rows = await asyncio.to_thread(self._database.run, lambda db: db.execute(_AFTER, values).fetchall())  # pyright: ignore[reportArgumentType] a team's database takes lists
        return [EventRow(*row) for row in rows]

    def _deliver(self, row: EventRow) -> None:
        """Pass a row to every follower and feed that has not received it."""
        name, is_new = row.session_id, row.id > self.read_to.get(row.session_id, 0)
        if (follower := self.followers.get(row.turn)) is not None and row.id > follower[1]:
            self.followers[row.turn] = (name, row.id, follower[2])
            follower[2](row.event)
        feed = self.by_session.get(name)
        if isinstance(feed, TeamFeed) and row.id > feed.newest:
            before = feed.size_bytes
            feed.add_row(row)
            self.size_bytes += feed.size_bytes - before
            self.by_session.move_to_end(name)
        if is_new:
            self.read_to[name], self._newest = row.id, max(self._newest, row.id)
            if self.listeners and (event := row.event) is not None:
                self._notify(name, event)


def _piece(row: EventRow) -> bytes:
    event = row.event
    name = "gap" if event is None else str(event.__struct_config__.tag)
    return piece_of(f"{_NAME}-{row.id}", name, row.body.encode())


def _number_of(last_id: str) -> int | None:
    match = EVENT_ID.fullmatch(last_id)
    return int(match[2]) if match is not None and match[1] == _NAME else None
