"""Count stored rows for reports."""

from __future__ import annotations

import apsw

from whet.store import live, rows, sessions
from whet.store.rows import ASSISTANT


def count_steps(connection: apsw.Connection) -> int:
    """Count the stored answers of models, which equals the number of finished steps."""
    return rows.number(connection, f"SELECT count(*) FROM messages WHERE role = {ASSISTANT}")


def count_calls(connection: apsw.Connection) -> dict[str, int]:
    """Count tool calls by how they ended: "" for success, else the kind of error."""
    cursor = connection.execute("SELECT error_kind, count(*) FROM tool_calls GROUP BY error_kind")
    return {str(kind): int(number) for kind, number in cursor}


def count_unfinished_calls(connection: apsw.Connection) -> int:
    """Count the calls that have no result."""
    return rows.number(connection, "SELECT count(*) FROM tool_calls WHERE finished IS NULL")


def count_messages(connection: apsw.Connection, session_id: str) -> int:
    """Count all stored messages of a session, including compacted and undone ones. Raises NotFound."""
    return len(_read_messages(connection, session_id))


def read_largest_prompt(connection: apsw.Connection, session_id: str) -> int:
    """Return the tokens of a session's largest request, as counted by the server. Raises NotFound."""
    usages = (rows.unpack_with_usage(*row)[1] for row in _read_messages(connection, session_id))
    return max((usage.prompt_tokens for usage in usages if usage is not None), default=0)


def count_live_messages(connection: apsw.Connection, session_id: str) -> int:
    """Count the stored messages of a session's next request. Raises NotFound."""
    return len(live.load(connection, session_id).messages)


def _read_messages(connection: apsw.Connection, session_id: str) -> list[tuple[int, str, str | None]]:
    key = sessions.key_of(connection, session_id)
    cursor = connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ?",
        rows.ids_of(key),
    )
    return list(cursor)
