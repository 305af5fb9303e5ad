"""Whitelist entries: an admin approves one action of one principal in advance, for a while.

High-risk actions can't be whitelisted.
"""

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
    """A whitelist entry. The fields from `created_by` on are set only in lists.

    An entry that was granted with an approval has a `kind`, and the request that was approved.
    """

    id: int
    action: str
    principal: str
    session_key: str
    expires_at: float
    created_by: str | UnsetType = UNSET
    created_at: float | UnsetType = UNSET
    revoked_at: float | UnsetType | None = UNSET
    kind: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    max_uses: int | UnsetType = UNSET
    uses: int | UnsetType = UNSET
    is_running: bool | UnsetType = UNSET
    """Whether it lets requests pass now."""


def add(tx: Tx, request: WhitelistRequest, by: str) -> AllowedEntry:
    """Add an entry and return it. Raises ValueError if it is not allowed."""
    key = action_key(request.action)
    if not key or not request.principal:
        raise ValueError("action and principal are required (principal * is anybody)")
    if is_high_risk(key):
        raise ValueError(f"{request.action} is a high-risk action: it always needs a person")
    if not 1 <= request.seconds <= LONGEST_S:
        raise ValueError(f"the time must be from 1 second to {LONGEST_S // 3600} hours")
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


def remove(tx: Tx, entry_id: int, by: str, why: str = "") -> None:
    """Revoke an entry; `why` is for the log. Raises NotFound."""
    db = tx.connection
    db.execute(
        "UPDATE whitelist SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (tx.now_s, entry_id)
    )
    if not db.changes():
        raise NotFound(f"there is no grant or whitelist entry {entry_id} in force")
    data: dict[str, object] = {"id": entry_id, "why": why} if why else {"id": entry_id}
    sql = "SELECT request_id FROM whitelist_limits WHERE entry_id = ?"
    row = db.execute(sql, (entry_id,)).fetchone()
    tx.record("whitelist_removed", str(row[0]) if row else "", principal=by, data=data)


def list_entries(db: apsw.Connection, now_s: float) -> list[AllowedEntry]:
    """Return every entry, newest first."""
    has_uses = "coalesce(l.max_uses, 0) = 0 OR l.uses < l.max_uses"
    is_running = f"w.revoked_at IS NULL AND w.expires_at > ? AND ({has_uses})"
    rows = db.execute(
        "SELECT w.id, w.action_key, w.principal, w.session_key, w.expires_at, w.created_by, w.created_at,"
        f" w.revoked_at, l.kind, l.request_id, l.host, l.max_uses, l.uses, {is_running}"
        " FROM whitelist w LEFT JOIN whitelist_limits l ON l.entry_id = w.id ORDER BY w.id DESC LIMIT 500",
        (now_s,),
    )
    return [
        AllowedEntry(*row[:8], *(UNSET if cell is None else cell for cell in row[8:-1]), bool(row[-1]))  # pyright: ignore[reportCallIssue] the columns are the fields
        for row in rows
    ]


def list_running(db: apsw.Connection, now_s: float) -> list[AllowedEntry]:
    """Return the entries that let requests pass now, newest first."""
    return [entry for entry in list_entries(db, now_s) if entry.is_running]
