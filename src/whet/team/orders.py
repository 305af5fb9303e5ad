"""What reaches a queued turn from other processes: words said to it, its cancel, answers to its questions.

All of it is rows, so that whichever worker has the turn reads them; a notification names the session.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from whet.contract.errors import StoreBusy
from whet.contract.events import TurnEnd
from whet.contract.messages import Usage
from whet.team.events import TurnMark, put_end
from whet.team.notices import ENDED, ORDERS

_OPEN = (
    "SELECT id, state FROM team_turns WHERE session = ? AND state IN ('waiting', 'running') ORDER BY number"
)

_CALLED_OFF = (
    "UPDATE team_turns SET state = 'done', reason = 'cancelled', cancelled = 1, told = 1, ended = now()"
    " WHERE id = ?"
)


def open_turns(connection: apsw.Connection) -> list[tuple[str, str]]:
    """Give the sessions and states of all turns that wait or run."""
    return connection.execute(
        "SELECT session, state FROM team_turns WHERE state IN ('waiting', 'running') ORDER BY number"
    ).fetchall()


def states(connection: apsw.Connection, session_id: str) -> list[str]:
    """Give the states of a session's open turns, in their order."""
    return [state for _, state in connection.execute(_OPEN, (session_id,)).fetchall()]


def why_waiting(connection: apsw.Connection, turn_id: str) -> str | None:
    """Say why a worker left a turn to others, "" where none did; None for one that does not wait."""
    row = connection.execute(
        "SELECT error FROM team_turns WHERE id = ? AND state = 'waiting'", (turn_id,)
    ).fetchone()
    return None if row is None else row[0]


def say(connection: apsw.Connection, session_id: str, text: str) -> bool:
    """Say something to the session's turn that runs; False where none does."""
    running = [
        turn for turn, state in connection.execute(_OPEN, (session_id,)).fetchall() if state == "running"
    ]
    if not running:
        return False
    connection.execute(
        "INSERT INTO team_said (session, turn, body) VALUES (?, ?, ?)", (session_id, running[0], text)
    )
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, session_id))
    return True


def said(connection: apsw.Connection, turn_id: str, after: int) -> list[tuple[int, str]]:
    """Give what was said to a turn, with its numbers, after one of these."""
    return connection.execute(
        "SELECT id, body FROM team_said WHERE turn = ? AND id > ? ORDER BY id", (turn_id, after)
    ).fetchall()


def read(connection: apsw.Connection, number: int) -> None:
    """Cross off what the transcript has in this transaction. Raises StoreBusy where that was done before."""
    connection.execute("DELETE FROM team_said WHERE id = ?", (number,))
    if not connection.changes():
        raise StoreBusy("this was read by another worker", hint="it is in the transcript")


def cancel(connection: apsw.Connection, session_id: str) -> bool:
    """Call off the session's turns: one that runs is ended by its worker, one that waits here and now. False
    where there is none."""
    found = connection.execute(_OPEN, (session_id,)).fetchall()
    for turn_id, state in found:
        if state == "running":
            connection.execute("UPDATE team_turns SET cancelled = 1 WHERE id = ?", (turn_id,))
            continue
        connection.execute(_CALLED_OFF, (turn_id,))
        put_end(connection, turn_id, TurnEnd(session_id, "", "cancelled", "", 0, Usage(), 0.0))
        connection.execute("SELECT pg_notify(?, ?)", (ENDED, turn_id))
    if found:
        connection.execute("SELECT pg_notify(?, ?)", (ORDERS, session_id))
    return bool(found)


def is_cancelled(connection: apsw.Connection, turn_id: str) -> bool:
    """Whether somebody has called the turn off."""
    row = connection.execute("SELECT cancelled FROM team_turns WHERE id = ?", (turn_id,)).fetchone()
    return row is not None and bool(row[0])


def ask(connection: apsw.Connection, mark: TurnMark, question_id: str, body: str, wait_s: float) -> None:
    """Put a question of a turn's where others can answer it."""
    connection.execute(
        "INSERT INTO team_questions (id, turn, attempts, body, until)"
        " VALUES (?, ?, ?, ?, now() + CAST(? AS float8) * interval '1 s')",
        (question_id, mark.id, mark.attempts, body, wait_s),
    )
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))


_ASKED = """
SELECT q.id, q.body FROM team_questions q JOIN team_turns t ON t.id = q.turn AND t.attempts = q.attempts
WHERE q.answer IS NULL AND q.until > now() AND t.state = 'running' AND t.lease_until > now()
"""


def asked(connection: apsw.Connection) -> list[str]:
    """Give the questions that wait, the oldest first; not those of a worker that is gone."""
    return [body for _, body in connection.execute(f"{_ASKED} ORDER BY q.until").fetchall()]


def question(connection: apsw.Connection, question_id: str) -> str | None:
    """Give a question that waits."""
    row = connection.execute(f"{_ASKED} AND q.id = ?", (question_id,)).fetchone()
    return None if row is None else row[1]


def answer(connection: apsw.Connection, question_id: str, given: str) -> bool:
    """Answer a question; False where it waits no more."""
    if question(connection, question_id) is None:
        return False
    connection.execute(
        "UPDATE team_questions SET answer = ? WHERE id = ? AND answer IS NULL", (given, question_id)
    )
    is_first = bool(connection.changes())
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))
    return is_first


def answers(connection: apsw.Connection, question_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Give which of these questions were answered, and how."""
    found: list[tuple[str, str]] = []
    for one in question_ids:
        row = connection.execute("SELECT answer FROM team_questions WHERE id = ?", (one,)).fetchone()
        if row is not None and row[0] is not None:
            found.append((one, row[0]))
    return found


def take_back(connection: apsw.Connection, question_id: str) -> None:
    """Remove a question."""
    connection.execute("DELETE FROM team_questions WHERE id = ?", (question_id,))
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))
