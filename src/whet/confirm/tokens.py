"""Bearer tokens: who is calling and what they may do. Only hashes are stored.

A token is `wct_` and 43 characters (256 random bits). Each request looks its hash up in the database, so a
token made, rotated or revoked by any process holds from the next request on.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

import apsw
import msgspec

from whet.confirm.ledger import Tx
from whet.confirm.records import ROLES, Caller, Role
from whet.contract.errors import ConfigError, NotFound

PREFIX = "wct_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,127}")
LOOKUP = "SELECT id, name, role, expires_at FROM tokens WHERE hash = ? AND revoked_at IS NULL"


class ConfirmTokenRow(msgspec.Struct, frozen=True):
    """A token as it is listed; the secret itself is nowhere."""

    id: str
    name: str
    role: Role
    created_at: float
    expires_at: float | None
    revoked_at: float | None


def hash_of(secret: str) -> bytes:
    """Give what is stored of a token. Looking up a hash of 256 random bits leaks nothing by its timing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def as_principal(row: tuple[Any, ...] | None, now_s: float) -> Caller | None:
    """Read a row of `LOOKUP`; None where there is none or it has run out."""
    if row is None or (row[3] is not None and now_s >= row[3]):
        return None
    return Caller(name=row[1], role=row[2], token_id=row[0])


def create(tx: Tx, name: str, role: str, *, by: str, valid_s: float | None = None) -> tuple[str, str]:
    """Make a token for a principal; gives its id and the secret, which is shown this once.

    Raises ConfigError for a role or a name that can't be.
    """
    if role not in ROLES:
        raise ConfigError(f"there is no role {role!r}", hint=f"one of: {', '.join(ROLES)}")
    if not _NAME.fullmatch(name) or name.startswith("system:"):
        raise ConfigError(
            f"{name[:60]!r} can't be a principal's name",
            hint="letters, digits and . _ @ + : / -, at most 128",
        )
    token_id = secrets.token_hex(6)
    secret = PREFIX + secrets.token_urlsafe(32)
    expires_at = None if valid_s is None else tx.now_s + valid_s
    tx.connection.execute(
        "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, NULL)",
        (token_id, hash_of(secret), name, role, tx.now_s, expires_at),
    )
    tx.record("token_created", principal=by, data={"token": token_id, "name": name, "role": role})
    return token_id, secret


def revoke(tx: Tx, token_id: str, *, by: str) -> None:
    """Take a token back; it is refused from the next request on. Raises NotFound."""
    tx.connection.execute(
        "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (tx.now_s, token_id)
    )
    if not tx.connection.changes():
        raise NotFound(f"there is no token {token_id!r} in use", hint="whet confirm token list")
    tx.record("token_revoked", principal=by, data={"token": token_id})


def rotate(tx: Tx, token_id: str, *, by: str, overlap_s: float = 0.0) -> tuple[str, str]:
    """Make a new token of the same name and role; the old one ends after `overlap_s`. Raises NotFound."""
    row = tx.connection.execute(
        "SELECT name, role FROM tokens WHERE id = ? AND revoked_at IS NULL", (token_id,)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no token {token_id!r} in use", hint="whet confirm token list")
    made = create(tx, row[0], row[1], by=by)
    if overlap_s > 0:
        tx.connection.execute(
            "UPDATE tokens SET expires_at = ? WHERE id = ?", (tx.now_s + overlap_s, token_id)
        )
        tx.record("token_expires", principal=by, data={"token": token_id, "at": tx.now_s + overlap_s})
    else:
        revoke(tx, token_id, by=by)
    return made


def all_tokens(db: apsw.Connection) -> list[ConfirmTokenRow]:
    """Give every token ever made, oldest first."""
    rows = db.execute(
        "SELECT id, name, role, created_at, expires_at, revoked_at FROM tokens ORDER BY created_at"
    )
    return [ConfirmTokenRow(*row) for row in rows]


def is_empty(db: apsw.Connection) -> bool:
    """Whether no token was ever made: a first start."""
    return db.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is None
