"""Build queries that find rows by an index but trust only the rows.

SQLite takes the value of an indexed column from the index and does not compare it with the row's own value.
An attacker who changes a key in an index, but no row, could therefore exchange one row for another. Here the
index gives row numbers only, and the condition is checked again on the rows.
"""

from __future__ import annotations


def checked_select(columns: str, table: str, where: str, key: str = "rowid") -> str:
    """Return a SELECT of the rows for which `where` is true in the table itself.

    `key` is the row's number: `rowid`, or the INTEGER PRIMARY KEY. Write values as ?1, ?2, since the query
    contains `where` twice. A table WITHOUT ROWID can't be queried this way: it is its own index.
    """
    keys = f"SELECT {key} FROM {table} WHERE {where}"
    return f"SELECT {columns} FROM {table} NOT INDEXED WHERE {key} IN ({keys}) AND {where}"
