"""Delete sessions with all their rows."""

from __future__ import annotations

import apsw

from whet.store import claims, rows
from whet.store.sessions import family_keys
from whet.store.shared import secure_delete

_OF_SESSION = (
    "turns",
    "tool_calls",
    "compactions",
    "rewinds",
    "claims",
    "imports",
    "reviews",
    "warm_starts",
    "session_items",
    "turn_signals",
    "api_sessions",
    "api_responses",
    "engine_positions",
    "forks",
)


def filter_existing_ids(connection: apsw.Connection, ids: set[str]) -> set[str]:
    """Return the ids among `ids` that are sessions."""
    query = "SELECT 1 FROM sessions WHERE id = ?"
    return {id_ for id_ in ids if connection.execute(query, (id_,)).fetchone()}


def delete_session(connection: apsw.Connection, session_id: str) -> int:
    """Delete a session, its children, and all their messages. Return how many sessions were deleted.

    The rows are overwritten in the file. `purge.erase` removes other traces of their text. Raises NotFound,
    and StoreBusy if a turn is running.
    """
    family = family_keys(connection, session_id)
    for key in family:
        claims.refuse_if_held(connection, key, session_id)
    with secure_delete(connection):
        for key in family:
            drop(connection, key)
        connection.execute(
            "DELETE FROM review_counters WHERE conversation NOT IN (SELECT conversation_id FROM sessions)"
        )
        connection.execute(
            "DELETE FROM frozen_texts WHERE id NOT IN"
            " (SELECT system_text FROM sessions UNION SELECT tools_text FROM sessions"
            " UNION SELECT prime_text FROM sessions WHERE prime_text IS NOT NULL)"
        )
    return len(family)


def drop(connection: apsw.Connection, key: int) -> None:
    """Delete one session's rows, but not its children."""
    from whet.store import index, purge  # noqa: PLC0415 - sessions are made more often than deleted

    first, last = rows.ids_of(key)
    row = connection.execute("SELECT id FROM sessions WHERE key = ?", (key,)).fetchone()
    if row is not None:
        purge.drop_traces(connection, row[0])
    index.remove_messages(connection, first, last)
    connection.execute("DELETE FROM messages WHERE id >= ? AND id < ?", (first, last))
    for table in _OF_SESSION:
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (key,))
    connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
