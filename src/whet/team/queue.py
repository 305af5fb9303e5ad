"""The queue of turns in the team's database: queue, take and end turns.

A turn is queued in the caller's own transaction, and ended in the one that stores its end. The turns of a
session are taken one after the other, the oldest first; people are served in turn (`taking.py`). A worker
that is silent for the length of a lease loses its turns. All times are the database's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

from whet.contract.messages import ImagePart
from whet.contract.texts import from_json
from whet.postgres.connection import PostgresConnection
from whet.sqlite.lane import ScopedWrite
from whet.store.team import TeamDatabase
from whet.team.events import TurnMark
from whet.team.notices import ENDED, WAITING
from whet.team.taking import KEEP, TAKE

MAX_WAITING = 1000
"""How many turns of one person may wait."""


class TurnOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of a turn. `answer_wait_s`: how long its questions wait for an answer (0: nobody can answer).
    `may_clarify`: the model may ask questions in words. `trace`: the parent trace."""

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

    `turn` is its number in the session, or 0 until its message is stored. `attempts` counts the workers that
    took it. `workspace` is its session's.
    """

    id: str
    session_id: str
    text: str
    turn: int
    attempts: int
    is_cancelled: bool
    options: TurnOptions
    workspace: str

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


_ASK = "SELECT whet_ask_turn(?, ?, ?, ?, ?, ?, ?)"
CLOSE = "SELECT * FROM whet_close_turn(?, ?, ?, ?, ?)"
"""Ends a turn. The values are its id, state, reason and error, and the channel of the notification."""
_encode = msgspec.json.Encoder().encode


class DatabaseQueue:
    """The queue of a team's database: rows taken with SKIP LOCKED, and notifications."""

    def __init__(self, database: TeamDatabase) -> None:
        self.database: TeamDatabase = database

    def ask(self, connection: apsw.Connection, new_turn: AskedTurn) -> None:
        """Queue a turn in the caller's transaction, which fails with QueueFull if too many turns of its
        person wait."""
        options, is_interactive = _encode(new_turn.options).decode(), int(new_turn.options.may_clarify)
        values = new_turn.id, new_turn.session_id, new_turn.text, options, is_interactive
        connection.execute(_ASK, (*values, MAX_WAITING, WAITING))

    def take(self, owner: str, count: int, missing: Sequence[str] = (), reserved: int = 0) -> list[TakenTurn]:
        """Take at most `count` turns that wait or whose worker was lost, people in turn. Skips turns with a
        workspace in `missing`. The last `reserved` of them are turns that a person waits for."""
        taken_turns: list[TakenTurn] = []
        for room, is_interactive in ((count - reserved, False), (reserved, True)):
            if room > 0 and (not is_interactive or len(taken_turns) == count - reserved):  # others may wait
                values = owner, room, json.dumps(missing), is_interactive
                rows = self.database.run(lambda db, values=values: db.execute(TAKE, values).fetchall())
                taken_turns += [_read_row(row) for row in rows]
        return taken_turns

    def keep(self, connection: PostgresConnection, taken_turns: Sequence[TakenTurn]) -> None:
        """Renew the leases of these turns. A turn that another transaction has locked is renewed the next
        time, so that the others need not wait."""
        ids, attempts = [turn.id for turn in taken_turns], [turn.attempts for turn in taken_turns]
        connection.raw.execute(KEEP, (ids, attempts))

    def leave(self, connection: apsw.Connection, taken_turn: TakenTurn, why: str = "") -> None:
        """Leave a turn to other workers, without counting as lost. They take it after its lease or, if `why`
        names the reason why it can't begin here, at once."""
        changes = "state = 'waiting', owner = '', attempts = attempts - 1" if why else "passed = passed + 1"
        connection.execute(
            f"UPDATE team_turns SET {changes}, error = ? WHERE id = ? AND attempts = ? AND state = 'running'",
            (why, taken_turn.id, taken_turn.attempts),
        )
        connection.execute("SELECT pg_notify(?, '')", (WAITING,))

    def begin(self, connection: apsw.Connection, taken_turn: TakenTurn) -> None:
        """Record, in the transaction that stores its message, that a turn has begun. The transaction fails if
        another worker has taken the turn."""
        connection.execute("SELECT whet_begin_turn(?, ?)", (taken_turn.id, taken_turn.attempts))

    def end(self, connection: apsw.Connection, taken_turn: TakenTurn, reason: str, error: str) -> Any:
        """Record the result of a turn, and return the rows with its reason, its error and its attempts.

        The caller has checked the session's fence, so it may end the turn even if its lease ran out: it owns
        the session until another worker takes it. Unread messages become turns of their own, unless the turn
        was cancelled.
        """
        return connection.execute(CLOSE, (taken_turn.id, "done", reason, error, ENDED))

    async def write(self, taken_turn: TakenTurn, work: Callable[[apsw.Connection], object]) -> None:
        """Call `work` in a transaction that locks only the turn's session."""
        await self.database.append(ScopedWrite(taken_turn.session_id, work), scope=taken_turn.session_id)


def read_result(database: TeamDatabase, turn_id: str) -> EndedTurn | None:
    """Return the result of a turn, or None if the turn is unknown."""
    row: tuple[Any, ...] | None = database.read_now(
        lambda db: db.execute(
            "SELECT id, session, turn, reason, error, attempts, owner FROM team_turns WHERE id = ?",
            (turn_id,),
        ).fetchone()
    )
    return None if row is None else EndedTurn(*row)


def _read_row(row: tuple[Any, ...]) -> TakenTurn:
    id_, session_id, text, turn, attempts, is_cancelled, options, workspace = row
    turn_options = from_json(options, TurnOptions)
    return TakenTurn(id_, session_id, text, turn, attempts, bool(is_cancelled), turn_options, workspace)
