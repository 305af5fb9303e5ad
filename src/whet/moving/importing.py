"""Store the sessions of another program, many per transaction, and count the outcomes.

Committed batches survive a crash or Ctrl-C, and the next run continues after them. This module does not know
which program the sessions come from.
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
"""Called with the number of sessions and messages handled so far."""
Consent = Callable[[str, str], bool]
"""Asks the person a question about a text, which is shown whole. Returns whether the answer is yes."""


class ImportCounts(msgspec.Struct):
    """Counts of an import: sessions by outcome, and messages.

    A session is new, has grown, is the same as the stored one, or was changed on both sides and is left
    alone.
    """

    new: int = 0
    grown: int = 0
    same: int = 0
    changed: int = 0
    messages: int = 0

    @property
    def sessions(self) -> int:
        """The number of sessions handled."""
        return self.new + self.grown + self.same + self.changed

    def add(self, stored: Stored, messages: int) -> None:
        """Count one session."""
        setattr(self, stored, getattr(self, stored) + 1)
        self.messages += messages


def import_sessions(
    database: StateDatabase, origin: str, sessions: Iterable[PastSession], clock: Clock, progress: Progress
) -> ImportCounts:
    """Store `sessions` and index them for search. Each batch is durable once committed."""
    counts, size = ImportCounts(), 0
    batch: list[PastSession] = []
    for past in sessions:
        batch.append(past)
        size += len(past.messages)
        if size >= _BATCH_MESSAGES:
            _store(database, origin, batch, clock, counts)
            progress(counts.sessions, counts.messages)
            batch, size = [], 0
    _store(database, origin, batch, clock, counts)
    progress(counts.sessions, counts.messages)
    while database.write_now(_index_some):
        pass
    return counts


def _index_some(connection: apsw.Connection) -> bool:
    """Index many small batches in one commit; no other process waits for the database during an import."""
    return all(index.index_batch(connection) for _ in range(_INDEX_BATCHES))


def preview_sessions(
    database: StateDatabase | None, origin: str, sessions: Iterable[PastSession], progress: Progress
) -> ImportCounts:
    """Count the outcomes of an import without storing anything. Without a database every session is new."""
    counts = ImportCounts()
    for past in sessions:
        is_known = database is not None and database.read_now(
            lambda db, past=past: bulk.is_known(db, origin, past.header.id)
        )
        counts.add("same" if is_known else "new", len(past.messages))
        progress(counts.sessions, counts.messages)
    return counts


def _store(
    database: StateDatabase, origin: str, batch: list[PastSession], clock: Clock, counts: ImportCounts
) -> None:
    if not batch:
        return
    now = iso(clock.now())

    def store_batch(connection: apsw.Connection) -> list[Stored]:
        return [bulk.store_session(connection, origin, past, now) for past in batch]

    for past, stored in zip(batch, database.write_now(store_batch), strict=True):
        counts.add(stored, len(past.messages))


class ImportOutcome(msgspec.Struct, frozen=True):
    """The outcome of importing one item.

    `result` is set, copied, saved, installed or let in; "added, paused" for a schedule that a person has to
    start; quarantined if a person has to accept the item; kept if it was here already; or left if it can't be
    imported.
    """

    item: str = msgspec.field(name="what")
    result: str = msgspec.field(name="how")
    detail: str = msgspec.field(default="", name="why")
