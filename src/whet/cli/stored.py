"""The store, for commands that read or change it and end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import apsw

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.store import sessions
from whet.store.database import StateDatabase, has_store, open_store
from whet.store.sessions import SessionRow

T = TypeVar("T")


def open_database(home: Home) -> closing[StateDatabase]:
    """Open the store for a `with` block. It is created if it does not exist."""
    return closing(open_store(home, SystemClock()))


def read(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and read from it."""
    with open_database(home) as database:
        return database.read_now(work)


def write(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and change it. Durable on return."""
    with open_database(home) as database:
        return database.write_now(work)


def require_store(home: Home, problem: str = "there are no sessions yet") -> None:
    """Raise NotFound if nothing is stored yet."""
    if not has_store(home):
        raise NotFound(problem, hint="begin one: whet")


def find_session(db: apsw.Connection, name: str) -> SessionRow:
    """Return the session with an id, the beginning of one or a title, or the latest session if `name` is
    empty.

    Raises NotFound if no session matches.
    """
    if name:
        return sessions.get(db, sessions.resolve_id(db, name))
    latest = sessions.find_latest(db)
    if latest is None:
        raise NotFound("there is no session yet", hint="begin one: whet")
    return latest
