"""Commits database transactions that an engine left open during a change of session.

An engine with several connections to one file can block itself: a transaction left open on one connection
makes writes on another wait for ever. Its writes are taken as intended and are committed. Only the
engine's own objects are searched, not objects that it shares with others.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from whet.lanes import attempt

if TYPE_CHECKING:
    from sqlite3 import Connection

log: logging.Logger = logging.getLogger("whet.context")
_MAX_DEPTH = 3


def commit_open_transactions(engine: object) -> int:
    """Commit open transactions, on the thread that the engine runs on. Returns how many there were."""
    if "sqlite3" not in sys.modules:
        return 0
    opened = [candidate for candidate in _find_connections(engine) if candidate.in_transaction]
    for connection in opened:
        outcome = attempt(connection.commit)
        if outcome.error is not None:
            log.warning("an engine's transaction can't be ended: %s", outcome.error)
    return len(opened)


def _find_connections(engine: object) -> Iterator[Connection]:
    from sqlite3 import Connection  # noqa: PLC0415 - it is loaded where an engine uses it

    package = type(engine).__module__.rpartition(".")[0] or type(engine).__module__
    visited = {id(engine)}
    level: list[object] = [engine]
    for _ in range(_MAX_DEPTH):
        below: list[object] = []
        for owner in level:
            attributes = attempt(lambda owner=owner: list(vars(owner).values())).value or []
            for value in cast("list[object]", attributes):
                if id(value) in visited:
                    continue
                visited.add(id(value))
                if isinstance(value, Connection):
                    yield value
                elif type(value).__module__.startswith(package):
                    below.append(value)
        level = below
