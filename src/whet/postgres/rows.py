"""Send statements to PostgreSQL: any number in one message, with one wait for all their results.

For such small rows the driver's cursors take longer than the database, so this module calls libpq itself.
Each statement is prepared once per connection and then sent by its name.
"""

from __future__ import annotations

import itertools
import re
import select
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import abc, errors, pq
from psycopg.adapt import Transformer

_INT8, _FLOAT8, _BYTEA = (psycopg.adapters.types[name].oid for name in ("int8", "float8", "bytea"))
_TYPES: dict[type[Any], int] = {int: _INT8, bool: _INT8, float: _FLOAT8, bytes: _BYTEA}
_ERRORS = pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE
_MAX_NAMES = 256
SILENT_S = 1.0
"""After this time without an answer, a wait for the server is logged."""
_MARK = re.compile(rb"\$(\d+)")


def shift_marks(text: bytes, count: int) -> bytes:
    """Return the statement with `count` added to the number of each placeholder."""
    return _MARK.sub(lambda mark: b"$%d" % (int(mark[1]) + count), text)


def _count_marks(text: bytes) -> int:
    return max((int(number) for number in _MARK.findall(text)), default=0)


def join_rows(select: bytes, inserts: Sequence[bytes]) -> bytes:
    """Return one statement for a SELECT and INSERTs into different tables."""
    count = _count_marks(select)
    joined: list[bytes] = []
    for number, text in enumerate(inserts):
        joined.append(b"w%d AS (%s)" % (number, shift_marks(text, count)))
        count += _count_marks(text)
    return b"WITH %s %s" % (b", ".join(joined), select) if joined else select


class StatementRows:
    """One statement and, once it has run, its rows. Reading them runs it, and all those before it."""

    def __init__(self, text: bytes, values: Sequence[Any], receive: Callable[[], None]) -> None:
        self.text: bytes = text
        self.values: Sequence[Any] = values
        self._receive = receive
        self._joined_to: StatementRows | None = None
        self._number = self._call_count = 0
        self._result: pq.abc.PGresult | None = None
        self._loaded: list[tuple[Any, ...]] = []
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def append_call(self, call: bytes, values: Sequence[Any]) -> StatementRows:
        """Add a call of a function to this statement, which must consist of such calls, and return its
        rows."""
        rows = StatementRows(b"", (), self._receive)
        rows._joined_to, rows._number = self, self._call_count
        self.text += b", " + shift_marks(call, len(self.values))
        self.values = (*self.values, *values)
        self._call_count += 1
        return rows

    def set_result(self, result: pq.abc.PGresult, transformer: abc.Transformer) -> None:
        """Store the result of the statement and load its rows."""
        self._result = result
        if result.ntuples:
            transformer.set_pgresult(result)
            self._loaded = transformer.load_rows(0, result.ntuples, tuple)

    @property
    def received_row(self) -> tuple[Any, ...] | None:
        """The first row, or None if there is none or it was not received. Runs nothing."""
        rows = self._load_rows()
        return rows[0] if rows else None

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed or returned."""
        if self._result is None:
            self._receive()
        return 0 if self._result is None else self._result.command_tuples or 0

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None if there is none."""
        return next(self, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return list(self)

    def __iter__(self) -> StatementRows:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self._rows is None:
            if self._result is None:
                self._receive()
            self._rows = iter(self._load_rows())
        return next(self._rows)

    def _load_rows(self) -> list[tuple[Any, ...]]:
        if self._joined_to is None:
            count = self._call_count
            return [row[:-count] for row in self._loaded] if count else self._loaded
        from_end = self._joined_to._call_count - self._number
        return [(row[-from_end],) for row in self._joined_to._loaded]


class StatementSender:
    """Sends statements over one connection, on one thread at a time. Calls `note_silence` if an answer takes
    long."""

    def __init__(
        self,
        raw: psycopg.Connection,
        encode: Callable[[Any], bytes | None],
        note_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self._note_silence = note_silence
        self._pgconn = raw.pgconn
        self._transformer: abc.Transformer = Transformer.from_context(raw)
        self._encode = encode
        self._poll = select.poll()
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._numbers = itertools.count()  # names are never reused: the server may still know one

    def send(self, statements: Sequence[StatementRows]) -> tuple[int, psycopg.Error] | None:
        """Run statements up to the first that fails. Returns its index and its error, or None if all
        succeeded. Outside of a transaction they run in one of their own. Raises psycopg.Error if the
        connection is lost."""
        failure = self._send(statements)
        if failure is not None and isinstance(failure[1], errors.InvalidSqlStatementName):
            self._names.clear()  # the driver forgets all statements after a ROLLBACK of its own
            if self._pgconn.transaction_status == pq.TransactionStatus.IDLE:
                return self._send(statements)
        return failure

    def _send(self, statements: Sequence[StatementRows]) -> tuple[int, psycopg.Error] | None:
        pgconn, known_count = self._pgconn, len(self._names)
        owners: list[StatementRows | None] = []
        pgconn.enter_pipeline_mode()
        try:
            for statement in statements:
                types = tuple(_TYPES.get(value.__class__, 0) for value in statement.values)
                name = self._names.get((statement.text, types))
                if name is None:
                    name = b""
                    if len(self._names) < _MAX_NAMES:
                        name = self._names[statement.text, types] = b"whet%d" % next(self._numbers)
                    pgconn.send_prepare(name, statement.text, types)
                    owners.append(None)
                formats = [pq.Format.BINARY if type_oid == _BYTEA else pq.Format.TEXT for type_oid in types]
                pgconn.send_query_prepared(name, [self._encode(value) for value in statement.values], formats)
                owners.append(statement)
            pgconn.pipeline_sync()
            failure = self._receive(owners)
        except BaseException:
            pgconn.finish()  # a half-sent batch can't be taken back otherwise
            raise
        pgconn.exit_pipeline_mode()
        if failure is not None:
            for key in list(self._names)[known_count:]:  # statements prepared after the failure were skipped
                del self._names[key]
        return failure

    def _receive(self, owners: Sequence[StatementRows | None]) -> tuple[int, psycopg.Error] | None:
        """Receive the results of all statements. Returns the index and error of the first that failed."""
        pgconn, failure, command, index = self._pgconn, None, 0, 0
        self._poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        if not pgconn.flush():
            self._poll.modify(pgconn.socket, select.POLLIN)
        while True:
            while pgconn.is_busy():
                self._wait()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection was lost")
                command += 1
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return failure
            elif result.status in _ERRORS and failure is None:
                failure = index, errors.error_from_result(result)
                if pgconn.status != pq.ConnStatus.OK:
                    raise failure[1]
            elif failure is None and (owner := owners[command]) is not None:
                owner.set_result(result, self._transformer)
                index += 1

    def _wait(self) -> None:
        pgconn, events = self._pgconn, self._poll.poll(SILENT_S * 1000)
        if not events:
            self._note_silence()
            events = self._poll.poll()
        ready = events[0][1]
        if ready & ~select.POLLOUT:
            pgconn.consume_input()
        if ready & select.POLLOUT and not pgconn.flush():
            self._poll.modify(pgconn.socket, select.POLLIN)
