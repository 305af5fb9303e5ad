"""Check and export the audit log: the hash chain, the signed checkpoints, and every table beside it.

Problems are returned as lines for a person. An empty list means that nothing was altered, removed,
reordered or cut off before the newest known checkpoint. Events after it are protected by the chain alone.
Checking needs the public key but no running service.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import apsw
import msgspec

from whet.config.paths import read_small
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import NOT_JSON, from_json
from whet_confirm.audit_people import check_signatures
from whet_confirm.audit_records import MAX_PROBLEMS, check_records
from whet_confirm.audit_tables import check_tables
from whet_confirm.audit_tokens import check_tokens
from whet_confirm.keys import PublicKey, unbase64
from whet_confirm.ledger import GENESIS, checkpoint_message

_STEP = 20_000
_encode = msgspec.json.Encoder().encode


class Checkpoint(msgspec.Struct, frozen=True):
    """A signed statement of the log's length and its newest hash."""

    size: int
    head: str
    at: float
    key_id: str
    signature: str


class AuditReport(msgspec.Struct, frozen=True):
    """The result of a check."""

    events: int
    records: int
    checkpoints: int
    head: str
    problems: tuple[str, ...]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the check found no problem."""
        return not self.problems


Keys = Mapping[str, PublicKey]
ProgressReport = Callable[[int], None]


def read_keys(path: Path) -> dict[str, PublicKey]:
    """Read public keys, one per line, and return them by id. Raises NotFound or ConfigError."""
    text = read_small(path)
    if text is None:
        raise NotFound(f"there is no public key file {path}", hint="whet confirm serve makes it")
    keys = [PublicKey.parse(line) for line in text.splitlines() if line.strip()]
    return {key.id: key for key in keys}


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Read exported checkpoints, one JSON object per line. Raises ConfigError."""
    try:
        lines = path.read_bytes().splitlines()
        return [from_json(line, Checkpoint) for line in lines if line.strip()]
    except (OSError, *NOT_JSON) as error:
        raise ConfigError(f"can't read checkpoints from {path}: {error}") from error


def verify(
    db: apsw.Connection,
    keys: Keys,
    outside: Iterable[Checkpoint] = (),
    report_progress: ProgressReport | None = None,
) -> AuditReport:
    """Check the whole log in one read transaction.

    `outside` are checkpoints that were stored elsewhere. The last of `keys` is the one in use.
    """
    began = time.perf_counter()
    problems: list[str] = []
    base, before = _log_start(db)
    inside = [Checkpoint(*row) for row in db.execute("SELECT * FROM checkpoints ORDER BY size")]
    marks: dict[int, list[Checkpoint]] = {}
    for mark in [*inside, *outside]:
        if problem := _signature_problem(mark, keys):
            problems.append(problem)
        marks.setdefault(mark.size, []).append(mark)
    count, head = base, before
    try:
        count, head = _check_chain(db, (base, before), marks, problems, report_progress)
        records = check_records(db, problems, _log_start(db)[0] > 0) if len(problems) < MAX_PROBLEMS else 0
        problems += check_signatures(db) if len(problems) < MAX_PROBLEMS else []
        problems += check_tables(db, keys, (count, head), is_silent=bool(problems))
        problems += [] if problems else check_tokens(db, is_pruned=_log_start(db)[0] > 0)
    except (UnicodeDecodeError, TypeError, msgspec.DecodeError, ValueError) as error:
        problems.append(f"a row after event {count} can't be read: {error}")
        records = 0
    if beyond := [size for size in marks if size > count]:
        problems.append(
            f"the log ends at event {count}, but a checkpoint is signed for {min(beyond)}: it was cut off"
        )
    seconds = time.perf_counter() - began
    return AuditReport(count - base, records, len(marks), head.hex(), tuple(problems[:MAX_PROBLEMS]), seconds)


def find_removed_checkpoints(db: apsw.Connection, exported: Iterable[Checkpoint]) -> list[str]:
    """Return one line for each signed checkpoint that was removed from the exported file.

    Checkpoints missing at the end of the file don't count: the service writes those again.
    """
    sizes = {mark.size for mark in exported}
    rows = db.execute("SELECT size FROM checkpoints WHERE size < ? ORDER BY size", (max(sizes, default=0),))
    return [
        f"the checkpoint at {row[0]} was taken out of the file of checkpoints"
        for row in rows
        if row[0] not in sizes
    ]


def _log_start(db: apsw.Connection) -> tuple[int, bytes]:
    """Return the number and hash of the event before the first one: 0, or the checkpoint of a pruned log."""
    row = db.execute("SELECT value FROM facts WHERE name = 'pruned_to'").fetchone()
    if row is None:
        return 0, GENESIS
    size = int(row[0])
    mark = db.execute("SELECT head FROM checkpoints WHERE size = ?", (size,)).fetchone()
    return (size, bytes.fromhex(mark[0])) if mark else (0, GENESIS)


def _signature_problem(mark: Checkpoint, keys: Keys) -> str:
    key = keys.get(mark.key_id)
    if key is None:
        return f"the checkpoint at {mark.size} is signed with a key that is not known ({mark.key_id})"
    message = checkpoint_message(mark.size, mark.head, mark.at)
    try:
        is_genuine = key.is_valid_signature(message, unbase64(mark.signature))
    except ValueError:
        is_genuine = False
    return "" if is_genuine else f"the checkpoint at {mark.size} has a signature that does not fit"


def _check_chain(
    db: apsw.Connection,
    start: tuple[int, bytes],
    marks: Mapping[int, list[Checkpoint]],
    problems: list[str],
    report_progress: ProgressReport | None,
) -> tuple[int, bytes]:
    """Walk the log, append problems to `problems`, and return the last event's number and hash."""
    count, head = start
    sha256 = hashlib.sha256
    sql = "SELECT id, at, kind, request_id, principal, owner, data, hash FROM events WHERE id > ? ORDER BY id"
    for row in db.execute(sql, (count,)):
        count += 1
        stored = row[7]
        if row[0] != count:
            problems.append(f"event {count} is missing")
            count = row[0]
        elif sha256(head + _encode(row[:7])).digest() != stored:
            problems.append(f"event {count} was altered, or the one before it")
        if type(stored) is not bytes:
            raise TypeError("the hash is not a blob")
        head = stored
        if count in marks:
            for mark in marks[count]:
                if mark.head != head.hex():
                    problems.append(f"event {count} is not what the checkpoint at {count} was signed for")
        if len(problems) >= MAX_PROBLEMS:
            break
        if report_progress is not None and count % _STEP == 0:
            report_progress(count)
    return count, head


def export(db: apsw.Connection, after_id: int = 0, until_id: int = 1 << 62) -> Iterator[bytes]:
    """Yield the log as JSON lines, one complete event each, in order."""
    sql = "SELECT * FROM events WHERE id > ? AND id <= ? ORDER BY id"
    for row in db.execute(sql, (after_id, until_id)):
        number, at_s, kind, request_id, principal, owner, data, digest = row
        event = {
            "id": number,
            "at": at_s,
            "kind": kind,
            "request_id": request_id,
            "principal": principal,
            "owner": owner,
            "data": msgspec.Raw(data.encode()),
            "hash": digest.hex(),
        }
        yield _encode(event) + b"\n"
