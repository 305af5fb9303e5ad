"""The service's own database file: one writer lane with group commit, and quick reads on the caller's thread.

Every commit is synced before its writers hear of it. Several processes may share the file. This module
knows no table.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from whet.confirm.schema import is_current, migrate
from whet.contract.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnwritable
from whet.sqlite.faults import as_store_error
from whet.sqlite.files import make_private
from whet.sqlite.gather import After, Gather
from whet.sqlite.lane import WriterLane
from whet.sqlite.reading import in_one_state

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

_WAL_LIMIT_BYTES = 64_000_000
_CACHE_KB = 16_000
_STALLED_READ_MS = 1_000
# The writer stands still while it moves the log into the file: most of that is done early, beside it. The log
# stays small, because a sync that lengthens a file takes twice as long as one that writes over it.
_EARLY_PAGES, _CHECKPOINT_PAGES = 500, 2_000
_HINT = "check the folder's permissions, or name another file with --db-path"


class ConfirmDatabase:
    """An open confirmations.db, used from one event loop's thread (`write_now` from any)."""

    def __init__(self, path: Path, connection: apsw.Connection, patience_s: float) -> None:
        self.path = path
        self._connection = connection
        self._lane = WriterLane(
            connection, str(path), int(patience_s * 1000), checkpoint_pages=_CHECKPOINT_PAGES
        )
        self._gather: Gather | None = None
        self._reader: apsw.Connection | None = None
        self._closed = False

    @classmethod
    def open(cls, path: Path, *, patience_s: float = 10.0) -> ConfirmDatabase:
        """Open or make the file (mode 0600) and bring its schema up to date.

        Another process's lock is waited for `patience_s`. Raises SchemaTooNew (the file is left untouched),
        StoreCorrupt, StoreUnwritable, StoreFull, StoreBusy, each with what to do.
        """
        _make_folder(path.parent)
        make_private(path, _HINT)
        connection: apsw.Connection | None = None
        try:
            connection = apsw.Connection(str(path))
            _prepare(connection, path, patience_s)
        except (apsw.Error, StoreError) as error:
            errno = connection.system_errno if connection else 0
            if connection:
                connection.close()
            raise _advised(error, path, errno) from error
        return cls(path, connection, patience_s)

    async def write(self, work: Work[T], after: After | None = None) -> T:
        """Run `work` in a transaction and commit; returns when it is on disk. A cancel undoes nothing.

        Works that are ready together share a commit; each may run twice and must change nothing but the
        database. `after` gets (result, error) before the waiter does, also where that was cancelled.
        """
        loop = asyncio.get_running_loop()
        if self._gather is None or self._gather.loop is not loop:
            self._gather = Gather(loop, self._lane, many_writers=True)
        return await self._gather.small(work, after)

    def write_now(self, work: Work[T]) -> T:
        """Write and wait; for synchronous callers that have the file to themselves on this thread."""
        outcomes = self._lane.try_here((work,))
        if outcomes is None:
            return self._write_queued(work)
        result, error = outcomes[0]
        if error is not None:
            raise error
        return result

    def read(self, work: Work[T]) -> T:
        """Read on the caller's thread in one consistent state; for what an index answers at once."""
        return in_one_state(self._reader or self._open_reader(), work, self.path)

    def read_one(self, sql: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        """Give the first row of one statement, None for none; the quickest read."""
        reader = self._reader or self._open_reader()
        try:
            return reader.execute(sql, values).fetchone()  # type: ignore[arg-type]
        except apsw.Error as error:
            raise as_store_error(error, str(self.path), reader.system_errno) from error

    async def read_long(self, work: Work[T]) -> T:
        """Read on a thread of its own with a connection of its own, for what may take long."""
        return await asyncio.to_thread(self.read_aside, work)

    def read_aside(self, work: Work[T]) -> T:
        """Read with a connection of its own, in one consistent state; from any thread."""
        with contextlib.closing(_reader(self.path)) as reader:
            return in_one_state(reader, work, self.path)

    async def move_log(self) -> None:
        """Move most of a long log into the file, beside the writer, which then has little left to move."""
        if self._lane.log_pages >= _EARLY_PAGES:
            await asyncio.to_thread(self._move_log)

    def _move_log(self) -> None:
        with contextlib.suppress(apsw.Error):  # costs nothing: a later one moves what is left
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            with contextlib.closing(connection):
                connection.pragma("synchronous", "full")
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def other_writes(self) -> int:
        """Give a number that changes whenever anybody, this process included, has committed."""
        reader = self._reader or self._open_reader()
        return int(reader.pragma("data_version"))

    def close(self) -> None:
        """Commit what was submitted and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lane.close()
        if self._reader is not None:
            self._reader.close()
        self._connection.close()

    def _write_queued(self, work: Work[T]) -> T:
        async def wait() -> T:
            return await Gather(asyncio.get_running_loop(), self._lane).large(work)

        return asyncio.run(wait())

    def _open_reader(self) -> apsw.Connection:
        if self._closed:
            raise StoreError("the database is closed")
        self._reader = _reader(self.path)
        return self._reader


def _reader(path: Path) -> apsw.Connection:
    try:
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise as_store_error(error, str(path)) from error
    reader.set_busy_timeout(_STALLED_READ_MS)
    reader.pragma("query_only", True)
    reader.pragma("cache_size", -_CACHE_KB)
    return reader


def _prepare(connection: apsw.Connection, path: Path, patience_s: float) -> None:
    connection.set_busy_timeout(int(patience_s * 1000))
    if connection.readonly("main"):
        raise StoreUnwritable(f"{path} can't be written")
    current = is_current(connection, str(path))
    if connection.pragma("journal_mode") != "wal":
        connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("journal_size_limit", _WAL_LIMIT_BYTES)
    connection.pragma("cache_size", -_CACHE_KB)
    if not current:
        migrate(connection, str(path))
    # A lock that somebody holds for good must stop the start, not the first request.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def _advised(error: apsw.Error | StoreError, path: Path, errno: int) -> StoreError:
    known = error if isinstance(error, StoreError) else as_store_error(error, str(path), errno)
    if isinstance(known, StoreCorrupt):
        known.hint = (
            f"move it away (mv {path} {path}.broken) and restore a backup; without one, start anew: "
            "what was pending is then denied"
        )
    elif isinstance(known, StoreBusy):
        known.hint = f"another process holds a lock on it: see which one (fuser {path}) and stop that"
    elif isinstance(known, StoreUnwritable):
        known.hint = "check the owner and mode of the file and its folder, or name another with --db-path"
    return known


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreUnwritable(f"can't make {folder}: {error.strerror}", hint=_HINT) from error
