"""Write the events of turns as numbered rows, which every process can read.

A process writes all new events of its turns at most every 50 ms, in one statement with one notification.
Pieces of one text within that time become one row. Rows are kept for an hour. Events of a worker whose turn
was taken over are dropped. A reader that continues a session from a number misses nothing, because a lock
makes the numbers follow the order of the commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from whet.contract.errors import StoreError
from whet.contract.events import EndReason, Event, ReasoningDelta, TextDelta, ToolProgress, TurnEnd
from whet.contract.messages import Usage
from whet.contract.texts import encode_output
from whet.store import sessions, turns
from whet.store.team import TeamDatabase
from whet.team.notices import MAX_PAYLOAD_BYTES, NEWS, WAITING

PACE_S = 0.05
GAP = '{"type":"gap"}'
"""An event in place of missing ones. Its reader must read the stored transcript."""
_KEPT = "1 hour"
_AGAIN_S = 0.5
_MAX_WAITING = 20_000
_encode = msgspec.json.Encoder().encode

_EVENT_LOCK = 0x45564E54


def _lock_sql(session: str) -> str:
    return f"pg_advisory_xact_lock(hashtextextended({session}, {_EVENT_LOCK}))"


# The locks are taken in the order of the session ids, so that two statements never wait for each other.
_PUT = f"""
WITH locked AS MATERIALIZED (
  SELECT count({_lock_sql("session")}) AS count
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
locked AS MATERIALIZED (SELECT id, {_lock_sql("session")} FROM found)
UPDATE team_turns t SET told = 1 FROM locked WHERE t.id = locked.id AND t.told = 0
RETURNING t.id, t.session, t.turn, t.reason, t.error
"""


class TurnMark(msgspec.Struct, frozen=True):
    """The queued turn that an event belongs to, and the number of its attempt. `id` is empty if there is no
    such turn."""

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

    def enqueue(self, session_id: str, event: Event | None, mark: TurnMark = NO_TURN) -> None:
        """Queue an event to be written within `pace_s`. None stands for missing events."""
        last = self._last.get(session_id)
        merged = None if last is None or last.mark != mark else _merge_pieces(last.event, event)
        if last is not None and merged is not None:
            last.event = merged
        elif len(self._waiting) < _MAX_WAITING or not isinstance(event, _PIECES):
            self._last[session_id] = pending = _Waiting(session_id, mark, event)
            self._waiting.append(pending)
        elif last is None or last.event is not None:  # too many wait, so pieces of text are dropped
            self._last[session_id] = pending = _Waiting(session_id, mark, None)
            self._waiting.append(pending)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    async def drain(self) -> None:
        """Wait until all queued events are written."""
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
        values = _to_columns(rows)
        first, is_retry = (values[0][0], values[1][0], values[3][0], self._newest), False

        def insert_rows(connection: apsw.Connection) -> int:
            """Write all rows, unless the last attempt stored them and only its answer was lost."""
            if is_retry and connection.execute(_IS_THERE, first).fetchone() is not None:
                return self._newest
            return connection.execute(_PUT, values).fetchall()[0][0]

        while True:
            try:
                self._newest = max(self._newest, await asyncio.to_thread(self._database.run, insert_rows))
            except StoreError:  # if the database stays unavailable, the turns themselves fail
                is_retry = True
                await asyncio.sleep(_AGAIN_S)
            else:
                return


def _to_columns(rows: Sequence[_Waiting]) -> tuple[Any, ...]:
    ended = [row.mark for row in rows if isinstance(row.event, TurnEnd) and row.mark.id]
    names = " ".join(dict.fromkeys(row.session_id for row in rows))
    return (
        [row.session_id for row in rows],
        [row.mark.id for row in rows],
        [row.mark.attempts for row in rows],
        [GAP if row.event is None else encode_output(row.event).decode() for row in rows],
        [mark.id for mark in ended],
        [mark.attempts for mark in ended],
        names if len(names) <= MAX_PAYLOAD_BYTES else "",
    )


def _merge_pieces(last: Event | None, event: Event | None) -> Event | None:
    """Merge two pieces of one text. Returns None if they do not belong together."""
    if isinstance(event, TextDelta | ReasoningDelta) and isinstance(last, event.__class__):
        return event.__class__(last.text + event.text)
    if isinstance(last, ToolProgress) and isinstance(event, ToolProgress) and last.call_id == event.call_id:
        return ToolProgress(last.call_id, last.text + event.text)
    return None


def write_end(
    connection: apsw.Connection,
    turn: tuple[str, str],
    reason: EndReason,
    text: str = "",
    error: str = "",
    hint: str = "",
) -> None:
    """Write the end event of a turn in the caller's transaction, after all earlier events of its session.
    `turn` is the turn's id and its session's."""
    turn_id, session_id = turn
    end = TurnEnd(session_id, "", reason, text, 0, Usage(), 0.0, error=error, hint=hint)
    connection.execute(f"SELECT {_lock_sql('?')}", (session_id,))
    connection.execute(
        "INSERT INTO team_events (session, turn, body) VALUES (?, ?, ?)",
        (session_id, turn_id, _encode(end).decode()),
    )
    connection.execute("SELECT pg_notify(?, ?)", (NEWS, session_id))


def write_lost_ends(connection: apsw.Connection) -> None:
    """Write the end events of turns whose worker died before it could, and delete old events."""
    for turn_id, session_id, number, reason, error in connection.execute(_LEFT).fetchall():
        key = sessions.key_of(connection, session_id) if number else 0
        text = turns.read_outcome(connection, key, number)[2] if number else ""
        write_end(connection, (turn_id, session_id), reason, text, error)
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))
    connection.execute(_FORGET)
