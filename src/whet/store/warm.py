"""Store how sessions were started: with a template's examples ("warm"), with these held out, or without.

Every function takes a connection inside a transaction. A template is known here only by its name and its
hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from whet.store import sessions


class WarmStart(msgspec.Struct, frozen=True):
    """How a session was started: the template, and whether its examples were used or held out (`arm`)."""

    template: str
    hash: str
    arm: str
    chosen_by: str
    examples: int


class TemplateState(msgspec.Struct, frozen=True):
    """The state of a template. `off_reason` is set if it was switched off."""

    off_reason: str = ""
    last_win: str = ""


def record_start(connection: apsw.Connection, session_id: str, start: WarmStart, now: str) -> None:
    """Store how a session was started. Raises NotFound."""
    connection.execute(
        "INSERT OR REPLACE INTO warm_starts (session, template, hash, arm, chosen_by, examples, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (sessions.key_of(connection, session_id), *msgspec.structs.astuple(start), now),
    )


def read_start(connection: apsw.Connection, session_id: str) -> WarmStart | None:
    """Return how a session was started, or None if no template was considered."""
    row = connection.execute(
        "SELECT w.template, w.hash, w.arm, w.chosen_by, w.examples FROM warm_starts w"
        " JOIN sessions s ON s.key = w.session WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    return WarmStart(*row) if row else None


def list_states(connection: apsw.Connection) -> dict[str, TemplateState]:
    """Return the states of templates, by hash."""
    cursor = connection.execute("SELECT hash, off_reason, last_win FROM warm_states")
    return {row[0]: TemplateState(row[1], row[2]) for row in cursor}


def set_state(connection: apsw.Connection, hash_: str, template: str, state: TemplateState, now: str) -> None:
    """Store the state of a template."""
    connection.execute(
        "INSERT OR REPLACE INTO warm_states (hash, template, off_reason, last_win, at)"
        " VALUES (?, ?, ?, ?, ?)",
        (hash_, template, state.off_reason, state.last_win, now),
    )


class ArmCounts(msgspec.Struct, frozen=True):
    """One session of an arm: the number of its first judged calls, of the failed ones, and its start time."""

    arm: str
    failed: int
    calls: int
    at: str


def list_first_calls(
    connection: apsw.Connection, hash_: str, calls: int, limit: int = 400
) -> list[ArmCounts]:
    """Count the first `calls` judged calls of each session that considered this template, newest first.

    Only sessions whose arm was left to chance count, and no private ones.
    """
    records = connection.execute(
        "SELECT w.session, w.arm, w.at FROM warm_starts w JOIN sessions s ON s.key = w.session"
        " WHERE w.hash = ? AND w.chosen_by IN ('auto', 'default') AND NOT s.private"
        " ORDER BY w.session DESC LIMIT ?",
        (hash_, limit),
    ).fetchall()
    return _count_first_calls(connection, records, calls)


def list_cold_calls(connection: apsw.Connection, calls: int, limit: int) -> list[ArmCounts]:
    """Count the first `calls` judged calls of each of the newest sessions that considered no template."""
    records = connection.execute(
        "SELECT s.key, 'cold', '' FROM sessions s LEFT JOIN warm_starts w ON w.session = s.key"
        " WHERE w.session IS NULL AND s.kind = 'chat' AND NOT s.private ORDER BY s.key DESC LIMIT ?",
        (limit,),
    ).fetchall()
    return _count_first_calls(connection, records, calls)


def _count_first_calls(
    connection: apsw.Connection, records: Sequence[tuple[Any, ...]], calls: int
) -> list[ArmCounts]:
    counts: list[ArmCounts] = []
    for key, arm, at in records:
        outcomes = connection.execute(
            "SELECT outcome FROM tool_calls WHERE session = ?"
            " AND outcome NOT IN ('', 'denied', 'unknown') ORDER BY seq LIMIT ?",
            (key, calls),
        ).fetchall()
        failed = sum(row[0] == "failed" for row in outcomes)
        if outcomes:
            counts.append(ArmCounts(arm, failed, len(outcomes), at))
    return counts


def find_hidden_sources(connection: apsw.Connection, ids: list[str]) -> tuple[set[str], set[str]]:
    """Return the ids among these of private sessions, and those that are not in this store."""
    is_private_by_id = dict(
        connection.execute(
            "SELECT s.id, s.private FROM json_each(?) j CROSS JOIN sessions s ON s.id = j.value",
            (msgspec.json.encode(ids).decode(),),
        ).fetchall()
    )
    return {id_ for id_, private in is_private_by_id.items() if private}, set(ids) - set(is_private_by_id)
