"""Commit database transactions that an engine left open during a change of session.

An engine with several connections to one file can block itself: while a transaction is open on one of them,
writes on another wait for ever. Only the engine's own objects are searched for connections, not objects of
other packages.
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
    """Commit an engine's open transactions. Must be called on the engine's thread. Returns how many there
    were."""
    if "sqlite3" not in sys.modules:
        return 0
    connections = [connection for connection in _find_connections(engine) if connection.in_transaction]
    for connection in connections:
        outcome = attempt(connection.commit)
        if outcome.error is not None:
            log.warning("an engine's transaction can't be ended: %s", outcome.error)
    return len(connections)


def _find_connections(engine: object) -> Iterator[Connection]:
    from sqlite3 import Connection  # noqa: PLC0415 - the engine has loaded it

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
