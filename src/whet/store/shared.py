"""What an administrator's database does by itself, and the home's own file has to be told."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import apsw

from whet.store import rows
from whet.store.database import is_team


@contextmanager
def overwriting(connection: apsw.Connection) -> Generator[None]:
    """Have what is deleted overwritten in the home's file; a team's database is the administrator's."""
    if is_team(connection):
        yield
        return
    before = connection.pragma("secure_delete")
    connection.pragma("secure_delete", True)
    try:
        yield
    finally:
        connection.pragma("secure_delete", before)


def size_of(connection: apsw.Connection) -> int:
    """Give how many bytes the database has."""
    if is_team(connection):
        return rows.number(connection, "SELECT pg_database_size(current_database())")
    return connection.pragma("page_count") * connection.pragma("page_size")
