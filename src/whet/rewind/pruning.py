"""Deletes old records: those past their age, and the oldest if the file is full; then all data that only they
used.

The current state and all data that the remaining records need is kept, whatever its age.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import apsw

from whet.rewind import database
from whet.rewind.database import OPEN, RecordFile
from whet.rewind.linked import remove_unused
from whet.rewind.states import RecordLimits

_DAY_MS = 86_400_000
_KEPT = 0.7


def prune_old(file: RecordFile, limits: RecordLimits, now_ms: int) -> int:
    """Delete the records that are older than the limit, and return how many there were."""
    gone = file.write_now(partial(_drop, where="at_ms < ?", value=now_ms - limits.days * _DAY_MS))
    if gone:
        file.read_now(remove_unused)
    return gone


def prune(file: RecordFile, limits: RecordLimits, now_ms: int) -> int:
    """Delete the records that are too old, then the older half until there is room. Returns how many were
    deleted."""
    gone = prune_old(file, limits, now_ms)
    while file.read_now(database.used_bytes) > limits.total_bytes * _KEPT:
        middle = file.read_now(_find_middle)
        if middle is None:
            break
        gone += file.write_now(partial(_drop, where="id <= ?", value=middle))
        file.read_now(remove_unused)
    return gone


def forget_sessions(file: RecordFile, sessions: Collection[str]) -> int:
    """Delete the records of sessions and the data that only they used. If no record is left, delete
    everything.

    The file is rewritten, so that none of it stays in the file. Call it while holding the workspace's
    lock.
    """
    gone = sum(file.write_now(partial(_drop, where="session = ?", value=session)) for session in sessions)
    if gone:
        file.write_now(_clear_without_records)
        file.read_now(remove_unused)
        file.compact()
    return gone


def _find_middle(connection: apsw.Connection) -> int | None:
    row = connection.execute(
        "SELECT id FROM records ORDER BY id LIMIT 1 OFFSET (SELECT (count(*) - 1) / 2 FROM records)"
    ).fetchone()
    return row[0] if row else None


def _drop(connection: apsw.Connection, where: str, value: int | str) -> int:
    condition = f"{where} AND (after IS NOT NULL OR kind = 'step')"
    if connection.execute(f"SELECT 1 FROM records WHERE {condition} LIMIT 1", (value,)).fetchone() is None:
        return 0
    database.keep_numbers(connection)
    connection.execute(f"DELETE FROM records WHERE {condition}", (value,))
    count = connection.changes()
    _delete_unused(connection)
    return count


def _clear_without_records(connection: apsw.Connection) -> None:
    if connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None:
        database.set_fact(connection, "version", database.read_version(connection) + 1)
        database.defer_folders(connection, ())
        for table in ("entries", "parts", "blobs"):
            connection.execute(f"DELETE FROM {table}")


def _delete_unused(connection: apsw.Connection) -> None:
    """Delete the states that neither a record nor the present needs, then the contents that no state
    needs."""
    row = connection.execute("SELECT min(before) FROM records").fetchone()
    oldest = row[0] if row and row[0] is not None else OPEN
    connection.execute(f"DELETE FROM entries WHERE until <= ? AND until < {OPEN}", (oldest,))
    connection.execute(
        "DELETE FROM parts WHERE hash NOT IN (SELECT content FROM entries WHERE kind = 'file')"
    )
    connection.execute(
        "DELETE FROM blobs WHERE hash NOT IN (SELECT content FROM entries WHERE kind = 'file')"
        " AND hash NOT IN (SELECT part FROM parts)"
    )
