"""Whose session it is, where several people talk to one home."""

from __future__ import annotations

import apsw


def m007_people(connection: apsw.Connection) -> None:
    """Add the memory profile that a session belongs to; empty is the home's owner."""
    connection.execute("ALTER TABLE sessions ADD COLUMN profile TEXT NOT NULL DEFAULT ''")
