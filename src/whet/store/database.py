"""The session database: one SQLite file in WAL mode with synchronous=FULL, shared by several processes.

Writes go through the lane (`lane.py`), reads run on their own connections, so neither waits for the other.
This module knows no table; the functions that do are passed in as `work`. A work gets a connection inside
a transaction, may run twice, must change nothing else, and must not keep the connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from whet.clock import Clock, iso
from whet.contract.errors import StoreBusy, StoreError, StoreUnwritable
from whet.sqlite.faults import as_store_error
from whet.sqlite.files import make_private
from whet.sqlite.gather import After, Gather
from whet.sqlite.lane import Outcome, Rows, WriterLane
from whet.sqlite.reading import in_one_state
from whet.store.migrations import is_current, migrate

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

_READERS = 4
_READER_CACHE_KB = 16_000
_WAL_LIMIT_BYTES = 16_000_000


class StateDatabase:
    """An open state.db. Safe to use from any thread and event loop."""

    def __init__(self, path: Path, connection: apsw.Connection, patience_s: float) -> None:
        self.path = path
        self._connection = connection
        self._patience_ms = int(patience_s * 1000)
        self._lane = WriterLane(connection, str(path), self._patience_ms)
        self._gather: Gather | None = None
        self._idle_readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    @classmethod
    def open(cls, path: Path, clock: Clock, *, patience_s: float = 10.0) -> StateDatabase:
        """Open or make the file (mode 0600) and bring its schema up to date.

        Another process's lock is waited for `patience_s`.
        Raises SchemaTooNew (the file is left untouched), StoreCorrupt, StoreUnwritable, StoreFull, StoreBusy.
        """
        make_private(path, "check the folder's permissions, or set WHET_HOME to one that you can write")
        try:
            connection = apsw.Connection(str(path))
        except apsw.Error as error:
            raise as_store_error(error, str(path)) from error
        try:
            connection.set_busy_timeout(int(patience_s * 1000))
            if connection.readonly("main"):
                raise StoreUnwritable(
                    f"{path} can't be written",
                    hint="check its permissions, or set WHET_HOME to another folder",
                )
            current = is_current(connection, str(path))
            if connection.pragma("journal_mode") != "wal":
                connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.pragma("journal_size_limit", _WAL_LIMIT_BYTES)
            if not current:
                migrate(connection, str(path), iso(clock.now()))
        except apsw.Error as error:
            errno = connection.system_errno
            connection.close()
            raise as_store_error(error, str(path), errno) from error
        except StoreError:
            connection.close()
            raise
        return cls(path, connection, patience_s)

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue a write; the future is done after its commit is on disk, or has a StoreError."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def deliver(outcomes: Sequence[Outcome]) -> None:
            result, error = outcomes[0]
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._lane.put((work,), deliver)
        return future

    async def write(self, work: Work[T]) -> T:
        """Write on the lane's thread, however long it takes. A cancel leaves, and undoes nothing."""
        return await self._gather_here().large(work)

    async def append(self, work: Work[T] | Rows, after: After | None = None) -> T:
        """Write a few rows; returns when they are on disk. A cancel leaves, and undoes nothing.

        Those begun in one pass of the loop share a commit. `after` gets (result, error) on the loop's
        thread before the waiter does, and also where that was cancelled.
        """
        return await self._gather_here().small(work, after)

    def write_now(self, work: Work[T]) -> T:
        """Write and wait; for synchronous callers."""
        outcomes = self._lane.try_here((work,))
        if outcomes is None:
            return self.submit(work).result()
        result, error = outcomes[0]
        if error is not None:
            raise error
        return result

    async def read(self, work: Work[T]) -> T:
        """Read on a thread with a connection of its own; sees one consistent state."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="store-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, work)

    def read_now(self, work: Work[T]) -> T:
        """Read on the caller's thread; sees one consistent state."""
        reader = self._take_reader()
        try:
            return in_one_state(reader, work, self.path)
        finally:
            with self._readers_lock:
                self._idle_readers.append(reader)

    def scrub(self) -> None:
        """Write the file anew without what was deleted, and cut its log: none of it is on the disk then.

        Takes a second for some hundred megabytes, and as much room again. Raises StoreBusy where others
        keep on using the file, StoreFull.
        """
        try:
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(self._patience_ms)
                connection.execute("VACUUM")
                is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            finally:
                connection.close()
        except apsw.Error as error:
            raise as_store_error(error, str(self.path)) from error
        if is_busy:
            raise StoreBusy("other processes are using the database", hint="ask again in a moment")

    def close(self) -> None:
        """Commit what was submitted and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lane.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        for reader in self._idle_readers:
            reader.close()
        self._connection.close()

    def _gather_here(self) -> Gather:
        loop = asyncio.get_running_loop()
        gather = self._gather
        if gather is None or gather.loop is not loop:
            gather = self._gather = Gather(loop, self._lane)
        return gather

    def _take_reader(self) -> apsw.Connection:
        with self._readers_lock:
            if self._closed:
                raise StoreError("the database is closed")
            if self._idle_readers:
                return self._idle_readers.pop()
        try:
            reader = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise as_store_error(error, str(self.path)) from error
        reader.set_busy_timeout(self._patience_ms)
        reader.pragma("query_only", True)
        reader.pragma("cache_size", -_READER_CACHE_KB)
        return reader
