"""One connection to PostgreSQL, with the SQLite calls that the store's functions use.

Integers are sent as 64 bits whatever their size, because SQLite has no smaller ones; sums come back as
integers. A NUL, which PostgreSQL text can't hold, is sent as two private characters, and every text is
restored when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import apsw
import psycopg
from psycopg import errors, pq
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import make_conninfo

from whet.contract.errors import StoreBusy
from whet.postgres.rows import StatementRows, StatementSender, join_rows
from whet.postgres.statements import translate
from whet.sqlite.lane import RowStatement

# Private-use characters: a NUL is encoded as the first and the third. A text that itself contains this pair
# gets the second between them, and one more if some are already there.
_NUL = "\uf7f0\uf7f1"
_ENCODED_NUL = re.compile("\uf7f0(\uf7f2*)\uf7f1")
_KEYS = """
SELECT a.attname, coalesce(a.attnum = ANY (i.indkey), false) FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


# Neighbouring calls of functions are sent as one SELECT: they run in order, and each sees the effects of
# those before it.
_CALL = re.compile(rb"SELECT (whet_\w+\([^()]*\))")
_CALLS = re.compile(rb"SELECT (?:(?:pg_advisory_xact_lock|whet_)\w*\([^()]*\)(?:, )?)+")


def encode_value(value: Any) -> bytes | None:
    """Encode a value for sending: as text, except for bytes."""
    if isinstance(value, str):
        if "\uf7f0" in value:
            value = _ENCODED_NUL.sub("\uf7f0\uf7f2\\1\uf7f1", value)
        return value.replace("\0", _NUL).encode()
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, list | tuple):
        return _encode_list(value)  # pyright: ignore[reportUnknownArgumentType] of values
    return repr(value).encode() if isinstance(value, float) else value


def _encode_list(values: Sequence[Any]) -> bytes:
    """Encode a list as an array literal. It must not contain bytes."""
    texts = (encode_value(value) or b"" for value in values)
    return b"{%s}" % b",".join(b'"%s"' % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for text in texts)


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return _ENCODED_NUL.sub(_decode_pair, text) if "\uf7f0" in text else text


def _decode_pair(match: re.Match[str]) -> str:
    return f"\uf7f0{match[1][1:]}\uf7f1" if match[1] else "\0"


class _NumericLoader(Loader):
    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text or b"N" in text else int(text)


def connect(url: str, options: str = "") -> psycopg.Connection:
    """Open a connection in autocommit mode: only a BEGIN statement begins a transaction. Raises
    psycopg.Error."""
    address = _add_parameters(url, options=options)
    raw = psycopg.connect(address, autocommit=True, cursor_factory=psycopg.RawCursor)
    raw.adapters.register_loader("text", _TextLoader)
    raw.adapters.register_loader("numeric", _NumericLoader)
    return raw


async def connect_async(url: str) -> psycopg.AsyncConnection:
    """Open a connection for an event loop, in autocommit mode. Raises psycopg.Error."""
    return await psycopg.AsyncConnection.connect(_add_parameters(url), autocommit=True)


def _add_parameters(url: str, **more: str) -> str:
    """Return the address with timeouts, so that a lost connection is noticed within seconds."""
    return make_conninfo(
        url,
        connect_timeout=10,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=15_000,
        **more,
    )


class PostgresConnection:
    """A connection with SQLite's calls, for the store's functions. Each statement is translated once."""

    def __init__(
        self, raw: psycopg.Connection, translations: dict[str, bytes], sender: StatementSender | None = None
    ) -> None:
        self._raw = raw
        self.texts = translations
        """Translations by statement, shared by the connections of a process."""
        self.sender: StatementSender = sender or StatementSender(raw, encode_value)
        self._queued: list[StatementRows] = []
        self._begin: bytes | None = None
        self._is_deferring = False
        self._last: StatementRows | None = None
        self._conflicts: dict[int, RowStatement] = {}
        self._joined: dict[tuple[str, tuple[RowStatement, ...]], bytes] = {}

    @property
    def raw(self) -> psycopg.Connection:
        """The driver's connection, after the queued statements have run. Raises as `execute` does."""
        self.receive_results()
        return self._raw

    def execute(self, sql: str, values: Sequence[Any] = ()) -> StatementRows:
        """Run a statement. Raises apsw.ConstraintError if a row already exists, psycopg.Error.

        After `begin`, statements are queued and run together when a result is read. Then a later call may
        raise the error of this one.
        """
        self._last = self._add(self.translate_sql(sql), values)
        if not self._is_deferring:
            self.receive_results()
        return self._last

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of the rows. Raises the same errors as `execute`."""
        text = self.translate_sql(sql)
        for row in rows:
            self._last = self._add(text, row)
        if not self._is_deferring:
            self.receive_results()

    def write_rows(self, statement: RowStatement, rows: Iterable[Sequence[Any]]) -> None:
        """Queue rows. If one already exists, a later call raises the StoreBusy of their statement."""
        self.translate_sql(statement.sql)  # this may query the database
        for values in rows:
            self._conflicts[len(self._queued)] = statement
            self.execute(statement.sql, values)

    def write_joined(
        self, sql: str, values: Sequence[Any], rows: Sequence[tuple[RowStatement, Sequence[Any]]]
    ) -> None:
        """Queue a SELECT and rows of different tables as one statement. If a row already exists, a later call
        raises the StoreBusy of the first row's statement."""
        statements = tuple(statement for statement, _ in rows)
        text = self._joined.get((sql, statements))
        if text is None:
            select = self.translate_sql(sql)
            inserts = [self.translate_sql(statement.sql) for statement in statements]
            text = self._joined[sql, statements] = join_rows(select, inserts)
        if statements:
            self._conflicts[len(self._queued)] = statements[0]
        all_values = list(values)
        for _, row in rows:
            all_values += row
        self._add(text, all_values)

    def begin(self, statement: bytes = b"BEGIN") -> None:
        """Begin to queue statements. The transaction itself begins when the first result is read. If none is
        read, all its statements are sent as one message by `end`."""
        self._begin, self._is_deferring = statement, True

    def end(self, statement: bytes = b"COMMIT") -> None:
        """Run the queued statements and end the transaction. Raises the same errors as `execute`."""
        self._is_deferring = False
        if self._begin is None and not self._raw.closed and self.in_transaction:
            self._add(statement, ())
        self._begin = None
        self.receive_results()

    def roll_back(self) -> None:
        """Drop the queued statements and roll back the transaction, if one is open. Raises psycopg.Error."""
        self._queued.clear()
        self._conflicts.clear()
        self.end(b"ROLLBACK")

    def receive_results(self) -> None:
        """Run the queued statements and receive their results. Raises the same errors as `execute`."""
        if not self._queued:
            return
        queued, self._queued = self._queued, []
        conflicts, self._conflicts = self._conflicts, {}
        begin, self._begin = self._begin, None
        if begin is not None:
            queued.insert(0, StatementRows(begin, (), self.receive_results))
        failure = self.sender.send(queued)
        if failure is not None:
            _raise_error(failure[1], conflicts.get(failure[0] - (begin is not None)))

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        return 0 if self._last is None else self._last.rowcount

    def last_insert_rowid(self) -> int:
        """Return the id of the last new row."""
        row = self.execute("SELECT lastval()").fetchone()
        assert row is not None  # it returns a row or fails
        return row[0]

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, including a failed one."""
        return self._raw.info.transaction_status != pq.TransactionStatus.IDLE

    def translate_sql(self, sql: str) -> bytes:
        """Return the statement in PostgreSQL's dialect."""
        text = self.texts.get(sql)
        if text is None:
            text = self.texts[sql] = translate(sql, self._list_columns).encode()
        return text

    def _add(self, text: bytes, values: Sequence[Any]) -> StatementRows:
        if self._is_deferring and (call := _CALL.fullmatch(text)) is not None:
            last = self._queued[-1] if self._queued else None
            if last is not None and _CALLS.fullmatch(last.text):
                return last.append_call(call[1], values)
        statement = StatementRows(text, values, self.receive_results)
        self._queued.append(statement)
        return statement

    def _list_columns(self, table: str) -> tuple[list[str], list[str]]:
        column_rows = self.raw.execute(_KEYS, (table,)).fetchall()
        return [name for name, _ in column_rows], [name for name, is_key in column_rows if is_key]


def _raise_error(error: psycopg.Error, statement: RowStatement | None) -> NoReturn:
    """Raise the error of a statement. If a row already exists, raises StoreBusy with the words of
    `statement`, or apsw.ConstraintError without one."""
    if not isinstance(error, errors.IntegrityError):
        raise error
    if statement is not None:
        raise StoreBusy(statement.conflict or "a row is already there", hint=statement.hint) from error
    raise apsw.ConstraintError(str(error).partition("\n")[0]) from error
