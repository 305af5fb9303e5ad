"""The keys of sessions' rows, and the error for a session that does not exist."""

from __future__ import annotations

import apsw

from whet.contract.errors import NotFound

NO_SESSION_HINT = "`whet sessions list` shows them"


def family_keys(connection: apsw.Connection, session_id: str) -> list[int]:
    """Return the keys of a session and all its descendants."""
    records = connection.execute(
        "WITH RECURSIVE family (key, id) AS (SELECT key, id FROM sessions WHERE id = ?"
        " UNION SELECT s.key, s.id FROM sessions s JOIN family f ON s.parent_session_id = f.id"
        " WHERE s.parent_session_id <> '') SELECT key FROM family",
        (session_id,),
    ).fetchall()
    if not records:
        raise NotFound(f"there is no session {session_id}", hint=NO_SESSION_HINT)
    return [row[0] for row in records]


def require_change(connection: apsw.Connection, session_id: str) -> None:
    """Raise NotFound if the last statement changed no row, because there is no such session."""
    if not connection.changes():
        raise NotFound(f"there is no session {session_id}", hint=NO_SESSION_HINT)
