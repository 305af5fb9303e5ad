"""Copy a whole store from a home's own file to a team's database, or back.

The tables are copied in the order of their keys, so that an interrupted copy can be continued. Afterwards
every table is counted and hashed. Not copied are data of one process (claims) and of one home (the last known
contents of its files). The search index is rebuilt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import apsw
import msgspec

from whet.contract.errors import StoreError
from whet.store import claims
from whet.store.database import StateDatabase, is_team

_BATCH = 500
_BATCH_BYTES = 8_000_000
_LEFT_OUT = {"claims", "migrations", "messages_words"}
_OF_ONE_HOME = {("learned_files", "written")}


class Table(msgspec.Struct, frozen=True):
    """A table of the store: all its columns, and those of its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class CopiedTable(msgspec.Struct, frozen=True):
    """The rows of a table: their number, and a hash of all of them in the order of the key."""

    name: str
    rows: int
    digest: str


def tables(connection: apsw.Connection) -> list[Table]:
    """Return the tables to copy, by name."""
    rows = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " AND name NOT LIKE 'messages_fts%' AND name NOT LIKE 'session_titles%' ORDER BY name"
    ).fetchall()
    return [_table(connection, name) for (name,) in rows if name not in _LEFT_OUT]


def _table(connection: apsw.Connection, name: str) -> Table:
    columns = connection.execute(f"SELECT name, pk FROM pragma_table_info('{name}')").fetchall()
    key = sorted((position, column) for column, position in columns if position)
    return Table(name, tuple(column for column, _ in columns), tuple(column for _, column in key))


def copy(
    source: StateDatabase, target: StateDatabase, show_progress: Callable[[str, int], None]
) -> list[CopiedTable]:
    """Copy every table and return them. A second call continues an interrupted copy.

    Before anything is written, raises StoreBusy if a turn runs in either store, and StoreError if the target
    has other rows. Raises StoreError at the end if counts or hashes differ.
    """
    if source.is_team == target.is_team:
        raise StoreError("one of the two has to be a home's own file", hint="whet store copy --to URL")
    own_store = target if source.is_team else source
    all_tables = own_store.read_now(tables)
    for database in (source, target):
        database.read_now(_refuse_busy)
    for table in all_tables:
        _refuse_other_rows(source, target, table)
    copied_tables: list[CopiedTable] = []
    for table in all_tables:
        _copy_table(source, target, table, show_progress)
    target.write_now(lambda db: _reset_sequences(db, all_tables))
    for table in all_tables:
        original, copied = (side.read_now(lambda db, t=table: digest(db, t)) for side in (source, target))
        if original != copied:
            raise StoreError(
                f"{table.name} differs after the copy: {original.rows} rows here, {copied.rows} there",
                hint="copy into an empty store, while nobody writes to either",
            )
        copied_tables.append(copied)
    return copied_tables


def _refuse_busy(connection: apsw.Connection) -> None:
    for key, id_ in connection.execute(
        "SELECT s.key, s.id FROM claims c JOIN sessions s ON s.key = c.session"
    ).fetchall():
        claims.refuse_if_held(connection, key, id_)


def _refuse_other_rows(source: StateDatabase, target: StateDatabase, table: Table) -> None:
    """Raise StoreError if the target's rows are not the first ones of the source."""
    copied = target.read_now(lambda db: digest(db, table))
    if copied.rows and copied != source.read_now(lambda db: digest(db, table, copied.rows)):
        raise StoreError(
            f"the target has rows of its own in {table.name}; nothing was copied",
            hint="copy into a new database (whet team init URL), or from one into a new WHET_HOME",
        )


def _copy_table(
    source: StateDatabase, target: StateDatabase, table: Table, show_progress: Callable[[str, int], None]
) -> None:
    marks = ", ".join("?" * len(table.columns))
    insert = f"INSERT OR IGNORE INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
    after = target.read_now(lambda db: _read_last_key(db, table))
    copied = 0
    while rows := source.read_now(lambda db, after=after: _read_batch(db, table, after)):
        target.write_now(lambda db, rows=rows: db.executemany(insert, rows))
        copied += len(rows)
        after = _key_of(table, rows[-1])
        show_progress(table.name, copied)


def _key_of(table: Table, row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(row[table.columns.index(name)] for name in table.key)


def _read_last_key(connection: apsw.Connection, table: Table) -> tuple[Any, ...] | None:
    order = ", ".join(f"{name} DESC" for name in table.key)
    return connection.execute(
        f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1"
    ).fetchone()


def _read_batch(
    connection: apsw.Connection, table: Table, after: tuple[Any, ...] | None, limit: int = _BATCH
) -> list[tuple[Any, ...]]:
    """Return the next rows by key, limited by number and size."""
    keys = ", ".join(table.key)
    columns = ", ".join("''" if (table.name, column) in _OF_ONE_HOME else column for column in table.columns)
    where = f" WHERE ({keys}) > ({', '.join('?' * len(table.key))})" if after is not None else ""
    cursor = connection.execute(
        f"SELECT {columns} FROM {table.name}{where} ORDER BY {keys} LIMIT ?",
        (*(after or ()), limit),
    )
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(tuple(row))
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if size > _BATCH_BYTES:
            break
    return rows


def _reset_sequences(connection: apsw.Connection, all_tables: Sequence[Table]) -> None:
    """Let new rows get numbers after the copied ones, and mark all sessions to be indexed again."""
    connection.execute("UPDATE sessions SET indexed_seq = 0, dirty = 2 WHERE messages > 0")
    if not is_team(connection):
        return
    for table in all_tables:
        if len(table.key) != 1:
            continue
        key = table.key[0]
        sequence = connection.execute("SELECT pg_get_serial_sequence(?, ?)", (table.name, key)).fetchone()
        if sequence is not None and sequence[0]:
            connection.execute(
                f"SELECT setval(?, coalesce((SELECT max({key}) FROM {table.name}), 0) + 1, false)",
                (sequence[0],),
            )


def digest(connection: apsw.Connection, table: Table, max_rows: int | None = None) -> CopiedTable:
    """Count and hash a table's rows, or the first `max_rows` of them, in the order of its key. The state of
    the search index is excluded."""
    hasher = hashlib.sha256()
    count = 0
    for row in islice(_iter_rows(connection, table), max_rows):
        hasher.update(msgspec.msgpack.encode(row))
        count += 1
    return CopiedTable(table.name, count, hasher.hexdigest()[:32])


def _iter_rows(connection: apsw.Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    left_out = {"indexed_seq", "dirty"} if table.name == "sessions" else set[str]()
    columns = [index for index, name in enumerate(table.columns) if name not in left_out]
    after: tuple[Any, ...] | None = None
    while rows := _read_batch(connection, table, after):
        for row in rows:
            yield tuple(_normalise(row[index]) for index in columns)
        after = _key_of(table, rows[-1])


def _normalise(cell: Any) -> Any:
    """Return 1 for 1.0, because only one of the databases may store it as a float."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
