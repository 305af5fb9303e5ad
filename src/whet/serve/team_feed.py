"""The feeds of a team's sessions. Events are database rows, so a client can read them from any process.

A process keeps the newest events of the sessions that have listeners here, and reads new ones when the
database sends a notification. An event's id contains its row's number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import apsw
import msgspec

from whet.contract.errors import StoreError
from whet.contract.events import Event
from whet.contract.texts import shared_decoder
from whet.log import mask_known
from whet.serve.feed import Feed, FeedEvent, Feeds, name_event, number_of
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
_EVENTS_AFTER = """
SELECT e.id, e.session, e.turn, e.body FROM unnest($1::text[], $2::bigint[]) AS w (session, after)
JOIN team_events e ON e.session = w.session AND e.id > w.after ORDER BY e.id LIMIT $3
"""
OnEvent = Callable[[Event | None], None]


class EventRow(NamedTuple):
    """A stored event of a session. `turn` is the id of its turn in the queue."""

    id: int
    session_id: str
    turn: str
    body: str

    @property
    def event(self) -> Event | None:
        """The event, or None if the row marks a gap."""
        return None if self.body == GAP else _event.decode(self.body)

    @property
    def feed_event(self) -> FeedEvent:
        """The row as an event of its session's feed."""
        event = self.event
        return FeedEvent(
            self.id, "gap" if event is None else name_event(event), mask_known(self.body).encode()
        )


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
        self.followers: dict[str, tuple[str, int, OnEvent]] = {}

    async def last_id(self, session_id: str) -> str:
        """Return the id of a session's newest event, or an id before all its events."""
        return f"{_NAME}-{await self.position(session_id)}"

    async def position(self, session_id: str) -> int:
        """Return the number of a session's newest event, or a number before all its events."""
        row = await self._database.read(lambda db: db.execute(_POSITION, (session_id,)).fetchone())
        return row[0] if row else 0

    def add(self, session_id: str, event: Event) -> None:
        """Store an event of this process for all processes."""
        self._writer.enqueue(session_id, event)

    pass_on = add

    def follow(self, session_id: str, turn_id: str, after: int, on_event: OnEvent) -> None:
        """Call `on_event` with the events of a queued turn after the number `after`, until `unfollow`."""
        self.followers[turn_id] = session_id, after, on_event
        self.read_to[session_id] = min(self.read_to.get(session_id, after), after)
        self.handle_notification(session_id)

    def unfollow(self, turn_id: str) -> None:
        """Stop following a turn."""
        self.followers.pop(turn_id, None)

    def handle_notification(self, session_names: str) -> None:
        """Read the new events of the sessions that a notification names. "" stands for all sessions of which
        this process has a feed or a follower."""
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

    async def find_ready(self, session_id: str, last_id: str) -> Feed:
        """Return a session's feed, with those events after `last_id` that are still stored."""
        number = number_of(last_id, _NAME)
        feed = self.by_session.get(session_id)
        if feed is not None and (number is None or number >= feed.start):
            return feed
        position = await self.position(session_id)
        start = position
        if number is not None and number < position:
            row = await self._database.read(lambda db: db.execute(_OLDEST).fetchone())
            oldest = (row[0] if row else None) or position + 1
            start = max(number, oldest - 1)
        events = [row.feed_event for row in await self._read_rows({session_id: start})]
        feed = self.by_session.get(session_id)
        if feed is None:  # no other task has created it meanwhile
            feed = self.by_session[session_id] = Feed(_NAME, start)
            for event in events:
                self._extend(session_id, event)
        else:
            before = feed.size_bytes
            feed.begin_at(start, events)
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
        relevant = {session_id for session_id, _, _ in self.followers.values()} | self.by_session.keys()
        positions = {
            name: self.read_to.get(name, self._newest) for name in due if self.listeners or name in relevant
        }
        if not positions:
            return
        rows = await self._read_rows(positions)
        for row in rows:
            self._deliver(row)
        if len(rows) == MAX_READ:
            self._due.update(dict.fromkeys(positions))
        if len(self.read_to) > MAX_TRACKED:
            self.read_to = {name: at for name, at in self.read_to.items() if name in relevant}

    async def _read_rows(self, positions: dict[str, int]) -> list[EventRow]:
        values = [*positions], [*positions.values()], MAX_READ

        def read(db: apsw.Connection) -> list[EventRow]:
            cursor = db.execute(_EVENTS_AFTER, values)  # pyright: ignore[reportArgumentType] a team's database takes lists
            return [EventRow(*row) for row in cursor.fetchall()]

        return await asyncio.to_thread(self._database.run, read)

    def _deliver(self, row: EventRow) -> None:
        """Pass a row to every follower and feed that has not received it."""
        name, is_new = row.session_id, row.id > self.read_to.get(row.session_id, 0)
        if (follower := self.followers.get(row.turn)) is not None and row.id > follower[1]:
            self.followers[row.turn] = (name, row.id, follower[2])
            follower[2](row.event)
        feed = self.by_session.get(name)
        if feed is not None and row.id > feed.newest:
            self._extend(name, row.feed_event)
        if is_new:
            self.read_to[name], self._newest = row.id, max(self._newest, row.id)
            if self.listeners and (event := row.event) is not None:
                self._notify(name, event)
