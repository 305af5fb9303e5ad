"""Store bearer tokens and logins in a table of any of our databases. Only hashes are stored.

A token's secret is a prefix and 43 characters (256 random bits). Each request looks up its hash, so a token
that any process creates or revokes is valid or invalid from the next request on. Every function is called
inside a transaction.
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
    """Return the hash of a token. The timing of its look-up leaks nothing, because tokens are random."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class TokenTable(Generic[R]):
    """A table of tokens. The fields of the row type `row` are its columns except `hash`; the first four are
    id, name, role and time of creation, the last is the time of revocation. `in_use` is the condition for a
    token that is not revoked. `select` returns a query from columns, a table and a condition."""

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
        """Return the token in use that the query `by` (`by_hash`, `by_id` or `by_name`) finds, or None."""
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
    """A table of logins, with the columns of a `LoginSession` in their order. Saving a login deletes the
    expired ones. `expires` is the name of the column with the time of expiry."""

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
