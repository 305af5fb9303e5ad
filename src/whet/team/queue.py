"""The queue of turns in the team's database: asking for, taking and ending turns.

A turn is queued in the caller's own transaction, and ended in the one that stores the turn's end. The
oldest turn of a session is taken first, and no other while it is open. A worker that is silent for the
length of a lease loses its turns. All times are the database's.
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
    """Options of a turn: its images, how long its questions wait for an answer in seconds (0: no one can
    answer), whether the model may ask in words, and the parent trace."""

    images: tuple[ImagePart, ...] = ()
    answer_wait_s: float = 0.0
    may_clarify: bool = False
    trace: str = ""


class AskedTurn(msgspec.Struct, frozen=True):
    """A turn to queue: a message for a session."""

    id: str
    session_id: str
    text: str
    options: TurnOptions = TurnOptions()


class TakenTurn(msgspec.Struct, frozen=True):
    """A turn that this worker has taken.

    `turn` is its number in the session once the message is stored, otherwise 0. `attempts` counts the
    workers that took it. `is_cancelled` is set if it has been cancelled.
    """

    id: str
    session_id: str
    text: str
    turn: int
    attempts: int
    is_cancelled: bool
    options: TurnOptions

    @property
    def mark(self) -> TurnMark:
        """The mark of its events."""
        return TurnMark(self.id, self.attempts)


class EndedTurn(msgspec.Struct, frozen=True):
    """The result of a turn. `reason` is empty until it has ended."""

    id: str
    session_id: str
    turn: int
    reason: str
    error: str
    attempts: int
    owner: str


class TurnQueue(Protocol):
    """The interface of workers and the API to a queue of turns. Another engine can replace the row locks.

    It must be in the same database as the transcripts, because turns are queued and ended in their
    transactions. It maintains the rows of `team_turns`, from which `outcome`, `orders.py` and `events.py`
    read.
    """

    database: TeamDatabase

    def ask(self, connection: apsw.Connection, new_turn: AskedTurn) -> None:
        """Queue a turn in the caller's transaction."""
        ...

    def take(self, owner: str, most: int, missing: Sequence[str] = ()) -> list[TakenTurn]:
        """Take turns that wait or whose worker is silent, the oldest first. Turns with a workspace in
        `missing` are skipped."""
        ...

    def give_back(self, connection: apsw.Connection, taken_turn: TakenTurn, why: str) -> None:
        """Return a turn that has not begun here to the queue, for the reason `why`."""
        ...

    def keep(self, taken_turns: Sequence[TakenTurn]) -> None:
        """Renew the leases of these turns."""
        ...

    def begin(self, connection: apsw.Connection, taken_turn: TakenTurn) -> None:
        """Record that the message is stored, in the transaction that stores it."""
        ...

    def end(self, connection: apsw.Connection, taken_turn: TakenTurn, reason: str, error: str) -> None:
        """Record the result of a turn, in the transaction that ends it."""
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
    """The queue in the team's database itself: rows taken with SKIP LOCKED, and notifications."""

    def __init__(self, database: TeamDatabase) -> None:
        self.database: TeamDatabase = database
        self._listening: PostgresConnection | None = None

    def ask(self, connection: apsw.Connection, new_turn: AskedTurn) -> None:
        """Queue a turn in the caller's transaction."""
        connection.execute(
            "INSERT INTO team_turns (id, session, body, options) VALUES (?, ?, ?, ?)",
            (new_turn.id, new_turn.session_id, new_turn.text, _encode(new_turn.options).decode()),
        )
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))

    def take(self, owner: str, most: int, missing: Sequence[str] = ()) -> list[TakenTurn]:
        """Take turns that wait or whose worker is silent, the oldest first. Turns with a workspace in
        `missing` are skipped."""
        values = owner, most, json.dumps(missing)
        return self.database.run(lambda db: [_read_row(row) for row in db.execute(_TAKE, values).fetchall()])

    def give_back(self, connection: apsw.Connection, taken_turn: TakenTurn, why: str) -> None:
        """Return a turn that has not begun here to the queue, for the reason `why`."""
        connection.execute(
            "UPDATE team_turns SET state = 'waiting', owner = '', attempts = attempts - 1, error = ?"
            " WHERE id = ? AND attempts = ? AND state = 'running'",
            (why, taken_turn.id, taken_turn.attempts),
        )
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))

    def keep(self, taken_turns: Sequence[TakenTurn]) -> None:
        """Renew the leases of these turns."""
        values = json.dumps([f"{taken_turn.id} {taken_turn.attempts}" for taken_turn in taken_turns])
        statement = (
            f"UPDATE team_turns SET lease_until = {_UNTIL} WHERE state = 'running'"
            " AND id || ' ' || attempts IN (SELECT value FROM json_each(?))"
        )
        self.database.run(lambda db: db.execute(statement, (values,)))

    def begin(self, connection: apsw.Connection, taken_turn: TakenTurn) -> None:
        """Record that the message is stored. Raises StoreBusy if another worker has taken the turn."""
        number = "SELECT max(t.number) FROM turns t JOIN sessions s ON s.key = t.session WHERE s.id = ?1"
        connection.execute(
            f"UPDATE team_turns SET turn = ({number})"
            " WHERE id = ?2 AND attempts = ?3 AND state = 'running' AND turn = 0",
            (taken_turn.session_id, taken_turn.id, taken_turn.attempts),
        )
        if not connection.changes():
            raise StoreBusy("another worker has taken this turn", hint="it goes on there")

    def end(self, connection: apsw.Connection, taken_turn: TakenTurn, reason: str, error: str) -> None:
        """Record the result of a turn.

        The caller has passed the session's fence, so it may end the turn: a worker whose lease ran out
        still owns the session until another worker takes it. Unread messages become turns of their own,
        unless the turn was cancelled.
        """
        if reason != "cancelled":
            connection.execute(_UNREAD, (taken_turn.id,))
        connection.execute("DELETE FROM team_said WHERE turn = ?", (taken_turn.id,))
        connection.execute("DELETE FROM team_questions WHERE turn = ?", (taken_turn.id,))
        connection.execute(
            "UPDATE team_turns SET state = 'done', ended = now(), reason = ?, error = ?"
            " WHERE id = ? AND state = 'running'",
            (reason, error, taken_turn.id),
        )
        connection.execute("SELECT pg_notify(?, ?)", (ENDED, taken_turn.id))

    def hear(self, channel: str, timeout_s: float) -> str | None:
        """Wait for a notification and return its payload.

        Returns None after `timeout_s` or if the connection was lost; the caller must then look itself.
        """
        try:
            connection = self._listening or self.database.connected()
            if self._listening is None:
                self._listening = connection
                connection.raw.execute(f"LISTEN {channel}".encode())
                return ""  # check at once for events from before the connection
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
    """Return the result of a turn, or None if the turn is unknown."""
    row: tuple[Any, ...] | None = database.read_now(
        lambda db: db.execute(
            "SELECT id, session, turn, reason, error, attempts, owner FROM team_turns WHERE id = ?",
            (turn_id,),
        ).fetchone()
    )
    return None if row is None else EndedTurn(*row)


def _read_row(row: tuple[Any, ...]) -> TakenTurn:
    id_, session_id, text, turn, attempts, is_cancelled, options = row
    turn_options = from_json(options, TurnOptions)
    return TakenTurn(id_, session_id, text, turn, attempts, bool(is_cancelled), turn_options)
