"""Orders for a queued turn from other processes: messages, cancellation, and answers to its questions.

They are stored as rows, so that any worker that runs the turn can read them. A notification names the
session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import apsw

from whet.contract.errors import StoreBusy
from whet.store.jobs import QueuedJob
from whet.team.events import TurnMark, write_end
from whet.team.notices import ENDED, ORDERS
from whet.team.taking import PLACE

_OPEN = (
    "SELECT id, state FROM team_turns WHERE session = ? AND state IN ('waiting', 'running') ORDER BY number"
)
_HOLD_OPEN = f"{_OPEN} FOR UPDATE"
"""As `_OPEN`, with locks until the transaction's end: meanwhile no worker takes or ends these turns."""

START_WORKER = "start one that can: whet worker --turns 8"
"""The hint for a turn that waits."""

_CANCEL_WAITING = (
    "UPDATE team_turns SET state = 'done', reason = 'cancelled', cancelled = 1, told = 1, ended = now()"
    " WHERE id = ?"
)


def list_open_turns(connection: apsw.Connection) -> list[tuple[str, str]]:
    """Return the sessions and states of all turns that wait or run."""
    return connection.execute(
        "SELECT session, state FROM team_turns WHERE state IN ('waiting', 'running') ORDER BY number"
    ).fetchall()


def list_states(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the states of a session's open turns, in their order."""
    return [state for _, state in connection.execute(_OPEN, (session_id,)).fetchall()]


def describe_wait(connection: apsw.Connection, turn_id: str) -> str:
    """Return why no worker has taken a turn: a worker left it to others, none has room, or none may be
    running. Returns an empty string if the turn does not wait, or waits for an earlier turn of its
    session."""
    row = connection.execute(PLACE, (turn_id,)).fetchone()
    if row is None:
        return ""
    why, place, is_any_running = row
    state = "has room for this turn yet" if is_any_running else "runs this turn or another one"
    return why or f"no worker {state} (place {place} of the queue)"


def send_message(connection: apsw.Connection, session_id: str, text: str) -> bool:
    """Send a message to the session's running turn. Returns False if no turn is running."""
    open_rows = connection.execute(_HOLD_OPEN, (session_id,)).fetchall()
    running = [turn for turn, state in open_rows if state == "running"]
    if not running:
        return False
    connection.execute(
        "INSERT INTO team_said (session, turn, body) VALUES (?, ?, ?)", (session_id, running[0], text)
    )
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, session_id))
    return True


class TurnOrders(NamedTuple):
    """The orders for one turn: messages with their numbers, and whether it was cancelled."""

    messages: list[tuple[int, str]]
    is_cancelled: bool


def read_orders(connection: apsw.Connection, positions: Mapping[str, int]) -> dict[str, TurnOrders]:
    """Return the orders for turns, by turn id. `positions` maps the id of each turn to the number of the last
    message that was read."""
    values = ([*positions], [*positions.values()])
    records = connection.execute(_ORDERS, values).fetchall()  # pyright: ignore[reportArgumentType] a team's database takes lists
    orders: dict[str, TurnOrders] = {}
    for turn_id, is_cancelled, number, text in records:
        turn_orders = orders.setdefault(turn_id, TurnOrders([], bool(is_cancelled)))
        if number is not None:
            turn_orders.messages.append((number, text))
    return orders


_ORDERS = """
SELECT t.id, t.cancelled, s.id, s.body FROM unnest(CAST(? AS text[]), CAST(? AS bigint[])) AS p (id, after)
JOIN team_turns t ON t.id = p.id LEFT JOIN team_said s ON s.turn = p.id AND s.id > p.after ORDER BY s.id
"""


def mark_read(connection: apsw.Connection, number: int) -> Sequence[QueuedJob]:
    """Delete a message, in the transaction that stores it in the transcript. Returns no jobs. Raises
    StoreBusy if another worker has already stored it."""
    connection.execute("DELETE FROM team_said WHERE id = ?", (number,))
    if not connection.changes():
        raise StoreBusy("this was read by another worker", hint="it is in the transcript")
    return ()


def cancel_turns(connection: apsw.Connection, session_id: str) -> bool:
    """Cancel the session's open turns. Returns False if there are none.

    A waiting turn ends in this transaction. A running turn is ended by its worker.
    """
    open_rows = connection.execute(_HOLD_OPEN, (session_id,)).fetchall()
    for turn_id, state in open_rows:
        if state == "running":
            connection.execute("UPDATE team_turns SET cancelled = 1 WHERE id = ?", (turn_id,))
            continue
        connection.execute(_CANCEL_WAITING, (turn_id,))
        write_end(connection, (turn_id, session_id), "cancelled")
        connection.execute("SELECT pg_notify(?, ?)", (ENDED, turn_id))
    if open_rows:
        connection.execute("SELECT pg_notify(?, ?)", (ORDERS, session_id))
    return bool(open_rows)


def ask_question(
    connection: apsw.Connection, mark: TurnMark, question_id: str, body: str, wait_s: float
) -> None:
    """Store a question of a turn, so that other processes can answer it."""
    connection.execute(
        "INSERT INTO team_questions (id, turn, attempts, body, until)"
        " VALUES (?, ?, ?, ?, now() + CAST(? AS float8) * interval '1 s')",
        (question_id, mark.id, mark.attempts, body, wait_s),
    )
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))


_ASKED = """
SELECT q.body FROM team_questions q JOIN team_turns t ON t.id = q.turn AND t.attempts = q.attempts
WHERE q.answer IS NULL AND q.until > now() AND t.state = 'running' AND t.lease_until > now()
"""


_ANSWERED = """
SELECT id, answer FROM team_questions WHERE id = ANY (CAST(? AS text[])) AND answer IS NOT NULL
"""


def list_open_questions(connection: apsw.Connection) -> list[str]:
    """Return the open questions, the oldest first, except those of workers whose lease has run out."""
    return [body for (body,) in connection.execute(f"{_ASKED} ORDER BY q.until").fetchall()]


def find_question(connection: apsw.Connection, question_id: str) -> str | None:
    """Return an open question, or None if it is not open."""
    row = connection.execute(f"{_ASKED} AND q.id = ?", (question_id,)).fetchone()
    return None if row is None else row[0]


def answer_question(connection: apsw.Connection, question_id: str, reply: str) -> bool:
    """Answer a question. Returns False if it is no longer open. The caller holds the lock of its scope."""
    if find_question(connection, question_id) is None:
        return False
    connection.execute("UPDATE team_questions SET answer = ? WHERE id = ?", (reply, question_id))
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))
    return True


def list_answers(connection: apsw.Connection, question_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the id and answer of each of these questions that was answered."""
    values = ([*question_ids],)
    return connection.execute(_ANSWERED, values).fetchall()  # pyright: ignore[reportArgumentType] a team's database takes lists


def remove_question(connection: apsw.Connection, question_id: str) -> None:
    """Remove a question."""
    connection.execute("DELETE FROM team_questions WHERE id = ?", (question_id,))
    connection.execute("SELECT pg_notify(?, ?)", (ORDERS, ""))
