"""The writer lane: one connection, one thread, group commit.

Everything that waits when the lane becomes free is committed together, with one fsync. A batch in which
one work fails is rolled back whole and its works are committed one by one, so that only the failing one
is undone; a work may therefore run twice and must change nothing but the database. The lane knows nothing
about tables or event loops (`gather.py` brings it the writes of a loop).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import apsw

from whet.contract.errors import StoreError
from whet.sqlite.faults import as_store_error

Work = Callable[[apsw.Connection], Any]
Outcome = tuple[Any, BaseException | None]
Deliver = Callable[[Sequence[Outcome]], None]

CHECKPOINT_PAGES = 1000
_GROUP_MAX = 256
_QUICK_COMMIT_S = 0.002


class _Capture:
    """Holds an exception for the one who waits for the result instead of letting it end the thread."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> _Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


class Lane:
    """Commits works in the order they were put, many in one transaction."""

    def __init__(self, connection: apsw.Connection, path: str, patience_ms: int) -> None:
        self._connection = connection
        self._path = path
        self._held = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Sequence[Work], Deliver] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        self._closed = False
        self._patience_ms = patience_ms
        self._timeout_ms = -1
        self._pace_s = 0.0
        self._wal_pages = 0
        self._checkpoint_queued = False
        connection.set_wal_hook(self._note_wal)

    def put(self, works: Sequence[Work], deliver: Deliver) -> None:
        """Queue `works`; `deliver` is called on the lane's thread with their outcomes after the commit."""
        with self._start:
            if self._closed:
                raise StoreError("the database is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-lane", daemon=True)
                self._thread.start()
            self._queue.put((works, deliver))

    def try_here(self, works: Sequence[Work]) -> list[Outcome] | None:
        """Commit `works` on the caller's thread if nobody else is writing and the disk has been quick.

        None: nothing was done, put them. Saves the two thread switches, which on a fast disk cost as
        much as the commit. A slow disk never blocks the caller for long: one slow commit turns this off
        for a while, and another process's lock is not waited for.
        """
        if self._closed or not self._is_quick() or not self._queue.empty():
            return None
        if not self._held.acquire(blocking=False):
            return None
        try:
            if not self._begin_at_once():
                return None
            outcomes = self._complete(works)
        finally:
            self._held.release()
        if self._wal_pages >= CHECKPOINT_PAGES and not self._checkpoint_queued:
            self._checkpoint_queued = True
            self.put((), lambda _outcomes: None)
        return outcomes

    def close(self) -> None:
        """Commit what is queued and stop the thread. The connection stays open."""
        with self._start:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._serve():
            pass  # nothing of a batch stays referenced while the lane waits for the next one

    def _serve(self) -> bool:
        """Wait for writes and commit all that are queued; False when there will be no more."""
        items: list[tuple[Sequence[Work], Deliver]] = []
        works: list[Work] = []
        item = self._queue.get()
        while item is not None:
            items.append(item)
            works += item[0]
            if len(works) >= _GROUP_MAX or self._queue.empty():
                break
            item = self._queue.get()
        with self._held:
            outcomes = self._commit(works) if works else []
            if self._wal_pages >= CHECKPOINT_PAGES:
                self._checkpoint()
        begin = 0
        for group, deliver in items:
            deliver(outcomes[begin : begin + len(group)])
            begin += len(group)
        return item is not None

    def _is_quick(self) -> bool:
        if self._pace_s <= _QUICK_COMMIT_S:
            return True
        self._pace_s *= 0.7
        return False

    def _begin_at_once(self) -> bool:
        self._wait_at_most(0)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error:
            return False
        return True

    def _commit(self, works: Sequence[Work]) -> list[Outcome]:
        self._wait_at_most(self._patience_ms)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            return [(None, self._translate(error))] * len(works)
        return self._complete(works)

    def _complete(self, works: Sequence[Work]) -> list[Outcome]:
        """Run all works in the begun transaction and commit; on a failure each in one of its own."""
        began = time.perf_counter()
        capture = _Capture()
        with capture:
            outcomes = self._run_all(works)
            took = time.perf_counter() - began
            self._pace_s = 0.8 * self._pace_s + 0.2 * took
            return outcomes
        if len(works) == 1:
            return [(None, self._translate(capture.error))]
        return [outcome for work in works for outcome in self._commit((work,))]

    def _run_all(self, works: Sequence[Work]) -> list[Outcome]:
        connection = self._connection
        try:
            outcomes: list[Outcome] = [(work(connection), None) for work in works]
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes

    def _wait_at_most(self, milliseconds: int) -> None:
        if milliseconds != self._timeout_ms:
            self._connection.set_busy_timeout(milliseconds)
            self._timeout_ms = milliseconds

    def _translate(self, error: BaseException | None) -> BaseException:
        if isinstance(error, apsw.Error):
            known = as_store_error(error, self._path, self._connection.system_errno)
            known.__cause__ = error
            return known
        return error or StoreError("a write gave neither result nor error")

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log into the file; a failure costs nothing, the next commit tries again."""
        self._wal_pages = 0
        self._checkpoint_queued = False
        with _Capture():
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
