"""Store goals: the aim, the progress, and the end.

A round is one turn of the goal's session. `asked` counts the rounds whose message is stored, and is written
in the transaction that stores it. `round` counts those that were judged. So after a crash the next process
sees which round to judge.
"""

from __future__ import annotations

from typing import Literal

import apsw
import msgspec

from whet.contract.errors import NotFound, StoreBusy
from whet.contract.texts import from_values
from whet.store import rows

GoalState = Literal["running", "paused", "achieved", "unproven", "budget", "stuck", "cancelled"]
OPEN: tuple[GoalState, ...] = ("running", "paused")
_COLUMNS = (
    "id, session, text, verify, guarded, budget_usd, max_steps, state, first_turn, asked, round, said,"
    " stalled, mark, note, begun, ended"
)


class GoalRow(msgspec.Struct, frozen=True):
    """A stored goal.

    `guarded` holds the hashes of the verifier's files by path, `said` the last output of the verifier or of
    the check of claims.
    """

    id: str
    session: str
    text: str
    verify: str
    guarded: dict[str, str]
    budget_usd: float
    max_steps: int
    state: GoalState
    first_turn: int
    asked: int = 0
    round: int = 0
    said: str = ""
    stalled: int = 0
    mark: str = ""
    note: str = ""
    begun: str = ""
    ended: str = ""


def add(connection: apsw.Connection, goal: GoalRow) -> None:
    """Store a new goal. Raises StoreBusy if its session has an open one."""
    row = msgspec.structs.asdict(goal) | {"guarded": msgspec.json.encode(goal.guarded).decode()}
    try:
        connection.execute(
            f"INSERT INTO goals ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})",
            tuple(row[name.strip()] for name in _COLUMNS.split(",")),
        )
        connection.changes()  # a team's connection raises the error when a result is read
    except apsw.ConstraintError as error:
        raise StoreBusy("this session has a goal already", hint="whet goal stop ends it") from error


def get(connection: apsw.Connection, goal_id: str) -> GoalRow:
    """Return the goal with this id or beginning of an id, or the latest goal for "". Raises NotFound."""
    records = connection.execute(
        f"SELECT {_COLUMNS} FROM goals WHERE id LIKE ? || '%' ORDER BY id <> ?, begun DESC, id DESC LIMIT 2",
        (goal_id.replace("%", "").replace("_", ""), goal_id),
    ).fetchall()
    if not records or (goal_id and len(records) > 1 and records[0][0] != goal_id):
        several = f"several goals begin with {goal_id!r}" if records else ""
        raise NotFound(several or f"there is no goal {goal_id!r}".replace(" ''", ""), hint="whet goal list")
    return _goal(records[0])


def find_last_goal(connection: apsw.Connection, session_id: str) -> GoalRow | None:
    """Return the last goal of a session, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM goals WHERE session = ? ORDER BY begun DESC, id DESC LIMIT 1", (session_id,)
    ).fetchone()
    return None if row is None else _goal(row)


def list_goals(connection: apsw.Connection, limit: int = 50) -> list[GoalRow]:
    """Return the goals, newest first."""
    cursor = connection.execute(
        f"SELECT {_COLUMNS} FROM goals ORDER BY begun DESC, id DESC LIMIT ?", (limit,)
    )
    return [_goal(row) for row in cursor]


def note_round_message(connection: apsw.Connection, goal: GoalRow) -> None:
    """Count the next round's message, in the transaction that stores it.

    Raises StoreBusy if another process has counted it, or if the goal has ended.
    """
    connection.execute(
        "UPDATE goals SET asked = asked + 1, state = 'running' WHERE id = ? AND asked = ? AND round = ?"
        " AND state IN ('running', 'paused')",
        (goal.id, goal.round, goal.round),
    )
    if not connection.changes():
        raise StoreBusy("this goal is pursued elsewhere, or has ended", hint="whet goal show")


def store_judgement(connection: apsw.Connection, goal: GoalRow) -> bool:
    """Store the result of a round. Return False if the goal was ended or judged meanwhile."""
    connection.execute(
        "UPDATE goals SET round = ?, state = ?, said = ?, stalled = ?, mark = ?, note = ?, guarded = ?,"
        " ended = ? WHERE id = ? AND round = ? AND state IN ('running', 'paused')",
        (
            goal.round,
            goal.state,
            goal.said,
            goal.stalled,
            goal.mark,
            goal.note,
            msgspec.json.encode(goal.guarded).decode(),
            goal.ended,
            goal.id,
            goal.round - 1,
        ),
    )
    return bool(connection.changes())


def store_guarded_hashes(connection: apsw.Connection, goal_id: str, guarded: dict[str, str]) -> None:
    """Store new hashes of the verifier's files after the person accepted them."""
    text = msgspec.json.encode(guarded).decode()
    connection.execute("UPDATE goals SET guarded = ? WHERE id = ?", (text, goal_id))


def end_goal(connection: apsw.Connection, goal_id: str, state: GoalState, note: str, at: str) -> bool:
    """Pause or end an open goal. Return False if it has ended before."""
    connection.execute(
        "UPDATE goals SET state = ?, note = ?, ended = ? WHERE id = ? AND state IN ('running', 'paused')",
        (state, note, "" if state in OPEN else at, goal_id),
    )
    return bool(connection.changes())


def count_steps(connection: apsw.Connection, key: int, first_turn: int) -> int:
    """Count a goal's model calls: the steps of the session's turns from `first_turn` on."""
    steps = "SELECT coalesce(sum(steps), 0) FROM turns WHERE session = ? AND number >= ?"
    return rows.number(connection, steps, key, first_turn)


def _goal(row: tuple[object, ...]) -> GoalRow:
    values = dict(zip((name.strip() for name in _COLUMNS.split(",")), row, strict=True))
    values["guarded"] = msgspec.json.decode(str(values["guarded"]))
    return from_values(values, GoalRow)
