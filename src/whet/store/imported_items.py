"""Record the names of items imported from another program's home, so that none is imported twice.

So an item that a person removed here stays removed. Sessions, notes and skills have records of their own.
Every function takes a connection inside a transaction.
"""

from __future__ import annotations

import apsw


def list_names(connection: apsw.Connection, origin: str, part: str) -> set[str]:
    """Return the names of the items that were imported from a part, such as the settings, of a home."""
    cursor = connection.execute("SELECT name FROM moved WHERE origin = ? AND part = ?", (origin, part))
    return {row[0] for row in cursor}


def record_name(connection: apsw.Connection, origin: str, part: str, name: str, now: str) -> None:
    """Record that an item was imported. Repeating it does nothing."""
    connection.execute("INSERT OR IGNORE INTO moved VALUES (?, ?, ?, ?)", (origin, part, name, now))
