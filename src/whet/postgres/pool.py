"""A pool of connections for reads and single statements. Writes go through the lane (`lane.py`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, TypeVar

import psycopg

from whet.contract.errors import StoreError
from whet.postgres.connection import PostgresConnection, connect, encode_value
from whet.postgres.faults import is_lost, log_silence, log_wait, pooler_error, translate_error
from whet.postgres.rows import SILENT_S, StatementRows, StatementSender

T = TypeVar("T")
_IDLE_S = 5
_PAUSE_S = 0.2
_READ_ONLY = (
    "SELECT set_config('default_transaction_read_only', 'on', false),"
    " set_config('default_transaction_isolation', 'repeatable read', false)"
)
_OPTIONS = f"-c idle_in_transaction_session_timeout={_IDLE_S}s -c lock_timeout=30s -c timezone=UTC"


class ConnectionPool:
    """Opens connections and keeps idle ones. Safe to use from any thread. Connections for reads can't write.
    A read waits up to `patience_s` if the database can't be reached.

    Most reads run all their statements before they read a result. These are sent as one message, which sees
    one consistent state without a transaction. A function that runs another statement after it has read a
    result starts again in a transaction, and uses one from then on.
    """

    def __init__(self, url: str, options: str, patience_s: float = 0.0) -> None:
        self.url: str = url
        self._patience_s = patience_s
        self._options = f"{_OPTIONS} {options}"
        self.texts: dict[str, bytes] = {}
        self._idle: list[PostgresConnection] = []
        self._idle_readers: list[PostgresConnection] = []
        self._lock = threading.Lock()
        self._long_reads: set[object] = set()
        self._closed = False

    def open_raw(self) -> psycopg.Connection:
        """Open a connection of the driver. Raises psycopg.Error."""
        return connect(self.url, self._options)

    def open_connection(self) -> PostgresConnection:
        """Open a connection. Raises psycopg.Error."""
        return PostgresConnection(self.open_raw(), self.texts)

    def check_database(self, check: Callable[[psycopg.Connection], T]) -> T:
        """Call `check` with a connection of the driver and return its result. Raises StoreError, also if the
        address is a connection pooler."""

        def check_server(connection: PostgresConnection) -> T:
            _refuse_pooler(connection.raw, self.url)
            return check(connection.raw)

        return self.run(check_server)

    def read_now(self, work: Callable[[PostgresConnection], T]) -> T:
        """Call `work` with a connection and return its result. It sees one consistent state, and may run more
        than once. Raises StoreError."""
        until_s, runs = time.monotonic() + self._patience_s, 0
        while True:
            try:
                return self._use_connection(lambda reader: self._read_with(reader, work), self._idle_readers)
            except psycopg.Error as error:
                runs += 1
                is_over = runs > 1 and time.monotonic() > until_s
                if is_over or not is_lost(error):
                    raise translate_error(error, self.url) from error
                log_wait(error, self.url, self._patience_s, runs)
            if runs > 1:  # the first failure may only mean that an idle connection was lost
                time.sleep(_PAUSE_S)

    def _read_with(self, reader: PostgresConnection, work: Callable[[PostgresConnection], T]) -> T:
        code = getattr(work, "__code__", None)
        if code is not None and code not in self._long_reads:
            try:
                first = _FirstMessage(reader)
                result = work(first)
                first.receive_results()
                return result
            except _SecondMessageError:
                self._long_reads.add(code)
        reader.begin()
        try:
            result = work(reader)
            reader.receive_results()
            return result
        finally:
            reader.roll_back()

    def run(self, work: Callable[[PostgresConnection], T]) -> T:
        """Call `work`, which runs one statement, with a connection and return its result. Raises
        StoreError."""
        try:
            return self._use_connection(work, self._idle)
        except psycopg.Error as error:
            raise translate_error(error, self.url) from error

    def _use_connection(self, work: Callable[[PostgresConnection], T], idle: list[PostgresConnection]) -> T:
        """Call `work` with a connection, which is closed if the call fails. Raises psycopg.Error."""
        connection = self._take(idle)
        try:
            return work(connection)
        except (psycopg.Error, StoreError):
            connection.raw.close()
            raise
        finally:
            self._give_back(connection, idle)

    def close(self) -> None:
        """Close every idle connection, and the others when they are returned."""
        with self._lock:
            self._closed = True
            idle = [*self._idle, *self._idle_readers]
            self._idle.clear()
            self._idle_readers.clear()
        for connection in idle:
            connection.raw.close()

    def _take(self, idle: list[PostgresConnection]) -> PostgresConnection:
        with self._lock:
            if self._closed:
                raise StoreError("the database is closed")
            if idle:
                return idle.pop()
        opener = ThreadPoolExecutor(1)  # on this thread, nothing could be logged while the server is silent
        opening = opener.submit(self.open_raw)
        opener.shutdown(wait=False)
        if not wait((opening,), SILENT_S).done:
            log_silence(self.url)
        raw = opening.result()
        if idle is self._idle_readers:  # as an option it would make target_session_attrs=read-write fail
            raw.execute(_READ_ONLY)
        sender = StatementSender(raw, encode_value, lambda: log_silence(self.url))
        return PostgresConnection(raw, self.texts, sender)

    def _give_back(self, connection: PostgresConnection, idle: list[PostgresConnection]) -> None:
        with self._lock:
            if not self._closed and not connection.raw.closed:
                idle.append(connection)
                return
        connection.raw.close()


def use_once(url: str, work: Callable[[psycopg.Connection], T]) -> T:
    """Call `work` with a new connection, which is closed afterwards. Raises StoreError."""
    with closing(ConnectionPool(url, "")) as pool:
        return pool.check_database(work)


def _refuse_pooler(raw: psycopg.Connection, url: str) -> None:
    """Raise StoreError if the connection's settings did not reach the server. Then a pooler shares the
    connection, and the locks of a stopped process would never be released."""
    row = raw.execute("SELECT current_setting('idle_in_transaction_session_timeout')").fetchone()
    if row is None or row[0] != f"{_IDLE_S}s":
        raise pooler_error(url)


class _SecondMessageError(BaseException):
    """A read runs a statement after it has read a result. Not an Exception, so that a function that reads
    does not catch it."""


class _FirstMessage(PostgresConnection):
    """A connection that runs statements up to the first result that is read, and refuses later ones."""

    def __init__(self, reader: PostgresConnection) -> None:
        super().__init__(reader.raw, reader.texts, reader.sender)
        self._is_deferring = True
        self._has_run = False

    def execute(self, sql: str, values: Sequence[Any] = ()) -> StatementRows:
        """Queue a statement. Raises _SecondMessageError after the first message."""
        if self._has_run:
            raise _SecondMessageError
        return super().execute(sql, values)

    def receive_results(self) -> None:
        """Run the queued statements."""
        self._has_run = self._has_run or bool(self._queued)
        super().receive_results()
