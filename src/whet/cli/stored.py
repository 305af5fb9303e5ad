"""The store, for a command that looks something up or changes it and ends."""

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


def opened(home: Home) -> closing[StateDatabase]:
    """Open the store for a block; it is made where there is none."""
    return closing(open_store(home, SystemClock()))


def read(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and read from it."""
    with opened(home) as database:
        return database.read_now(work)


def write(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and change it; durable on return."""
    with opened(home) as database:
        return database.write_now(work)


def must_exist(home: Home, problem: str = "there are no sessions yet") -> None:
    """Raise NotFound where nothing was stored yet."""
    if not has_store(home):
        raise NotFound(problem, hint="begin one: whet")


def named_or_latest(db: apsw.Connection, name: str) -> SessionRow:
    """Give the session of an id, the beginning of one or a title; the latest for "". Raises NotFound."""
    if name:
        return sessions.get(db, sessions.resolve(db, name))
    latest = sessions.latest(db)
    if latest is None:
        raise NotFound("there is no session yet", hint="begin one: whet")
    return latest
