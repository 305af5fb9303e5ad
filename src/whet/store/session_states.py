"""Read the states of recent sessions: whether the turn runs, waits for a person, has ended or was cut off.

While a turn runs, a stored call that has neither begun nor ended waits for a person's decision. A begun call
that asks the person waits for their answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import apsw
import msgspec

from whet.contract.errors import StoreBusy
from whet.contract.tags import BUILT_IN
from whet.store import claims
from whet.store.sessions import SessionKind

AgentState = Literal["waiting", "running", "failed", "cut off", "stopped", "done", "new"]
_STATES: Mapping[str, AgentState] = {"answered": "done", "cancelled": "stopped", "budget": "stopped"}
_ROWS = """
SELECT s.key, s.id, s.kind, s.source, s.title, s.workspace, s.parent_session_id, s.last_active,
  t.number, t.ended, t.reason, t.error, c.host, c.pid
FROM sessions s
LEFT JOIN turns t ON t.session = s.key AND t.number = (SELECT max(number) FROM turns WHERE session = s.key)
LEFT JOIN claims c ON c.session = s.key
WHERE s.kind IN ('chat', 'child')
"""
_RECENT = f"{_ROWS} AND s.last_active >= ? ORDER BY s.last_active DESC, s.key DESC LIMIT ?"
_OPEN_CALLS = (
    "SELECT name, started FROM tool_calls WHERE session = ? AND turn = ? AND finished IS NULL ORDER BY seq"
)


class AgentRow(msgspec.Struct, frozen=True):
    """A session and its state.

    `detail` tells what it waits for or why it failed. `pid` is the process that holds it, 0 if none does.
    `parent` is the session that a helper works for.
    """

    id: str
    state: AgentState
    detail: str
    kind: SessionKind
    source: str
    title: str
    workspace: str
    parent: str
    last_active: str
    host: str = ""
    pid: int = 0


def list_states(connection: apsw.Connection, since: str, now: datetime, limit: int = 100) -> list[AgentRow]:
    """Return the sessions that were active since a time: those that wait first, then those that run."""
    rows = [_read_row(connection, record, now) for record in connection.execute(_RECENT, (since, limit))]
    order = {"waiting": 0, "running": 1}
    return sorted(rows, key=lambda row: order.get(row.state, 2))


def find_state(connection: apsw.Connection, session_id: str, now: datetime) -> AgentRow | None:
    """Return the state of one session, or None if it is unknown or a review."""
    record = connection.execute(f"{_ROWS} AND s.id = ?", (session_id,)).fetchone()
    return None if record is None else _read_row(connection, record, now)


def _read_row(connection: apsw.Connection, record: tuple[object, ...], now: datetime) -> AgentRow:
    key, session_id, kind, *described, number, ended, reason, error, host, pid = record
    is_held = pid is not None and _is_held(connection, int(str(key)), str(session_id), now)
    state: AgentState
    detail = ""
    if number is None:
        state = "new"
    elif ended:
        state = _STATES.get(str(reason), "failed")
        detail = str(error) if state == "failed" else ""
    elif is_held:
        detail = _find_wait(connection, int(str(key)), int(str(number)))
        state = "waiting" if detail else "running"
    else:
        state = "cut off"
    process = (str(host), int(str(pid))) if is_held else ("", 0)
    source, title, workspace, parent, active = map(str, described)
    facts = (source, title, workspace, parent, active)
    return AgentRow(str(session_id), state, detail, _kind(kind), *facts, *process)


def _kind(text: object) -> SessionKind:
    return "child" if text == "child" else "chat"


def _is_held(connection: apsw.Connection, key: int, session_id: str, now: datetime) -> bool:
    try:
        claims.refuse_if_held(connection, key, session_id, now=now)
    except StoreBusy:
        return True
    return False


def _find_wait(connection: apsw.Connection, key: int, turn: int) -> str:
    """Return a text for the decision or answer that a running turn waits for, or "" if it does not wait."""
    calls = [(str(name), started) for name, started in connection.execute(_OPEN_CALLS, (key, turn))]
    begun = [name for name, started in calls if started is not None]
    if any("asks" in BUILT_IN.get(name, ()) for name in begun):
        return "an answer to its question"
    unstarted = [name for name, started in calls if started is None]
    return f"a decision on {unstarted[0]}" if unstarted and not begun else ""
