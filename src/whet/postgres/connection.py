"""One connection to PostgreSQL, with the SQLite calls that the store's functions use.

Integers are sent as 64 bits whatever their size, because SQLite has no smaller ones; sums come back as
integers. A NUL, which PostgreSQL text can't hold, is sent as two private characters, and every text is
restored when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg
from psycopg import errors, pq
from psycopg.adapt import Buffer, Dumper, Loader

from whet.postgres.statements import translate

# Private-use characters: a NUL is encoded as the first and the third. A text that itself contains this pair
# gets the second between them, and one more if some are already there.
_NUL = "\uf7f0\uf7f1"
_ENCODED_NUL = re.compile("\uf7f0(\uf7f2*)\uf7f1")
_KEYS = """
SELECT a.attname, coalesce(a.attnum = ANY (i.indkey), false) FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class _IntegerDumper(Dumper):
    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: int) -> bytes:
        return b"%d" % obj


class _TextDumper(Dumper):
    def dump(self, obj: str) -> bytes:
        return _encode_text(obj)


def _encode_text(text: str) -> bytes:
    if "\uf7f0" in text:
        text = _ENCODED_NUL.sub("\uf7f0\uf7f2\\1\uf7f1", text)
    return text.replace("\0", _NUL).encode() if "\0" in text else text.encode()


def encode_value(value: str | int | float | bytes | None) -> bytes | None:
    """Encode a value for sending: as text, except for bytes."""
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, int):
        return b"%d" % value
    return repr(value).encode() if isinstance(value, float) else value


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


def connect(url: str, *, timeout_s: float, options: str = "") -> psycopg.Connection:
    """Open a connection that begins and ends its transactions by statements. Raises psycopg.Error."""
    raw = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=max(2, round(timeout_s)),
        cursor_factory=psycopg.RawCursor,
        options=options,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=15_000,
    )
    raw.adapters.register_dumper(int, _IntegerDumper)
    raw.adapters.register_dumper(bool, _IntegerDumper)
    raw.adapters.register_dumper(str, _TextDumper)
    raw.adapters.register_loader("text", _TextLoader)
    raw.adapters.register_loader("numeric", _NumericLoader)
    return raw


class _LateCursor(psycopg.RawCursor[Any]):
    """Asks for its result when that is read."""

    receive: Callable[[], None]

    def fetchone(self) -> Any:
        self.receive()
        return super().fetchone()

    def fetchall(self) -> list[Any]:
        self.receive()
        return super().fetchall()

    def __iter__(self) -> Any:
        self.receive()
        return super().__iter__()


class PostgresConnection:
    """A connection as a work receives it. Each statement's text is translated once."""

    def __init__(self, raw: psycopg.Connection, translations: dict[str, bytes]) -> None:
        self.raw = raw
        self.texts = translations
        """Translations by statement, shared by the connections of a process."""
        self._pipeline: psycopg.Pipeline | None = None
        self._last: psycopg.Cursor[Any] | None = None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Run a statement. Raises apsw.ConstraintError if a row already exists, psycopg.Error.

        In `pipelined` the statement only begins, and its error may be raised by a later call.
        """
        text = self.translate_sql(sql)  # this may query the database
        if self._pipeline is None:
            cursor = self.raw.cursor()
        else:
            cursor = _LateCursor(self.raw)
            cursor.receive = self.receive_results
        with _constraint_errors():
            cursor.execute(text, values)
        self._last = cursor
        return cursor

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of the rows. Raises the same errors as `execute`."""
        text, cursor = self.translate_sql(sql), self.raw.cursor()
        with _constraint_errors():
            cursor.executemany(text, [tuple(row) for row in rows])
        self._last = cursor

    @contextmanager
    def pipelined(self) -> Generator[None]:
        """Send statements without waiting for the results of those before, until a result is read."""
        with self.raw.pipeline() as self._pipeline:
            try:
                yield
            finally:
                self._pipeline = None

    def receive_results(self) -> None:
        """Wait until the statements so far have run. From then on the server ends the transaction if this
        process stops. Raises the same errors as `execute`."""
        if self._pipeline is not None:
            with _constraint_errors():
                self._pipeline.sync()

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        self.receive_results()
        return 0 if self._last is None else max(self._last.rowcount, 0)

    def last_insert_rowid(self) -> int:
        """Return the id of the last new row."""
        row = self.execute("SELECT lastval()").fetchone()
        assert row is not None  # it returns a row or fails
        return row[0]

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, including a failed one."""
        return self.raw.info.transaction_status != pq.TransactionStatus.IDLE

    def translate_sql(self, sql: str) -> bytes:
        """Return the statement in PostgreSQL's dialect."""
        text = self.texts.get(sql)
        if text is None:
            text = self.texts[sql] = translate(sql, self._list_columns).encode()
        return text

    def _list_columns(self, table: str) -> tuple[list[str], list[str]]:
        column_rows = self.raw.execute(_KEYS, (table,)).fetchall()
        return [name for name, _ in column_rows], [name for name, is_key in column_rows if is_key]


@contextmanager
def _constraint_errors() -> Generator[None]:
    """Raise apsw.ConstraintError, as SQLite does, if a row already exists."""
    try:
        yield
    except errors.IntegrityError as error:
        raise apsw.ConstraintError(str(error).partition("\n")[0]) from error
