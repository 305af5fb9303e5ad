"""Bearer tokens: they identify the caller and its role. Only hashes are stored.

A token is `wct_` and 43 characters (256 random bits). Each request looks up its hash in the database, so
creating, rotating or revoking a token in any process takes effect with the next request.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import apsw
import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet.sqlite.checked import checked_select
from whet.web.tokens import TokenTable
from whet_confirm.ledger import Tx
from whet_confirm.names import is_same_person, person_key
from whet_confirm.records import ROLES, Caller, Role

# Prefixes that the log and the groups use for names that are not principals.
_RESERVED = ("system:", "policy:", "whitelist:", "cli:", "uid:", "oidc:", "slack:")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,127}")


class ConfirmTokenRow(msgspec.Struct, frozen=True):
    """A token in a list; the secret itself is not stored."""

    id: str
    name: str
    role: Role
    created_at: float
    expires_at: float | None
    revoked_at: float | None


TOKENS = TokenTable("tokens", "wct_", ConfirmTokenRow, "revoked_at IS NULL", checked_select)


def as_principal(row: tuple[Any, ...] | None, now_s: float) -> Caller | None:
    """Convert a row found by `TOKENS` to a caller, or return None if there is no row or it has expired."""
    token = ConfirmTokenRow(*row) if row else None
    if token is None or (token.expires_at is not None and now_s >= token.expires_at):
        return None
    return Caller(name=token.name, role=token.role, token_id=token.id)


def create(tx: Tx, name: str, role: str, *, by: str, valid_s: float | None = None) -> tuple[str, str]:
    """Create a token for a principal and return its id and its secret, which is shown only this once.

    Raises ConfigError for an invalid role or name.
    """
    if valid_s is not None and valid_s <= 0:
        raise ConfigError("a token can't be valid for no time", hint="--for 30d")
    if role not in ROLES:
        raise ConfigError(f"there is no role {role!r}", hint=f"one of: {', '.join(ROLES)}")
    check_name(tx.connection, name)
    token_id = secrets.token_hex(6)
    expires_at = None if valid_s is None else tx.now_s + valid_s
    secret = TOKENS.add(tx.connection, ConfirmTokenRow(token_id, name, role, tx.now_s, expires_at, None))
    tx.record("token_created", principal=by, data={"token": token_id, "name": name, "role": role})
    return token_id, secret


def check_name(db: apsw.Connection, name: str) -> None:
    """Raise ConfigError for an invalid principal's name, or a different spelling of an existing one."""
    if not _NAME.fullmatch(name) or person_key(name).startswith(_RESERVED):
        raise ConfigError(
            f"{name[:60]!r} can't be a principal's name",
            hint="letters, digits and . _ @ + : / -, at most 128",
        )
    others = db.execute("SELECT name FROM tokens NOT INDEXED UNION SELECT name FROM people NOT INDEXED")
    for (other,) in others:
        if other != name and is_same_person(str(other), name):
            raise ConfigError(
                f"{name!r} and {other!r} would be one person with two names",
                hint=f"write it as it is: --name {other}",
            )


def revoke(tx: Tx, token_id: str, *, by: str) -> None:
    """Revoke a token; it is refused from the next request on. Raises NotFound."""
    if not TOKENS.revoke(tx.connection, token_id, tx.now_s):
        raise NotFound(f"there is no token {token_id!r} in use", hint="whet confirm token list")
    tx.record("token_revoked", principal=by, data={"token": token_id})


def rotate(tx: Tx, token_id: str, *, by: str, overlap_s: float = 0.0) -> tuple[str, str]:
    """Create a new token of the same name and role; the old one ends after `overlap_s`. Raises NotFound."""
    row = TOKENS.find(tx.connection, TOKENS.by_id, token_id)
    if row is None:
        raise NotFound(f"there is no token {token_id!r} in use", hint="whet confirm token list")
    new_token = create(tx, row.name, row.role, by=by)
    if overlap_s > 0:
        tx.connection.execute(
            "UPDATE tokens NOT INDEXED SET expires_at = ? WHERE id = ?", (tx.now_s + overlap_s, token_id)
        )
        tx.record("token_expires", principal=by, data={"token": token_id, "at": tx.now_s + overlap_s})
    else:
        revoke(tx, token_id, by=by)
    return new_token
