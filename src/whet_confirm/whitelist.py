"""Whitelist entries: an admin approves one action of one principal in advance, for a while. Never a high-risk
action."""

from __future__ import annotations

import apsw
import msgspec
from msgspec import UNSET, UnsetType

from whet.contract.errors import NotFound
from whet_confirm.ledger import Tx
from whet_confirm.names import action_key, is_high_risk

LONGEST_S = 24 * 3600


class WhitelistRequest(msgspec.Struct, frozen=True):
    """A requested entry: an action of a principal (`*`: any), in a session (empty: any), for a while."""

    action: str
    principal: str
    session_key: str
    seconds: float


class AllowedEntry(msgspec.Struct, frozen=True):
    """A whitelist entry. `created_by` and `created_at` are set only in lists."""

    id: int
    action: str
    principal: str
    session_key: str
    expires_at: float
    created_by: str | UnsetType = UNSET
    created_at: float | UnsetType = UNSET
    revoked_at: float | UnsetType | None = UNSET


def add(tx: Tx, request: WhitelistRequest, by: str) -> AllowedEntry:
    """Add an entry and return it. Raises ValueError if it is not allowed."""
    key = action_key(request.action)
    if not key or not request.principal:
        raise ValueError("action and principal are required (principal * is anybody)")
    if is_high_risk(key):
        raise ValueError(f"{request.action} is a high-risk action: it always needs a person")
    if not 1 <= request.seconds <= LONGEST_S:
        raise ValueError(f"seconds must be from 1 to {LONGEST_S}")
    expires_at = tx.now_s + request.seconds
    tx.connection.execute(
        "INSERT INTO whitelist (action_key, principal, session_key, created_by, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (key, request.principal, request.session_key, by, tx.now_s, expires_at),
    )
    entry = AllowedEntry(
        tx.connection.last_insert_rowid(), key, request.principal, request.session_key, expires_at
    )
    tx.record("whitelist_added", principal=by, data=msgspec.to_builtins(entry))
    return entry


def remove(tx: Tx, entry_id: int, by: str) -> None:
    """Revoke an entry. Raises NotFound."""
    tx.connection.execute(
        "UPDATE whitelist SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (tx.now_s, entry_id)
    )
    if not tx.connection.changes():
        raise NotFound(f"there is no whitelist entry {entry_id} in force")
    tx.record("whitelist_removed", principal=by, data={"id": entry_id})


def list_entries(db: apsw.Connection) -> list[AllowedEntry]:
    """Return every entry, newest first."""
    columns = ", ".join(AllowedEntry.__struct_fields__).replace("action", "action_key")
    sql = f"SELECT {columns} FROM whitelist ORDER BY id DESC LIMIT 500"
    return [AllowedEntry(*row) for row in db.execute(sql)]
