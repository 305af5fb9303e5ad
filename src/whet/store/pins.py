"""Pin sessions, so that lists show them first."""

from __future__ import annotations

import apsw

from whet.store import sessions


def set_pin_time(connection: apsw.Connection, session_id: str, at: str) -> None:
    """Pin a session at the time `at`, or unpin it if `at` is empty. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    connection.execute("UPDATE sessions SET pinned = ? WHERE key = ?", (at, key))


def list_pinned(connection: apsw.Connection, limit: int) -> list[sessions.SessionRow]:
    """Return the pinned sessions that are not archived, the last pinned first."""
    records = connection.execute(
        "SELECT id FROM sessions WHERE pinned <> '' AND archived = '' ORDER BY pinned DESC, key DESC LIMIT ?",
        (limit,),
    ).fetchall()
    return [sessions.get(connection, record[0]) for record in records]


def is_pinned(connection: apsw.Connection, session_id: str) -> bool:
    """Return whether a session is pinned."""
    record = connection.execute("SELECT pinned FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return bool(record and record[0])
