"""How much of what the store holds: counts for reports, read from the tables in one statement each."""

from __future__ import annotations

import apsw

from whet.store.rows import ASSISTANT


def steps(connection: apsw.Connection) -> int:
    """Count the stored answers of models, which is the number of steps that were finished."""
    return _one(connection, f"SELECT count(*) FROM messages WHERE role = {ASSISTANT}")


def calls_by_outcome(connection: apsw.Connection) -> dict[str, int]:
    """Count tool calls by how they ended: "" for success, else the kind of error."""
    rows = connection.execute("SELECT error_kind, count(*) FROM tool_calls GROUP BY error_kind")
    return {str(kind): int(number) for kind, number in rows}


def unfinished_calls(connection: apsw.Connection) -> int:
    """Count the calls that have no result."""
    return _one(connection, "SELECT count(*) FROM tool_calls WHERE finished IS NULL")


def _one(connection: apsw.Connection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    return 0 if row is None else int(row[0])
