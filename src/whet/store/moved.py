"""What came from another program's home once, by its name there: it is not brought a second time.

So what a person removed here stays removed. Sessions, notes and skills have records of their own (`imports`,
the ledger). Every function takes a connection inside a transaction.
"""

from __future__ import annotations

import apsw


def came(connection: apsw.Connection, origin: str, part: str) -> set[str]:
    """Give the names of what came of a part."""
    found = connection.execute("SELECT name FROM moved WHERE origin = ? AND part = ?", (origin, part))
    return {row[0] for row in found}


def note(connection: apsw.Connection, origin: str, part: str, name: str, now: str) -> None:
    """Remember that something came. Once is as good as twice."""
    connection.execute("INSERT OR IGNORE INTO moved VALUES (?, ?, ?, ?)", (origin, part, name, now))
