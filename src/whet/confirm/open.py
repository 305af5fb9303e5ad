"""Open the service's files: database, signing key, policy, and first tokens.

Everything is checked before anything is served; what is wrong stops the start with what to do.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec

from whet.config.paths import Home, read_small, replace
from whet.confirm import tokens
from whet.confirm.database import ConfirmDatabase
from whet.confirm.keys import SigningKey, load_key
from whet.confirm.ledger import Tx
from whet.confirm.policy_file import PolicyFile
from whet.confirm.service import CallerLimits, ConfirmService
from whet.confirm.timeline import Timeline

BY_START = "system:start"


class Places(msgspec.Struct, frozen=True):
    """Where the service keeps what it has; everything but the database is in one folder of the home."""

    database: Path
    folder: Path

    @property
    def key(self) -> Path:
        """The signing key."""
        return self.folder / "signing.key"

    @property
    def public_key(self) -> Path:
        """Its public half."""
        return self.folder / "signing.pub"

    @property
    def checkpoints(self) -> Path:
        """Signed checkpoints, one JSON object a line."""
        return self.folder / "checkpoints.jsonl"

    def token(self, role: str) -> Path:
        """The first token of a role."""
        return self.folder / f"{role}.token"


def places(home: Home, db_path: Path | None = None) -> Places:
    """Give the places of a home; `db_path` puts the database elsewhere."""
    return Places(db_path or home.root / "confirmations.db", home.root / "confirm")


def open_service(
    where: Places,
    *,
    policy: Path | None,
    limits: CallerLimits,
    new_key: bool = False,
    patience_s: float = 10.0,
) -> ConfirmService:
    """Open everything. Raises WhetError with what to do."""
    policy_file = PolicyFile(policy)
    database = ConfirmDatabase.open(where.database, patience_s=patience_s)
    try:
        if new_key and where.key.exists():
            where.key.rename(where.key.with_suffix(".old"))
        signed_before = database.read_now(_has_checkpoints)
        key = load_key(where.key, may_make=new_key or not signed_before)
        _publish(where.public_key, key)
        timeline = Timeline(database.read_now(newest_time))
        service = ConfirmService(database, key, policy_file, limits=limits, timeline=timeline)
        database.write_now(lambda db: _note_start(Tx(db, timeline.now_s(), key), service))
        service.hub.last_id = service.log.state().size
    except BaseException:
        database.close()
        raise
    return service


def make_first_tokens(service: ConfirmService, where: Places) -> list[Path]:
    """Where no token was ever made, make one that submits and one that approves; gives their files (0600)."""
    if service.database.read_now(tokens.TOKENS.all):
        return []

    def make(db: apsw.Connection) -> dict[str, str]:
        tx = Tx(db, service.timeline.now_s(), service.key)
        if tokens.TOKENS.all(db):
            return {}
        made = {"submit": "agent", "approve": "owner"}
        return {role: tokens.create(tx, name, role, by=BY_START)[1] for role, name in made.items()}

    made = service.database.write_now(make)
    for role, secret in made.items():
        replace(where.token(role), secret + "\n", mode=0o600)
    return [where.token(role) for role in made]


def _publish(path: Path, key: SigningKey) -> None:
    """Keep every public key that was ever in use, one a line: old checkpoints are checked with old keys."""
    known = (read_small(path) or "").split()
    if key.public.text not in known:
        replace(path, "\n".join([*known, key.public.text]) + "\n", mode=0o644)


def _has_checkpoints(db: apsw.Connection) -> bool:
    return db.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is not None


def newest_time(db: apsw.Connection) -> float:
    """Give the time of the newest event, 0.0 where there is none."""
    row = db.execute("SELECT at FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return float(row[0]) if row else 0.0


def _note_start(tx: Tx, service: ConfirmService) -> None:
    """Say in the log that the service started, with the key and policy; a change of either shows there."""
    version = service.policy_file.policy.version
    row = tx.connection.execute("SELECT value FROM facts WHERE name = 'policy_version'").fetchone()
    tx.record("started", principal=BY_START, data={"key_id": service.key.id, "policy_version": version})
    tx.connection.execute(
        "INSERT OR REPLACE INTO facts VALUES ('key:' || ?, ?)", (service.key.id, service.key.public.text)
    )
    if row is not None and row[0] != version:
        tx.record("policy_changed", principal=BY_START, data={"was": row[0], "now": version})
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('policy_version', ?)", (version,))
