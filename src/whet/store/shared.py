"""Settings that a team's administrator makes in the database, and that the home's own file needs from us."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import apsw

from whet.store import rows
from whet.store.database import is_team


@contextmanager
def secure_delete(connection: apsw.Connection) -> Generator[None]:
    """Overwrite deleted data in the home's file. For a team's database this does nothing: it is the
    administrator's."""
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
