"""Open the service's files: database, signing key, policy, and first tokens.

Everything is checked before the service starts; a problem stops the start with a hint.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import apsw
import msgspec

from whet.config.paths import Home, read_small, replace_file
from whet.contract.errors import ConfigError
from whet.postgres.driver import hide_password, needs_driver
from whet_confirm import tokens
from whet_confirm.database import ConfirmDatabase
from whet_confirm.keys import PublicKey, SigningKey, load_key
from whet_confirm.ledger import Tx
from whet_confirm.policy_file import PolicyFile
from whet_confirm.policy_review import end_disallowed_grants
from whet_confirm.records import AuditEvent
from whet_confirm.recovery import (
    BY_START,
    check_start,
    correct_clock,
    record_state,
    start_time,
)
from whet_confirm.seals import read_seal
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.timeline import Timeline
from whet_confirm.watermark import LogMark, Watermark, last_mark


class StartTerms(msgspec.Struct, frozen=True):
    """How a start treats the state of the last run.

    `why` is the reason to accept a state that differs from it (empty: refuse). `witnesses` are files with
    checkpoints, stored elsewhere, to compare with.
    """

    why: str = ""
    witnesses: tuple[Path, ...] = ()


_DEFAULT_TERMS = StartTerms()


class ServicePaths(msgspec.Struct, frozen=True):
    """The paths of the service's files. Everything except the database is in one folder of the home."""

    database: Path
    folder: Path
    is_elsewhere: bool = False
    """Whether the user named the database. The folder may then have been used with another database."""
    url: str = ""
    """The address of a team's database."""

    @property
    def key(self) -> Path:
        """The signing key."""
        return self.folder / "signing.key"

    @property
    def new_key(self) -> Path:
        """A signing key that has not sealed the database yet."""
        return self.folder / "signing.new"

    @property
    def public_key(self) -> Path:
        """Its public half."""
        return self.folder / "signing.pub"

    @property
    def checkpoints(self) -> Path:
        """Signed checkpoints, one JSON object per line."""
        return self.folder / "checkpoints.jsonl"

    def token_path(self, role: str) -> Path:
        """The first token of a role."""
        return self.folder / f"{role}.token"


def service_paths(home: Home, db_path: Path | str | None = None) -> ServicePaths:
    """Return the paths of a home. `db_path` moves the database elsewhere: a file, or a team's address."""
    if isinstance(db_path, str):
        return ServicePaths(
            Path(hide_password(db_path)), home.root / "confirm", is_elsewhere=True, url=db_path
        )
    return ServicePaths(db_path or home.root / "confirmations.db", home.root / "confirm", db_path is not None)


def open_service(
    paths: ServicePaths,
    *,
    policy: Path | None,
    limits: CallerLimits,
    new_key: bool = False,
    patience_s: float = 10.0,
    terms: StartTerms = _DEFAULT_TERMS,
) -> ConfirmService:
    """Open everything. Raises WhetError with a hint."""
    policy_file = PolicyFile(policy)
    database = open_database(paths, patience_s)
    try:
        _install_new_key(paths, database)
        signed_before = database.read_now(_has_checkpoints)
        key = SigningKey.generate() if new_key else load_key(paths.key, may_make=not signed_before)
        database.sealer.sign_with(key, _previous_key(paths) if new_key else read_public_keys(paths))
        watermark = Watermark(paths.folder / "latest.json", paths.database)
        keys = {**read_public_keys(paths), key.id: key}
        problem = check_start(database, _read_marks(paths, watermark, terms), terms.why, keys)
        _refuse_another_key(database, key, new_key=new_key)
        if new_key:
            key.write(paths.new_key)
        floor_s, ahead_s = start_time(database, database.wall)
        timeline = Timeline(floor_s, wall=database.wall)
        service = ConfirmService(database, key, policy_file, limits=limits, timeline=timeline)
        service.log.watermark = watermark

        def begin(db: apsw.Connection) -> list[AuditEvent]:
            tx = Tx(db, timeline.now_s(), key)
            record_state(tx, problem, terms.why)
            if ahead_s:
                correct_clock(tx, ahead_s)
            _record_start(tx, service)
            return tx.events

        newest = database.write_now(begin)[-1]
        _install_new_key(paths, database)
        _write_public_key(paths.public_key, key)
        service.public_keys = read_public_keys(paths)
        if problem:
            _archive_checkpoints(paths)
        watermark.write(newest)
        database.sealer.sign_with(key, {})  # from here on reject seals by earlier keys
        service.hub.last_id = service.log.state().size
    except BaseException:
        database.close()
        raise
    return service


def open_database(paths: ServicePaths, patience_s: float = 10.0) -> ConfirmDatabase:
    """Open the database: the service's own file, or a team's. Raises WhetError."""
    if not paths.url:
        return ConfirmDatabase.open(paths.database, patience_s=patience_s)
    with needs_driver():
        from whet_confirm.team import TeamConfirmDatabase  # noqa: PLC0415 - brings psycopg, an extra

        return TeamConfirmDatabase.open_url(paths.url, patience_s=patience_s)


def make_first_tokens(service: ConfirmService, paths: ServicePaths, owner: str = "owner") -> list[Path]:
    """Create a submit token, and an approve token for `owner`, unless there has ever been a token.

    Returns their files (0600), or an empty list.
    """
    if service.database.read_now(tokens.TOKENS.all):
        return []

    def make(db: apsw.Connection) -> dict[str, str]:
        tx = Tx(db, service.timeline.now_s(), service.key)
        if tokens.TOKENS.all(db):
            return {}
        names = {"submit": "agent", "approve": owner}
        return {role: tokens.create(tx, name, role, by=BY_START)[1] for role, name in names.items()}

    secrets = service.database.write_now(make)
    for role, secret in secrets.items():
        replace_file(paths.token_path(role), secret + "\n", mode=0o600)
    return [paths.token_path(role) for role in secrets]


def _install_new_key(paths: ServicePaths, database: ConfirmDatabase) -> None:
    """Install a new key once it has sealed the database, or delete it if its start failed before that.

    The replaced key is kept under an unused name: signing.old, signing.2.old and so on.
    """
    if not paths.new_key.exists():
        return
    seal = database.read_now(read_seal)
    if seal is None or seal.signer != load_key(paths.new_key, may_make=False).id:
        paths.new_key.unlink()
        return
    names = (paths.key.with_suffix(f".{number}.old" if number > 1 else ".old") for number in count(1))
    if (text := read_small(paths.key)) is not None:
        replace_file(next(name for name in names if not name.exists()), text, mode=0o600)
    paths.new_key.replace(paths.key)


def _previous_key(paths: ServicePaths) -> dict[str, PublicKey]:
    """Return the key that was in use until now.

    It includes the private half if that exists, because only it can check a seal that is not signed yet.
    """
    if paths.key.exists():
        key = load_key(paths.key, may_make=False)
        return {key.id: key}
    return dict([*read_public_keys(paths).items()][-1:])


def _write_public_key(path: Path, key: SigningKey) -> None:
    """Add a public key to the file that lists every key ever in use, the current one last.

    Old checkpoints are checked with them.
    """
    texts = (read_small(path) or "").split()
    if texts[-1:] != [key.public.text]:
        others = [text for text in texts if text != key.public.text]
        replace_file(path, "\n".join([*others, key.public.text]) + "\n", mode=0o644)


def read_public_keys(paths: ServicePaths) -> dict[str, PublicKey]:
    """Return every public key that was ever in use here, by id. The last one is the current key."""
    keys = [PublicKey.parse(line) for line in (read_small(paths.public_key) or "").split()]
    return {key.id: key for key in keys}


def _has_checkpoints(db: apsw.Connection) -> bool:
    return db.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is not None


def _read_marks(paths: ServicePaths, watermark: Watermark, terms: StartTerms) -> list[LogMark]:
    """Return the known ends of the log: of the last run, the exported checkpoints and the witnesses."""
    latest = watermark.read()
    files = (paths.checkpoints, *terms.witnesses) if latest or not paths.is_elsewhere else terms.witnesses
    marks = [latest, *(last_mark(path) for path in files)]
    return [mark for mark in marks if mark is not None]


def _archive_checkpoints(paths: ServicePaths) -> None:
    """Rename the checkpoints of a log that no longer exists."""
    (paths.folder / "latest.json").unlink(missing_ok=True)
    if paths.checkpoints.exists():
        names = (paths.folder / f"checkpoints.{number}.jsonl" for number in count(1))
        paths.checkpoints.rename(next(name for name in names if not name.exists()))


def _refuse_another_key(database: ConfirmDatabase, key: SigningKey, *, new_key: bool) -> None:
    """Refuse a signing key other than the one that sealed the database, unless a new one was requested."""
    seal = database.read_now(read_seal)
    if seal is not None and seal.signer != key.id and not new_key:
        raise ConfigError(
            f"the signing key is not the one that sealed {database.path}",
            hint="restore it from your backup, or start with --new-key to sign with a new one",
        )


def _record_start(tx: Tx, service: ConfirmService) -> None:
    """Record the start with the key and policy, so that the log shows a change of either."""
    version = service.policy_file.policy.version
    row = tx.connection.execute("SELECT value FROM facts WHERE name = 'policy_version'").fetchone()
    tx.record("started", principal=BY_START, data={"key_id": service.key.id, "policy_version": version})
    if row is not None and row[0] != version:
        tx.record("policy_changed", principal=BY_START, data={"was": row[0], "now": version})
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('policy_version', ?)", (version,))
    end_disallowed_grants(tx, service.policy_file.policy, BY_START)
