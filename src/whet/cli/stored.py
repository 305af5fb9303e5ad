"""The store, for a command that looks something up or changes it and ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import apsw

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.store.database import StateDatabase

T = TypeVar("T")


def opened(home: Home) -> closing[StateDatabase]:
    """Open the store for a block; it is made where there is none."""
    return closing(StateDatabase.open(home.database, SystemClock()))


def read(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and read from it."""
    with opened(home) as database:
        return database.read_now(work)


def write(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    """Open the store and change it; durable on return."""
    with opened(home) as database:
        return database.write_now(work)
