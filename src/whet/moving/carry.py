"""Stores the sessions of a source, many in a transaction, and counts what came of them.

After a crash or Ctrl-C what was committed is there, and the next run goes on from it. It does not know
where sessions come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.store import bulk, index
from whet.store.bulk import PastSession, Stored
from whet.store.database import StateDatabase

_BATCH_MESSAGES = 5_000
_INDEX_BATCHES = 30

Progress = Callable[[int, int], None]
"""Told the sessions and messages that are done."""


class CarrySums(msgspec.Struct):
    """What came of a source's sessions: how many were new, had grown, were there already, or differ on both
    sides and were left; how many messages that is."""

    new: int = 0
    grown: int = 0
    same: int = 0
    changed: int = 0
    messages: int = 0

    @property
    def sessions(self) -> int:
        """All sessions that were looked at."""
        return self.new + self.grown + self.same + self.changed

    def add(self, stored: Stored, messages: int) -> None:
        """Count one session."""
        setattr(self, stored, getattr(self, stored) + 1)
        self.messages += messages


def carry(
    database: StateDatabase, origin: str, sessions: Iterable[PastSession], clock: Clock, progress: Progress
) -> CarrySums:
    """Store `sessions` and make them searchable. Durable batch by batch."""
    carried, batch, size = CarrySums(), list[PastSession](), 0
    for past in sessions:
        batch.append(past)
        size += len(past.messages)
        if size >= _BATCH_MESSAGES:
            _store(database, origin, batch, clock, carried)
            progress(carried.sessions, carried.messages)
            batch, size = [], 0
    _store(database, origin, batch, clock, carried)
    progress(carried.sessions, carried.messages)
    while database.write_now(_index_some):
        pass
    return carried


def _index_some(connection: apsw.Connection) -> bool:
    """Index many small batches in one commit: nobody else waits for the file now."""
    return all(index.index_batch(connection) for _ in range(_INDEX_BATCHES))


def look(
    database: StateDatabase | None, origin: str, sessions: Iterable[PastSession], progress: Progress
) -> CarrySums:
    """Count what `carry` would do, and store nothing. Without a database everything is new."""
    carried = CarrySums()
    for past in sessions:
        is_known = database is not None and database.read_now(
            lambda db, past=past: bulk.is_known(db, origin, past.about.id)
        )
        carried.add("same" if is_known else "new", len(past.messages))
        progress(carried.sessions, carried.messages)
    return carried


def _store(
    database: StateDatabase, origin: str, batch: list[PastSession], clock: Clock, carried: CarrySums
) -> None:
    if not batch:
        return
    now = iso(clock.now())

    def work(connection: apsw.Connection) -> list[Stored]:
        return [bulk.put(connection, origin, past, now) for past in batch]

    for past, stored in zip(batch, database.write_now(work), strict=True):
        carried.add(stored, len(past.messages))


class TakenOver(msgspec.Struct, frozen=True):
    """`how` is set, copied, saved, installed, let in, added, paused (runs once a person lets it), quarantined
    (kept, not in force until a person accepts it), kept (it was here already) or left; `why` says more."""

    what: str
    how: str
    why: str = ""
