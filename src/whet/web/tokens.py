"""Bearer tokens and logins as rows of a table, in any of the databases. Only hashes are stored.

A token's secret is a prefix and 43 characters (256 random bits). Each request looks up its hash, so
creating or revoking a token in any process takes effect with the next request. Every function takes a
connection inside a transaction. Independent of roles.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Generic, TypeVar

import apsw
import msgspec

from whet.web.sessions import LoginSession

R = TypeVar("R", bound=msgspec.Struct)
Select = Callable[[str, str, str], str]


def _select(columns: str, table: str, where: str) -> str:
    return f"SELECT {columns} FROM {table} WHERE {where}"


def hash_secret(secret: str) -> bytes:
    """Return the stored hash of a token. Looking up a hash of 256 random bits leaks nothing by its timing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class TokenTable(Generic[R]):
    """Tokens as rows of type `row`, whose fields are the table's columns but `hash`: id, name, role, when
    it was made, and last when it was revoked. `in_use` is the condition on that one. `select` writes a query
    of columns, a table and a condition."""

    def __init__(self, table: str, prefix: str, row: type[R], in_use: str, select: Select = _select) -> None:
        self._row = row
        self._prefix = prefix
        names = row.__struct_fields__
        columns = ", ".join(names)
        marks = ", ".join("?" * len(names))
        self._insert = f"INSERT INTO {table} ({columns}, hash) VALUES ({marks}, ?)"
        self._revoke = f"UPDATE {table} SET {names[-1]} = ? WHERE id = ? AND {in_use}"
        self._all = f"SELECT {columns} FROM {table} ORDER BY {names[3]}, id"
        self.by_hash: str = select(columns, table, f"hash = ?1 AND {in_use}")
        self.by_id: str = select(columns, table, f"id = ?1 AND {in_use}")
        self.by_name: str = select(columns, table, f"name = ?1 AND {in_use}")

    def add(self, db: apsw.Connection, row: R) -> str:
        """Store a new token and return its secret, which is shown only this once."""
        secret = self._prefix + secrets.token_urlsafe(32)
        db.execute(self._insert, (*msgspec.structs.astuple(row), hash_secret(secret)))
        return secret

    def find(self, db: apsw.Connection, by: str, value: bytes | str) -> R | None:
        """Return the token in use that `by_hash`, `by_id` or `by_name` finds, or None."""
        row = db.execute(by, (value,)).fetchone()
        return self._row(*row) if row else None

    def all(self, db: apsw.Connection) -> list[R]:
        """Return every token ever created, oldest first."""
        return [self._row(*row) for row in db.execute(self._all)]

    def revoke(self, db: apsw.Connection, token_id: str, at: float | str) -> bool:
        """Revoke a token. Returns False if there is no token in use with this id."""
        db.execute(self._revoke, (at, token_id))
        return db.changes() > 0


class LoginTable:
    """Logins on a page, in a table with the columns of a `LoginSession` in their order.

    Saving one deletes the expired ones. `expires` is the name of that column.
    """

    def __init__(self, table: str, expires: str) -> None:
        self._forget = f"DELETE FROM {table} WHERE {expires} < ?"
        self._insert = f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)"
        self._delete = f"DELETE FROM {table} WHERE id_hash = ?"
        self.by_hash: str = f"SELECT * FROM {table} WHERE id_hash = ?"

    def save(self, db: apsw.Connection, row: LoginSession) -> None:
        """Store a login."""
        db.execute(self._forget, (row.created_s,))
        db.execute(self._insert, msgspec.structs.astuple(row))

    def find(self, db: apsw.Connection, id_hash: str) -> LoginSession | None:
        """Return a login by the hash of its number, or None."""
        row = db.execute(self.by_hash, (id_hash,)).fetchone()
        return LoginSession(*row) if row else None

    def drop(self, db: apsw.Connection, id_hash: str) -> None:
        """Delete a login."""
        db.execute(self._delete, (id_hash,))
