"""Send plain rows to PostgreSQL: a whole batch in one message, one transaction and one answer.

The driver's cursors cost more than the database does for such small rows, so this uses the calls of libpq
itself: each statement is prepared once for a connection and then sent by its name.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from whet.postgres.connection import PostgresConnection, encode_value

_INT8, _FLOAT8, _BYTEA = (psycopg.adapters.types[name].oid for name in ("int8", "float8", "bytea"))
_TYPES: dict[type[Any], int] = {int: _INT8, bool: _INT8, float: _FLOAT8, bytes: _BYTEA}
_ERRORS = pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE


class RowSender:
    """Sends rows over one connection, on one thread."""

    def __init__(self, connection: PostgresConnection) -> None:
        self.connection: PostgresConnection = connection
        self._pgconn = connection.raw.pgconn
        self._poll = select.poll()
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._numbers = itertools.count()  # names are never reused: the server may still know one

    def send(self, rows: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Write rows (statement, values), all or none. Raises psycopg.Error."""
        texts = {sql: self.connection.translate_sql(sql) for sql, _ in rows}  # this may query the database
        try:
            self._send(texts, rows)
        except errors.InvalidSqlStatementName:  # the driver forgets all statements after a ROLLBACK
            self._names.clear()
            self._send(texts, rows)

    def _send(self, texts: dict[str, bytes], rows: Iterable[tuple[str, Sequence[Any]]]) -> None:
        pgconn, known_count = self._pgconn, len(self._names)
        pgconn.enter_pipeline_mode()
        try:
            for sql, values in rows:
                types = tuple(_TYPES.get(value.__class__, 0) for value in values)
                name = self._names.get((sql, types))
                if name is None:
                    name = self._names[sql, types] = b"whet%d" % next(self._numbers)
                    pgconn.send_prepare(name, texts[sql], types)
                formats = [pq.Format.BINARY if type_oid == _BYTEA else pq.Format.TEXT for type_oid in types]
                pgconn.send_query_prepared(name, [encode_value(type_oid) for type_oid in values], formats)
            pgconn.pipeline_sync()
            error = self._answer()
        except BaseException:
            pgconn.finish()  # a half-sent batch can't be taken back otherwise
            raise
        pgconn.exit_pipeline_mode()
        if error is not None:
            for new in list(self._names)[known_count:]:  # statements prepared after the failure were skipped
                del self._names[new]
            raise error

    def _answer(self) -> psycopg.Error | None:
        """Wait until the transaction has ended. Returns its error, or None."""
        pgconn, error = self._pgconn, None
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
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return error
            elif result.status in _ERRORS and error is None:
                error = errors.error_from_result(result)
                if pgconn.status != pq.ConnStatus.OK:
                    raise error

    def _wait(self) -> None:
        pgconn = self._pgconn
        ready = self._poll.poll()[0][1]
        if ready & ~select.POLLOUT:
            pgconn.consume_input()
        if ready & select.POLLOUT and not pgconn.flush():
            self._poll.modify(pgconn.socket, select.POLLIN)
