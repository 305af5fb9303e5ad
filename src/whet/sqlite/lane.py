"""The writer lane: one connection, one thread, group commit.

A write is a function that receives the connection, or plain rows. All writes that wait when the lane becomes
free are committed together, with one fsync; the rows of neighbouring writes go to SQLite as one list for each
statement. If one write of a batch fails, the batch is rolled back and its writes are committed one by one, so
that only the failing one is undone. A function may therefore run twice and must change nothing but the
database. The lane knows nothing about tables or event loops (`batching.py` passes it the writes of a loop).
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import apsw
import msgspec

from whet.contract.errors import StoreBusy, StoreError
from whet.sqlite.faults import FAULTS, translate_error


class RowStatement(msgspec.Struct, frozen=True, eq=False):
    """One SQL statement for plain rows. If a row already exists, `conflict` and `hint` are the error that a
    person reads. `is_synced`: see `ScopedWrite`."""

    sql: str
    conflict: str = ""
    hint: str = ""
    is_synced: bool = True

    def write(self, connection: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write these rows. Raises StoreBusy if one already exists."""
        if not isinstance(connection, apsw.Connection):  # pyright: ignore[reportUnnecessaryIsInstance] a team's has the same calls
            return connection.write_rows(self, rows)
        try:
            connection.executemany(self.sql, rows)
        except apsw.ConstraintError as error:
            raise StoreBusy(self.conflict, hint=self.hint) from error


Rows: TypeAlias = tuple[tuple[RowStatement, tuple[Any, ...]], ...]
"""Statements with the values of each, in their order. Across the writes of one batch only the order of the
statements is kept, so rows of different writes must not depend on each other. Their result is None."""
Write: TypeAlias = Callable[[apsw.Connection], Any] | Rows


class ScopedWrite(msgspec.Struct, frozen=True):
    """A function that reads and writes one thing only, such as a session, which `scope` names. In a team,
    writes of different scopes may run at the same time in different processes. If `is_synced` is False, it is
    synced with the file's next synced commit: until then a power cut may undo it, but not the end of the
    process."""

    scope: str
    function: Callable[[apsw.Connection], Any]
    is_synced: bool = True

    def __call__(self, connection: apsw.Connection) -> Any:
        """Call the function."""
        return self.function(connection)


Outcome = tuple[Any, BaseException | None]
Deliver = Callable[[Sequence[Outcome]], None]

CHECKPOINT_PAGES = 1000
_MAX_GROUP = 256
_CHECK_EVERY = 16  # commits; checking the log's size after each one by a hook costs a tenth of an append
_QUICK_COMMIT_S = 0.002
_WRITTEN: Outcome = (None, None)
_now_s = time.perf_counter


def _must_sync(write: Write) -> bool:
    if callable(write):
        return not isinstance(write, ScopedWrite) or write.is_synced
    return any(statement.is_synced for statement, _ in write)


def _run(connection: apsw.Connection, writes: Sequence[Write]) -> list[Outcome]:
    """Run writes in their order. Rows are buffered up to the next function or the end."""
    outcomes: list[Outcome] = []
    rows: dict[RowStatement, list[tuple[Any, ...]]] = {}
    for write in writes:
        if not callable(write):
            for statement, values in write:
                if statement in rows:
                    rows[statement].append(values)
                else:
                    rows[statement] = [values]
            outcomes.append(_WRITTEN)
            continue
        if rows:
            _write_rows(connection, rows)
        outcomes.append((write(connection), None))
    if rows:
        _write_rows(connection, rows)
    return outcomes


def _write_rows(connection: apsw.Connection, rows: dict[RowStatement, list[tuple[Any, ...]]]) -> None:
    """Write the buffered rows and clear the buffer."""
    for statement, values in rows.items():
        statement.write(connection, values)
    rows.clear()


class _NotBegun(Exception):
    """Another process holds the write lock; nothing was done."""


class _Capture:
    """Stores an exception for the waiter of the result instead of letting it end the thread."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> _Capture:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class GroupLane(ABC):
    """One thread that commits writes in the order they were queued, batching all that wait."""

    name = ""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Sequence[Write], Deliver] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._closed = False

    def put(self, writes: Sequence[Write], deliver: Deliver) -> None:
        """Queue `writes`. `deliver` is called on the lane's thread with their outcomes after the commit."""
        with self._start_lock:
            if self._closed:
                raise StoreError("the database is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            self._queue.put((writes, deliver))

    def try_here(self, writes: Sequence[Write]) -> list[Outcome] | None:
        """Commit writes on the caller's thread, or do nothing and return None if it would have to wait."""
        return None

    def close(self) -> None:
        """Commit the queued writes and stop the thread."""
        with self._start_lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._serve():
            pass  # no reference to a batch is kept while the lane waits for the next one

    def _serve(self) -> bool:
        """Wait for writes and commit all that are queued. Returns False when there will be no more."""
        items: list[tuple[Sequence[Write], Deliver]] = []
        writes: list[Write] = []
        item = self._queue.get()
        while item is not None:
            items.append(item)
            writes += item[0]
            if len(writes) >= _MAX_GROUP or self._queue.empty():
                break
            item = self._queue.get()
        outcomes = self._commit_group(writes)
        begin = 0
        for group, deliver in items:
            deliver(outcomes[begin : begin + len(group)])
            begin += len(group)
        return item is not None

    @abstractmethod
    def _commit_group(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit writes, possibly an empty list, on the lane's thread."""


class WriterLane(GroupLane):
    """Commits writes in the order they were queued, many in one transaction. The connection stays open."""

    name = "store-lane"

    def __init__(
        self,
        connection: apsw.Connection,
        path: str,
        patience_ms: int,
        *,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._path = path
        self._write_lock = threading.Lock()
        # used under the lock; creating one for each commit would cost one per cent
        self._capture = _Capture()
        self._patience_ms = patience_ms
        self._timeout_ms = -1
        self._is_full = True
        self._pace_s = 0.0
        self._commits = 0
        self._checkpointed_pages = 0
        self._checkpoint_pages = checkpoint_pages
        self.log_pages = 0
        """The pages in the log at the last check, including those already checkpointed."""
        self.before_commit: Callable[[apsw.Connection], object] | None = None
        """Called at the end of each transaction of functions. If it fails, they are undone."""
        connection.wal_autocheckpoint(0)

    def try_here(self, writes: Sequence[Write]) -> list[Outcome] | None:
        """Commit `writes` on the caller's thread if no other thread is writing and the disk has been quick.

        Returns None if nothing was done; then queue them with `put`. Saves two thread switches, which on a
        fast disk cost as much as the commit. A slow disk never blocks the caller for long: one slow commit
        turns this off for a while, and it does not wait for another process's lock.
        """
        if self._closed or not self._queue.empty():
            return None
        if self._pace_s > _QUICK_COMMIT_S:
            self._pace_s *= 0.7  # forget the slow commit gradually, then try this thread again
            return None
        if not self._write_lock.acquire(False):
            return None
        try:
            if self._timeout_ms:
                self._set_timeout(0)
            outcomes = self._commit(writes)
            self._commits += 1
            wants_checkpoint = self._commits % _CHECK_EVERY == 0 and self._wants_checkpoint()
        except _NotBegun:
            return None
        finally:
            self._write_lock.release()
        if wants_checkpoint:
            self.put((), lambda _outcomes: None)  # a batch of nothing lets the lane's thread do it
        return outcomes

    def set_journal(self, mode: str) -> None:
        """Change the file's journal mode between commits. Raises apsw.Error if another connection reads."""
        with self._write_lock:
            self._set_timeout(self._patience_ms if mode == "wal" else 0)
            self._connection.pragma("journal_mode", mode)

    def _commit_group(self, writes: Sequence[Write]) -> list[Outcome]:
        with self._write_lock:
            outcomes = self._commit_patiently(writes) if writes else []
            if self._wants_checkpoint():
                self._checkpoint()
        return outcomes

    def _commit_patiently(self, writes: Sequence[Write]) -> list[Outcome]:
        self._set_timeout(self._patience_ms)
        try:
            return self._commit(writes)
        except _NotBegun as refused:
            return [(None, self._translate(refused.__cause__))] * len(writes)

    def _commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit all writes in one transaction or, after a failure, each in its own. Raises _NotBegun."""
        began = _now_s()
        capture = self._capture
        with capture:
            outcomes = self._run_all(writes)
            if self._is_full:
                self._pace_s = 0.8 * self._pace_s + 0.2 * (_now_s() - began)
            return outcomes
        error, capture.error = capture.error, None
        if isinstance(error, _NotBegun):
            raise error
        if len(writes) == 1:
            return [(None, self._translate(error))]
        return [outcome for write in writes for outcome in self._commit_patiently((write,))]

    def _run_all(self, writes: Sequence[Write]) -> list[Outcome]:
        connection = self._connection
        first = writes[0]
        self._set_sync(any(map(_must_sync, writes)))
        try:
            if len(writes) == 1 and not callable(first) and len(first) == 1:
                statement, values = first[0]
                statement.write(connection, (values,))  # a transaction by itself, saving two statements
                return [_WRITTEN]
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise _NotBegun from error
        try:
            outcomes = _run(connection, writes)
            if self.before_commit is not None:
                self.before_commit(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes

    def _set_timeout(self, milliseconds: int) -> None:
        if milliseconds != self._timeout_ms:
            self._connection.set_busy_timeout(milliseconds)
            self._timeout_ms = milliseconds

    def _set_sync(self, is_full: bool) -> None:
        """Sync the log on each commit from now on, or leave it to a later commit, which syncs all before it
        (https://sqlite.org/pragma.html#pragma_synchronous)."""
        if is_full != self._is_full:
            self._connection.execute(f"PRAGMA synchronous = {'full' if is_full else 'normal'}")
            self._is_full = is_full

    def _translate(self, error: BaseException | None) -> BaseException:
        if isinstance(error, FAULTS):
            store_error = translate_error(error, self._path, self._connection.system_errno)
            store_error.__cause__ = error
            return store_error
        return error or StoreError("a write gave neither result nor error")

    def _count_page_writes(self) -> int:
        return self._connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _wants_checkpoint(self) -> bool:
        self.log_pages = self._count_page_writes() - self._checkpointed_pages
        return self.log_pages >= self._checkpoint_pages

    def _checkpoint(self) -> None:
        """Move the log into the file. A failure is harmless; a later checkpoint moves the rest."""
        self._checkpointed_pages = self._count_page_writes()
        self.log_pages: int = 0
        with _Capture():
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
