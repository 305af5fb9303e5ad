"""Queries that use an index to find rows and believe the rows alone.

SQLite answers from an index where it can: it neither reads the row's own value of an indexed column nor
compares it with what was asked for. Whoever changes a key in an index, and no row, would have one row found
in place of another. Here the index gives row numbers only, and the rows are compared with the condition.
"""

from __future__ import annotations


def checked_select(columns: str, table: str, where: str, key: str = "rowid") -> str:
    """Return a SELECT of the rows for which `where` is true in the table itself.

    `key` is the row's number: `rowid`, or the INTEGER PRIMARY KEY. Values are numbered (?1), since the
    condition is there twice. Only for tables with a row number: the others are their own index.
    """
    keys = f"SELECT {key} FROM {table} WHERE {where}"
    return f"SELECT {columns} FROM {table} NOT INDEXED WHERE {key} IN ({keys}) AND {where}"
