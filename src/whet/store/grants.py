"""Store the lasting permissions ("always") that a person gave: a tool and a pattern, everywhere or in one
workspace."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.store.database import StateDatabase


class GrantRow(msgspec.Struct, frozen=True):
    """One lasting permission. An empty `workspace` means everywhere."""

    id: int
    tool: str
    pattern: str
    workspace: str
    created: str


def add(connection: apsw.Connection, tool: str, pattern: str, workspace: str, now: str) -> GrantRow:
    """Store a grant and return it, or return the same grant that is stored already."""
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


def list_grants(connection: apsw.Connection) -> list[GrantRow]:
    """Return every grant, oldest first."""
    rows = connection.execute("SELECT id, tool, pattern, workspace, created FROM grants ORDER BY id")
    return [GrantRow(*row) for row in rows]


def remove(connection: apsw.Connection, grant_id: int) -> bool:
    """Remove a grant. Return False if no grant has that id."""
    connection.execute("DELETE FROM grants WHERE id = ?", (grant_id,))
    return connection.changes() == 1


class GrantRepository(msgspec.Struct, frozen=True):
    """The stored grants of one home, as the gate uses them."""

    database: StateDatabase
    clock: Clock

    async def add(self, tool: str, pattern: str, workspace: str) -> None:
        """Store a grant; durable on return."""
        now = iso(self.clock.now())
        await self.database.write(lambda db: add(db, tool, pattern, workspace, now))

    async def all(self) -> Sequence[GrantRow]:
        """Return every stored grant."""
        # Grants are few: switching to a thread would cost four times the read.
        return self.database.read_now(list_grants)
