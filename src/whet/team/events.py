"""What happens in turns, as numbered rows that every process can read; and the writer of them.

A process writes at most every 50 ms, all that has happened in its turns by then: one statement, one
notification. Pieces of a text that come in one such span are one row. The rows are kept for an hour; what a
worker writes of a turn that another has taken over is left out. Who reads a session on from a number misses
nothing: a lock has its rows numbered in the order in which they are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from whet.contract.errors import StoreError
from whet.contract.events import Event, ReasoningDelta, TextDelta, ToolProgress, TurnEnd
from whet.contract.messages import Usage
from whet.postgres.connection import PostgresConnection
from whet.store import sessions, turns
from whet.store.team import TeamDatabase
from whet.team.notices import NEWS, PAYLOAD_BYTES_MAX, WAITING

PACE_S = 0.05
GAP = '{"type":"gap"}'
"""An event that says: something is missing here, read what is stored."""
_KEPT = "1 hour"
_AGAIN_S = 0.5
_MOST_WAITING = 20_000
_encode = msgspec.json.Encoder().encode

_EVENT_LOCK = 0x45564E54


def _locked(session: str) -> str:
    return f"pg_advisory_xact_lock(hashtextextended({session}, {_EVENT_LOCK}))"


# The locks are taken in the sessions' order, so that no two statements wait for each other.
_PUT = f"""
WITH locked AS MATERIALIZED (
  SELECT count({_locked("session")}) AS count
  FROM (SELECT DISTINCT unnest($1::text[]) AS session ORDER BY 1) AS s),
given AS (
  SELECT g.* FROM locked, unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
  WITH ORDINALITY AS g (session, turn, attempts, body, place) WHERE locked.count > 0),
put AS (
  INSERT INTO team_events (session, turn, body)
  SELECT g.session, g.turn, g.body FROM given g LEFT JOIN team_turns t ON t.id = g.turn
  WHERE g.turn = '' OR t.attempts = g.attempts ORDER BY g.place RETURNING id),
told AS (
  UPDATE team_turns t SET told = 1 FROM unnest($5::text[], $6::bigint[]) AS e (id, attempts)
  WHERE t.id = e.id AND t.attempts = e.attempts AND t.state = 'done' RETURNING 1)
SELECT coalesce((SELECT max(id) FROM put), 0), pg_notify('{NEWS}', $7),
  (SELECT pg_notify('{WAITING}', '') FROM told LIMIT 1)
"""
_PIECES = TextDelta | ReasoningDelta | ToolProgress
_IS_THERE = "SELECT 1 FROM team_events WHERE session = ? AND turn = ? AND body = ? AND id > ?"
_FORGET = (
    "DELETE FROM team_events WHERE id <="
    f" (SELECT max(id) FROM team_events WHERE at < now() - interval '{_KEPT}')"
)
_LEFT = f"""
WITH found AS MATERIALIZED (
  SELECT id, session FROM team_turns
  WHERE told = 0 AND state = 'done' AND lease_until < now() ORDER BY session),
locked AS MATERIALIZED (SELECT id, {_locked("session")} FROM found)
UPDATE team_turns t SET told = 1 FROM locked WHERE t.id = locked.id AND t.told = 0
RETURNING t.id, t.session, t.turn, t.reason, t.error
"""


class TurnMark(msgspec.Struct, frozen=True):
    """Which turn of the queue an event is of, and under which number the worker has it; empty for none."""

    id: str = ""
    attempts: int = 0


NO_TURN = TurnMark()


class _Waiting(msgspec.Struct):
    session_id: str
    mark: TurnMark
    event: Event | None


class EventWriter:
    """Writes the events of one process. Used on one event loop."""

    def __init__(self, database: TeamDatabase, pace_s: float = PACE_S) -> None:
        self._database = database
        self._pace_s = pace_s
        self._waiting: list[_Waiting] = []
        self._last: dict[str, _Waiting] = {}
        self._task: asyncio.Task[None] | None = None
        self._newest = 0

    def tell(self, session_id: str, event: Event | None, mark: TurnMark = NO_TURN) -> None:
        """Have an event be written soon; None says that something is missing."""
        last = self._last.get(session_id)
        joined = None if last is None or last.mark != mark else _joined(last.event, event)
        if last is not None and joined is not None:
            last.event = joined
        elif len(self._waiting) < _MOST_WAITING or not isinstance(event, _PIECES):
            self._last[session_id] = one = _Waiting(session_id, mark, event)
            self._waiting.append(one)
        elif last is None or last.event is not None:  # the database is away: the pieces are not kept
            self._last[session_id] = one = _Waiting(session_id, mark, None)
            self._waiting.append(one)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    async def drain(self) -> None:
        """Wait until everything told so far is written."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                rows, self._waiting = self._waiting, []
                self._last.clear()
                await self._write(rows)
                await asyncio.sleep(self._pace_s)
        finally:
            self._task = None

    async def _write(self, rows: Sequence[_Waiting]) -> None:
        values = _values(rows)
        first, is_again = (values[0][0], values[1][0], values[3][0], self._newest), False

        def put(connection: apsw.Connection) -> int:
            """Write all of them, unless the answer to that was lost: the first is there then."""
            if is_again and connection.execute(_IS_THERE, first).fetchone() is not None:
                return self._newest
            return in_its_words(connection, _PUT, values)[0][0]

        while True:
            try:
                self._newest = max(self._newest, await asyncio.to_thread(self._database.run, put))
            except StoreError:  # the turns themselves fail where it stays away
                is_again = True
                await asyncio.sleep(_AGAIN_S)
            else:
                return


def in_its_words(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a statement that is written for PostgreSQL alone, and may be given lists; give its rows."""
    assert isinstance(connection, PostgresConnection)  # a team's database has no others
    return connection.raw.execute(sql.encode(), values).fetchall()


def _values(rows: Sequence[_Waiting]) -> tuple[Any, ...]:
    ended = [one.mark for one in rows if isinstance(one.event, TurnEnd) and one.mark.id]
    names = " ".join(dict.fromkeys(one.session_id for one in rows))
    return (
        [one.session_id for one in rows],
        [one.mark.id for one in rows],
        [one.mark.attempts for one in rows],
        [GAP if one.event is None else _encode(one.event).decode() for one in rows],
        [mark.id for mark in ended],
        [mark.attempts for mark in ended],
        names if len(names) <= PAYLOAD_BYTES_MAX else "",
    )


def _joined(last: Event | None, event: Event | None) -> Event | None:
    """Give two pieces of one text as one; None where they are not of one."""
    if isinstance(last, TextDelta) and isinstance(event, TextDelta):
        return TextDelta(last.text + event.text)
    if isinstance(last, ReasoningDelta) and isinstance(event, ReasoningDelta):
        return ReasoningDelta(last.text + event.text)
    if isinstance(last, ToolProgress) and isinstance(event, ToolProgress) and last.call_id == event.call_id:
        return ToolProgress(last.call_id, last.text + event.text)
    return None


def put_end(connection: apsw.Connection, turn_id: str, end: TurnEnd) -> None:
    """Write a turn's end in the caller's transaction, after whatever was told of it."""
    connection.execute(f"SELECT {_locked('?')}", (end.session_id,))
    connection.execute(
        "INSERT INTO team_events (session, turn, body) VALUES (?, ?, ?)",
        (end.session_id, turn_id, _encode(end).decode()),
    )
    connection.execute("SELECT pg_notify(?, ?)", (NEWS, end.session_id))


def tell_left(connection: apsw.Connection) -> None:
    """Write the ends of turns whose worker died between a turn's end and telling it; forget old events."""
    for turn_id, session_id, number, reason, error in connection.execute(_LEFT).fetchall():
        text = turns.outcome(connection, sessions.key_of(connection, session_id), number)[2] if number else ""
        put_end(connection, turn_id, TurnEnd(session_id, "", reason, text, 0, Usage(), 0.0, error=error))
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))
    connection.execute(_FORGET)
