"""Turns that were asked for, in the team's database: who may take one, who has it, what came of it.

A turn is asked for in the caller's own transaction, and ended in the one that stores the turn's end. Of one
session the oldest is taken first, and no other while it is open. A worker that is silent for a lease loses
what it has taken. All times are the database's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import apsw
import msgspec
import psycopg

from whet.contract.errors import StoreBusy
from whet.contract.messages import ImagePart
from whet.contract.texts import from_json
from whet.postgres.connection import PostgresConnection
from whet.store.team import TeamDatabase
from whet.team.events import TurnMark
from whet.team.notices import ENDED, WAITING

_UNTIL = "now() + current_setting('whet.lease_s')::float8 * interval '1 s'"


class TurnOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What else belongs to a turn: images, how long its questions wait for somebody's answer (0: nobody is
    there), whether the model may ask in words, and what its trace is a part of."""

    images: tuple[ImagePart, ...] = ()
    answer_wait_s: float = 0.0
    may_clarify: bool = False
    trace: str = ""


class AskedTurn(msgspec.Struct, frozen=True):
    """What is said in which session."""

    id: str
    session_id: str
    text: str
    options: TurnOptions = TurnOptions()


class TakenTurn(msgspec.Struct, frozen=True):
    """A turn that this worker has: `turn` is its number in the session once what was said is stored, else 0;
    `attempts` counts the workers that took it; `is_cancelled`: somebody has called it off."""

    id: str
    session_id: str
    text: str
    turn: int
    attempts: int
    is_cancelled: bool
    options: TurnOptions

    @property
    def mark(self) -> TurnMark:
        """What its events are known by."""
        return TurnMark(self.id, self.attempts)


class EndedTurn(msgspec.Struct, frozen=True):
    """What came of a turn; `reason` is empty while it has not ended."""

    id: str
    session_id: str
    turn: int
    reason: str
    error: str
    attempts: int
    owner: str


class TurnQueue(Protocol):
    """What workers and the API call to share turns out; another engine can do it in place of the rows' locks.

    It lies where the transcripts do, for a turn is asked for and ended in their transactions. What people are
    told of turns (`outcome`, `orders.py`, `events.py`) is read from the rows of `team_turns`, which it keeps.
    """

    database: TeamDatabase

    def ask(self, connection: apsw.Connection, asked: AskedTurn) -> None:
        """Queue a turn in the caller's transaction."""
        ...

    def take(self, owner: str, most: int, missing: Sequence[str] = ()) -> list[TakenTurn]:
        """Take turns that wait or whose worker is silent, the oldest first; none that work in a folder of
        `missing`."""
        ...

    def give_back(self, connection: apsw.Connection, taken: TakenTurn, why: str) -> None:
        """Let another worker have a turn that was not begun here, for the reason `why`."""
        ...

    def keep(self, taken: Sequence[TakenTurn]) -> None:
        """Say that one still works on these."""
        ...

    def begin(self, connection: apsw.Connection, taken: TakenTurn) -> None:
        """Note, in the transaction that stores what was said, that it is stored."""
        ...

    def end(self, connection: apsw.Connection, taken: TakenTurn, reason: str, error: str) -> None:
        """Note what came of it, in the transaction that ends the turn."""
        ...


_TAKE = f"""
UPDATE team_turns SET state = 'running', owner = ?1, attempts = attempts + 1, lease_until = {_UNTIL}
WHERE id IN (
  SELECT t.id FROM team_turns t JOIN sessions s ON s.id = t.session
  WHERE s.workspace NOT IN (SELECT value FROM json_each(?3))
  AND (state = 'waiting' OR (state = 'running' AND lease_until < now()))
  AND NOT EXISTS (SELECT 1 FROM team_turns o WHERE o.session = t.session AND o.number < t.number
                  AND o.told = 0 AND (o.state <> 'done' OR o.lease_until > now()))
  ORDER BY t.number LIMIT ?2 FOR UPDATE OF t SKIP LOCKED)
RETURNING id, session, body, turn, attempts, cancelled, options
"""
_UNREAD = """
INSERT INTO team_turns (id, session, body, options)
SELECT s.turn || '.' || s.id, s.session, s.body, t.options
FROM team_said s JOIN team_turns t ON t.id = s.turn WHERE s.turn = ? ORDER BY s.id
"""
_encode = msgspec.json.Encoder().encode


class DatabaseQueue:
    """The queue in the team's database itself: rows taken with SKIP LOCKED, notifications to wait for."""

    def __init__(self, database: TeamDatabase) -> None:
        self.database: TeamDatabase = database
        self._listening: PostgresConnection | None = None

    def ask(self, connection: apsw.Connection, asked: AskedTurn) -> None:
        """Queue a turn in the caller's transaction."""
        connection.execute(
            "INSERT INTO team_turns (id, session, body, options) VALUES (?, ?, ?, ?)",
            (asked.id, asked.session_id, asked.text, _encode(asked.options).decode()),
        )
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))

    def take(self, owner: str, most: int, missing: Sequence[str] = ()) -> list[TakenTurn]:
        """Take turns that wait or whose worker is silent, the oldest first; none that work in a folder of
        `missing`."""
        values = owner, most, json.dumps(missing)
        return self.database.run(lambda db: [_taken(row) for row in db.execute(_TAKE, values).fetchall()])

    def give_back(self, connection: apsw.Connection, taken: TakenTurn, why: str) -> None:
        """Let another worker have a turn that was not begun here, for the reason `why`."""
        connection.execute(
            "UPDATE team_turns SET state = 'waiting', owner = '', attempts = attempts - 1, error = ?"
            " WHERE id = ? AND attempts = ? AND state = 'running'",
            (why, taken.id, taken.attempts),
        )
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))

    def keep(self, taken: Sequence[TakenTurn]) -> None:
        """Say that one still works on these."""
        values = json.dumps([f"{one.id} {one.attempts}" for one in taken])
        kept = (
            f"UPDATE team_turns SET lease_until = {_UNTIL} WHERE state = 'running'"
            " AND id || ' ' || attempts IN (SELECT value FROM json_each(?))"
        )
        self.database.run(lambda db: db.execute(kept, (values,)))

    def begin(self, connection: apsw.Connection, taken: TakenTurn) -> None:
        """Note that what was said is stored. Raises StoreBusy where another worker has the turn."""
        number = "SELECT max(t.number) FROM turns t JOIN sessions s ON s.key = t.session WHERE s.id = ?1"
        connection.execute(
            f"UPDATE team_turns SET turn = ({number})"
            " WHERE id = ?2 AND attempts = ?3 AND state = 'running' AND turn = 0",
            (taken.session_id, taken.id, taken.attempts),
        )
        if not connection.changes():
            raise StoreBusy("another worker has taken this turn", hint="it goes on there")

    def end(self, connection: apsw.Connection, taken: TakenTurn, reason: str, error: str) -> None:
        """Note what came of it. Whoever ends the turn may do so, for the session's fence has let him: one who
        was late with his beat still has the session where nobody has taken that. What was said to it and not
        read becomes a turn of its own, unless it was called off."""
        if reason != "cancelled":
            connection.execute(_UNREAD, (taken.id,))
        connection.execute("DELETE FROM team_said WHERE turn = ?", (taken.id,))
        connection.execute("DELETE FROM team_questions WHERE turn = ?", (taken.id,))
        connection.execute(
            "UPDATE team_turns SET state = 'done', ended = now(), reason = ?, error = ?"
            " WHERE id = ? AND state = 'running'",
            (reason, error, taken.id),
        )
        connection.execute("SELECT pg_notify(?, ?)", (ENDED, taken.id))

    def hear(self, channel: str, timeout_s: float) -> str | None:
        """Wait for a notification and give what it says; None after `timeout_s` or where the connection was
        lost, after which one looks for oneself."""
        try:
            connection = self._listening or self.database.connected()
            if self._listening is None:
                self._listening = connection
                connection.raw.execute(f"LISTEN {channel}".encode())
                return ""  # what came before that is looked for at once
            for note in connection.raw.notifies(timeout=timeout_s, stop_after=1):
                return note.payload
        except psycopg.Error:
            self.close()
        return None

    def close(self) -> None:
        """Stop listening."""
        connection, self._listening = self._listening, None
        if connection is not None:
            connection.raw.close()


def outcome(database: TeamDatabase, turn_id: str) -> EndedTurn | None:
    """Give what came of a turn, None for one that is not known."""
    row: tuple[Any, ...] | None = database.read_now(
        lambda db: db.execute(
            "SELECT id, session, turn, reason, error, attempts, owner FROM team_turns WHERE id = ?",
            (turn_id,),
        ).fetchone()
    )
    return None if row is None else EndedTurn(*row)


def _taken(row: tuple[Any, ...]) -> TakenTurn:
    id_, session_id, text, turn, attempts, is_cancelled, options = row
    found = from_json(options, TurnOptions)
    return TakenTurn(id_, session_id, text, turn, attempts, bool(is_cancelled), found)
