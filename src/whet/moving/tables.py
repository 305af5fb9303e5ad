"""Read tables of another program's database, whose columns differ between the versions of that program.

A missing column is read as None and named by the reader; only those without which nothing can be read are
required. SQLite lets every cell hold a value of any type, so a reader checks each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from whet.contract.errors import ConfigError


class ForeignTable:
    """The columns of a table that a reader knows. `missing` are those that this database lacks.

    Bytes become text, except in the columns `binary`.
    """

    def __init__(
        self, connection: apsw.Connection, name: str, columns: Sequence[str], binary: Sequence[str] = ()
    ) -> None:
        existing = list_columns(connection, name)
        self._connection = connection
        self._columns = [column for column in columns if column in existing]
        self._binary = frozenset(binary)
        # Text is read as bytes, because apsw fails on invalid UTF-8.
        cells = (
            f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"
            for column in self._columns
        )
        self._select = f"SELECT {', '.join(cells)} FROM {name}"
        self._blank: dict[str, Any] = dict.fromkeys(columns)
        self.missing: tuple[str, ...] = tuple(
            f"{name}.{column}" for column in columns if column not in existing
        )

    def rows(self, clause: str = "", values: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield rows as dicts by column. `clause` may name required columns only."""
        if not self._columns:
            return
        for cells in self._connection.execute(f"{self._select} {clause}", values):
            row = {
                column: value.decode("utf-8", "replace")
                if type(value) is bytes and column not in self._binary
                else value
                for column, value in zip(self._columns, cells, strict=True)
            }
            yield {**self._blank, **row}


def list_columns(connection: apsw.Connection, table: str) -> set[str]:
    """Return the columns of a table, none if it does not exist."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def check_columns(
    connection: apsw.Connection, subject: str, required: Mapping[str, Sequence[str]], hint: str
) -> None:
    """Raise ConfigError if a required table or column (by table) is missing. `subject` begins the error."""
    for table, columns in required.items():
        existing = list_columns(connection, table)
        if missing := [column for column in columns if column not in existing]:
            lack = f"{table} has no {', '.join(missing)}" if existing else f"there is no table {table}"
            raise ConfigError(f"{subject}: {lack}", hint=hint)
