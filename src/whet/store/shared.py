"""Overwrite deleted data and read the database's size, for the home's file and for a team's database."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import apsw

from whet.store import rows
from whet.store.database import is_team


@contextmanager
def secure_delete(connection: apsw.Connection) -> Generator[None]:
    """Overwrite data that is deleted in the context. A team's database is left to its administrator."""
    if is_team(connection):
        yield
        return
    before = connection.pragma("secure_delete")
    connection.pragma("secure_delete", True)
    try:
        yield
    finally:
        connection.pragma("secure_delete", before)


def read_size(connection: apsw.Connection) -> int:
    """Return the size of the database in bytes."""
    if is_team(connection):
        return rows.number(connection, "SELECT pg_database_size(current_database())")
    return connection.pragma("page_count") * connection.pragma("page_size")
