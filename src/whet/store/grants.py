"""What a person allowed for good ("always"): a tool and a pattern, everywhere or in one workspace."""

from __future__ import annotations

import apsw
import msgspec


class GrantRow(msgspec.Struct, frozen=True):
    """One standing permission; an empty `workspace` means everywhere."""

    id: int
    tool: str
    pattern: str
    workspace: str
    created: str


def add(connection: apsw.Connection, tool: str, pattern: str, workspace: str, now: str) -> GrantRow:
    """Store a grant; one that is there already is given back unchanged."""
    connection.execute(
        "INSERT INTO grants (tool, pattern, workspace, created) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (tool, pattern, workspace, now),
    )
    row = connection.execute(
        "SELECT id, tool, pattern, workspace, created FROM grants"
        " WHERE tool = ? AND pattern = ? AND workspace = ?",
        (tool, pattern, workspace),
    ).fetchone()
    return GrantRow(*row)  # pyright: ignore[reportOptionalIterable] the row was just made


def all_grants(connection: apsw.Connection) -> list[GrantRow]:
    """Give every grant, oldest first."""
    rows = connection.execute("SELECT id, tool, pattern, workspace, created FROM grants ORDER BY id")
    return [GrantRow(*row) for row in rows]


def remove(connection: apsw.Connection, grant_id: int) -> bool:
    """Take a grant back; False where there is none with that id."""
    connection.execute("DELETE FROM grants WHERE id = ?", (grant_id,))
    return connection.changes() == 1
