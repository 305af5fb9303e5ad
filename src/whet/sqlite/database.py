"""An open SQLite file of ours: WAL, synchronous=FULL, its schema up to date. Several processes may share it.

Writes go through the lane (`lane.py`), reads run on their own connections, so neither waits for the other.
This module knows no table. Callers pass the function that reads or writes as `work`: it receives a
connection inside a transaction, may run twice, must change nothing else, and must not keep the connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import apsw
import msgspec

from whet.contract.errors import SchemaTooNew, StoreError, StoreFull, StoreUnwritable
from whet.sqlite.batching import After, WriteBatcher
from whet.sqlite.faults import DISK_FULL, FAULTS, translate_error
from whet.sqlite.lane import CHECKPOINT_PAGES, GroupLane, Outcome, Rows, WriterLane

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

_READER_CACHE_KB = 16_000
_DELAY_S = 0.25
_BUSY_PAUSE_S = 0.01


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of one kind of file: the numbered steps of its schema (SQL), sizes, and hints for
    people."""

    steps: Sequence[str]
    step_names: Sequence[str] = ()
    """If given, the table `migrations` records which step was applied when."""
    newer_hint: str
    """The alternative to an upgrade if a newer version wrote the file."""
    access_hint: str
    wal_limit_bytes: int
    page_bytes: int = 4096
    """Of a new file. A commit writes each page that it touches whole."""
    checkpoint_pages: int = CHECKPOINT_PAGES
    writer_cache_kb: int = 0
    read_patience_s: float | None = None
    """How long a read waits for a lock, in seconds; None: as long as a write."""
    many_writers: bool = False


class DatabaseFile:
    """An open file. Safe to use from any thread and event loop."""

    layout: ClassVar[Layout]
    writer: ClassVar[type[apsw.Connection]] = apsw.Connection
    _file_id: tuple[int, int] | None = None
    _source: str = ""
    """The URI that readers open if the file can't be written."""
    _copy: TemporaryDirectory[str] | None = None
    """The private copy of such a file that they read, if there is one."""

    def __init__(self, path: Path, connection: apsw.Connection, patience_s: float) -> None:
        self.path = path
        self._file_id = _identify(path)
        self._connection = connection
        self._patience_ms = int(patience_s * 1000)
        pages = self.layout.checkpoint_pages
        self._lane = WriterLane(connection, str(path), self._patience_ms, checkpoint_pages=pages)
        self._batchers: dict[GroupLane, WriteBatcher] = {}
        self._idle_readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()
        self._later: dict[Work[bool], asyncio.AbstractEventLoop] = {}
        self._closed = False

    @classmethod
    def open_file(cls, path: Path, now: str, patience_s: float) -> Self:
        """Open or create the file (mode 0600) and bring its schema up to date.

        Waits up to `patience_s` for another process's lock. Raises SchemaTooNew (the file is left
        untouched), StoreCorrupt, StoreUnwritable, StoreFull, StoreBusy.
        """
        _make_private(path, cls.layout.access_hint)
        connection: apsw.Connection | None = None
        try:
            connection = cls.writer(str(path), statementcachesize=256)
            _prepare(connection, path, cls.layout, now, patience_s)
        except (apsw.Error, StoreError) as error:
            errno = connection.system_errno if connection else 0
            if connection:
                connection.close()
            store_error = error if isinstance(error, StoreError) else translate_error(error, str(path), errno)
            raise cls.add_hint(store_error, path) from error
        return cls(path, connection, patience_s)

    @classmethod
    def open_unwritable(cls, path: Path, patience_s: float) -> Self:
        """Open a file that this process may only read. Writes raise StoreUnwritable.

        Raises StoreUnwritable if its schema must be updated first, SchemaTooNew, StoreCorrupt.
        """
        from whet.sqlite.unwritable import open_readable  # noqa: PLC0415 - hardly any file is one

        try:
            connection, source, copy = open_readable(path)
        except (apsw.Error, OSError) as error:
            problem = translate_error(error, str(path)) if isinstance(error, apsw.Error) else None
            raise problem or StoreUnwritable(f"can't read {path}: {error}") from error
        if not _is_current(connection, path, cls.layout):
            connection.close()
            raise StoreUnwritable(f"{path} can't be written and needs an update", hint=cls.layout.access_hint)
        database = cls(path, connection, patience_s)
        database._source, database._copy = source, copy
        return database

    @classmethod
    def add_hint(cls, error: StoreError, path: Path) -> StoreError:
        """Return the error to raise if opening failed, with a better hint if a subclass has one."""
        return error

    @property
    def is_file_lost(self) -> bool:
        """Whether the file was deleted or replaced since it was opened. Later writes are lost."""
        return self._file_id is not None and _identify(self.path) != self._file_id

    async def append(self, work: Work[T] | Rows, after: After | None = None, scope: str = "") -> T:
        """Write a few rows; returns when they are on disk. A cancel stops waiting but undoes nothing.

        Writes begun in one pass of the loop share a commit. `after` receives (result, error) on the loop's
        thread before the waiter does, even if the waiter was cancelled. In a team, writes of different scopes
        may be committed in another order.
        """
        return await self._get_batcher(scope).write_small(work, after)

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue a write. The future is done after its commit is on disk, or has a StoreError."""
        return self._put(self._lane, work)

    def _put(self, lane: GroupLane, work: Work[T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def deliver(outcomes: Sequence[Outcome]) -> None:
            result, error = outcomes[0]
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        lane.put((work,), deliver)
        return future

    def submit_aside(self, work: Work[T]) -> Future[T]:
        """Queue a write that nobody waits for, as `submit` does. In a team it delays no other write."""
        return self.submit(work)

    def submit_later(self, work: Work[bool]) -> None:
        """Queue a write to run within a quarter of a second, at the latest on close. Further requests until
        then are merged into it. A write that returns True runs again. After a failure the next caller must
        request it again."""
        waiting_loop = self._later.get(work)
        if waiting_loop is not None and not waiting_loop.is_closed():
            return
        try:
            loop = self._later[work] = asyncio.get_running_loop()
        except RuntimeError:  # there is no running loop
            self._submit_again(work)
        else:
            loop.call_later(_DELAY_S, self._submit_again, work)

    def _submit_delayed_writes(self) -> None:
        for work in tuple(self._later):
            self._submit_again(work)

    def _submit_again(self, work: Work[bool]) -> None:
        def run_again(future: Future[bool]) -> None:
            if future.exception() is None and future.result():
                self._submit_again(work)

        self._later.pop(work, None)
        with suppress(StoreError):  # the database was closed meanwhile
            self.submit_aside(work).add_done_callback(run_again)

    def write_now(self, work: Work[T]) -> T:
        """Write and wait; for synchronous callers."""
        outcomes = self._lane.try_here((work,))
        if outcomes is None:
            return self.submit(work).result()
        result, error = outcomes[0]
        if error is not None:
            raise error
        return result

    def read_now(self, work: Work[T]) -> T:
        """Read on the caller's thread; sees one consistent state. Raises StoreError."""
        reader = self._take_reader()
        try:
            reader.execute("BEGIN")
            try:
                result = work(reader)
            finally:
                if reader.in_transaction:
                    reader.execute("ROLLBACK")
        except BaseException as error:
            error_number = reader.system_errno
            reader.close(True)  # a cursor in the traceback would keep it at the state that it read
            if isinstance(error, FAULTS):
                raise translate_error(error, str(self.path), error_number) from error
            raise
        self._return_reader(reader)
        return result

    @contextmanager
    def without_log(self) -> Generator[None]:
        """Bypass the write-ahead log inside the block, so that filling a new file writes each page once.

        A crash leaves the file as it was before the transaction. While another process has the file open, the
        log stays in use.
        """
        self._set_journal("truncate")
        try:
            yield
        finally:
            self._set_journal("wal")

    def _set_journal(self, mode: str) -> None:
        with self._readers_lock:
            readers, self._idle_readers = self._idle_readers, []
        for reader in readers:  # an open one keeps the log in use
            reader.close()
        with suppress(apsw.Error):
            self._lane.set_journal(mode)

    def close(self) -> None:
        """Commit the submitted writes and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._submit_delayed_writes()
        self._lane.close()
        self._wait_for_readers()
        for reader in self._idle_readers:
            reader.close()
        self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _wait_for_readers(self) -> None:
        """Wait for reads on threads that this object owns."""

    def _on_commit(self) -> None:
        """Handle a commit of appended rows, before its waiters continue. Subclasses override it."""

    def _get_batcher(self, scope: str = "") -> WriteBatcher:
        loop, lane = asyncio.get_running_loop(), self._lane_of(scope)
        batcher = self._batchers.get(lane)
        if batcher is None or batcher.loop is not loop:
            many = self.layout.many_writers
            batcher = self._batchers[lane] = WriteBatcher(loop, lane, self._on_commit, many_writers=many)
        return batcher

    def _lane_of(self, scope: str) -> GroupLane:
        """Return the lane that writes what `scope` names."""
        return self._lane

    def _take_reader(self) -> apsw.Connection:
        with self._readers_lock:
            if self._closed:
                raise StoreError("the database is closed")
            if self._idle_readers:
                return self._idle_readers.pop()
        reader = self._connect()
        patience_s = self.layout.read_patience_s
        reader.set_busy_timeout(self._patience_ms if patience_s is None else int(patience_s * 1000))
        reader.pragma("query_only", True)
        reader.pragma("cache_size", -_READER_CACHE_KB)
        return reader

    def _return_reader(self, reader: apsw.Connection) -> None:
        with self._readers_lock:
            self._idle_readers.append(reader)

    def _connect(self) -> apsw.Connection:
        try:
            if self._source:
                return apsw.Connection(self._source, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            return apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise translate_error(error, str(self.path)) from error


def _identify(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_private(path: Path, hint: str) -> None:
    """Create the file, or remove others' rights on it, before SQLite writes the first byte.

    An existing file is never opened here: closing it would drop the locks of this process's other
    connections (POSIX locks belong to the process, not to the descriptor).
    """
    try:
        try:
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        except FileNotFoundError:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreFull(f"no space is left to make {path}", hint="free some disk space") from error
        raise StoreUnwritable(f"can't open {path} for writing: {error.strerror}", hint=hint) from error


def _prepare(connection: apsw.Connection, path: Path, layout: Layout, now: str, patience_s: float) -> None:
    connection.set_busy_timeout(int(patience_s * 1000))
    if connection.readonly("main"):
        raise StoreUnwritable(f"{path} can't be written", hint=layout.access_hint)
    current = _is_current(connection, path, layout)
    connection.pragma("page_size", layout.page_bytes)  # holds for an empty file only
    _switch_to_wal(connection, patience_s)
    connection.pragma("synchronous", "full")
    connection.pragma("journal_size_limit", layout.wal_limit_bytes)
    if layout.writer_cache_kb:
        connection.pragma("cache_size", -layout.writer_cache_kb)
    if not current:
        _migrate(connection, path, layout, now)


def _switch_to_wal(connection: apsw.Connection, patience_s: float) -> None:
    """Switch a new file to a write-ahead log. SQLite itself does not wait here for a transaction of another
    process that opens the file at the same time."""
    until_s = time.monotonic() + patience_s
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_BUSY_PAUSE_S)


def _is_current(connection: apsw.Connection, path: Path, layout: Layout) -> bool:
    """Return whether every step was applied. Raises SchemaTooNew; writes nothing."""
    version, newest = int(connection.pragma("user_version")), len(layout.steps)
    if version > newest:
        raise SchemaTooNew(
            f"{path} was written by a newer Whet (schema {version}, this one knows {newest})",
            hint=f"upgrade Whet, or {layout.newer_hint}",
        )
    return version == newest


def _migrate(connection: apsw.Connection, path: Path, layout: Layout, now: str) -> None:
    """Apply the missing steps, all or nothing. Waits for another process that does the same."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(connection, path, layout):
            if layout.step_names:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT NOT NULL)"
                )
            for number in range(int(connection.pragma("user_version")), len(layout.steps)):
                connection.execute(layout.steps[number])
                if layout.step_names:
                    values = (layout.step_names[number], now)
                    connection.execute("INSERT INTO migrations VALUES (?, ?)", values)
                connection.pragma("user_version", number + 1)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
