"""Store the ledger of changes to learned items: who made each change, the evidence, and the content before
and after.

Every function takes a connection inside a transaction. The memory layer decides which changes are allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.contract.origin import Origin
from whet.contract.texts import shared_decoder, to_json

Kind: TypeAlias = Literal["memory", "skill"]
State: TypeAlias = Literal["staged", "active", "quarantined", "inbox", "undone", "rejected", "refused"]
Trust: TypeAlias = Literal["user", "observed", "untrusted"]
Owner: TypeAlias = Literal["agent", "person"]


class Quote(msgspec.Struct, frozen=True):
    """A quote as evidence, from message `seq` of `session_id`, which `role` wrote."""

    quote: str
    session_id: str = ""
    seq: int = 0
    role: str = ""
    tool: str = ""
    trust: str = ""
    failed: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """A skill's changed file, with the hashes of its text before and after, empty where there is no file."""

    path: str
    before: str
    after: str


class LedgerRow(msgspec.Struct, frozen=True):
    """One change.

    `before` and `after` are a memory entry, or the text of a skill's changed file. `hash` is the item's hash
    with the change, `base_hash` without it. `undoes` is the id of the row that this one undoes, or 0.
    `remark` is the model's comment, which never takes effect.
    """

    id: int
    profile: str
    at: str
    kind: Kind
    item: str
    action: str
    state: State
    before: str
    after: str
    changes: tuple[FileChange, ...]
    base_hash: str
    hash: str
    evidence: tuple[Quote, ...]
    trust: str
    reason: str
    undoes: int
    undone_by: int
    origin: Origin
    remark: str = ""


class NewRow(msgspec.Struct, frozen=True):
    """The fields of a new change."""

    kind: Kind
    item: str
    action: str
    state: State
    origin: Origin
    before: str = ""
    after: str = ""
    changes: tuple[FileChange, ...] = ()
    base_hash: str = ""
    hash: str = ""
    evidence: tuple[Quote, ...] = ()
    trust: str = ""
    reason: str = ""
    undoes: int = 0
    profile: str = ""
    remark: str = ""


class LedgerFilter(TypedDict, total=False):
    """The rows to select. Missing or empty fields do not restrict them. `session_id` also matches the rows of
    its reviews."""

    profile: str
    kind: Kind
    item: str
    states: Sequence[State]
    session_id: str
    task_id: str


_MAX_ID = 2**63 - 1
_ORIGIN = tuple(filter("others".__ne__, Origin.__struct_fields__))
_PLAIN = ("profile", "kind", "item", "action", "state", "before", "after", "base_hash", "hash", "trust")
_INSERTED = (*_PLAIN, "reason", "undoes", "remark")
_COLUMNS = (
    "id, profile, at, kind, item, action, state, before, after, changes, base_hash, hash, evidence, trust,"
    " reason, undoes, undone_by, " + ", ".join(_ORIGIN) + ", remark"
)
_changes = shared_decoder(tuple[FileChange, ...])
_quotes = shared_decoder(tuple[Quote, ...])


def hash_text(content: bytes | str) -> str:
    """Return the hash that identifies a text."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:32]


def insert_row(connection: apsw.Connection, new: NewRow, now: str) -> LedgerRow:
    """Insert a change and return its row."""
    names = ", ".join((*_INSERTED, "at", "changes", "evidence", *_ORIGIN))
    values = [getattr(new, name) for name in _INSERTED]
    values += [now, to_json(new.changes), to_json(new.evidence)]
    values += [getattr(new.origin, name) for name in _ORIGIN]
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO ledger ({names}) VALUES ({marks})", values)
    return get(connection, connection.last_insert_rowid())


def get(connection: apsw.Connection, row_id: int, profile: str | None = None) -> LedgerRow:
    """Return a row. Raises NotFound, also for another profile's row."""
    bounded_id = min(row_id, _MAX_ID)
    row = connection.execute(f"SELECT {_COLUMNS} FROM ledger WHERE id = ?", (bounded_id,)).fetchone()
    if row is None or (profile is not None and row[1] != profile):
        raise NotFound(
            f"there is no change {row_id}", hint="`whet memory log` and `whet skills log` list them"
        )
    return _read_row(row)


def find_by_call(connection: apsw.Connection, session_id: str, tool_call_id: str) -> LedgerRow | None:
    """Return the row that a tool call made, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM ledger WHERE session_id = ? AND tool_call_id = ? AND tool_call_id <> ''",
        (session_id, tool_call_id),
    ).fetchone()
    return None if row is None else _read_row(row)


def select(connection: apsw.Connection, limit: int = 0, **filters: Unpack[LedgerFilter]) -> list[LedgerRow]:
    """Return the rows that match, newest first, or the newest `limit` of them."""
    where = ["1"]
    values: list[Any] = []
    if (profile := filters.get("profile")) is not None:
        where.append("profile = ?")
        values.append(profile)
    for column in ("kind", "item", "task_id"):
        if value := filters.get(column):
            where.append(f"{column} = ?")
            values.append(value)
    if states := filters.get("states"):
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    if session_id := filters.get("session_id"):
        where.append("(session_id = ? OR parent_session_id = ? OR instr(evidence, ?))")
        values += [session_id, session_id, to_json(session_id)]
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM ledger WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?",
        (*values, limit or -1),
    )
    return [_read_row(row) for row in rows]


def list_note_folders(connection: apsw.Connection, profile: str) -> list[tuple[str, str]]:
    """Return (text, session's folder) of each note that an active change wrote to MEMORY.md.

    The folder is empty if a person wrote the note or the session was deleted.
    """
    return connection.execute(
        "SELECT l.after, coalesce(s.workspace, '') FROM ledger l LEFT JOIN sessions s"
        " ON s.id = CASE l.write_origin WHEN 'review' THEN l.parent_session_id"
        " WHEN 'foreground' THEN l.session_id END"
        " WHERE l.profile = ? AND l.kind = 'memory' AND l.item = 'memory' AND l.state = 'active'"
        " AND l.after <> ''",
        (profile,),
    ).fetchall()


def list_task_rows(
    connection: apsw.Connection, task_id: str, states: Sequence[State] = ()
) -> list[LedgerRow]:
    """Return the rows that a review made, in order."""
    return select(connection, task_id=task_id, states=states)[::-1] if task_id else []


def set_state(
    connection: apsw.Connection, row_id: int, state: State, *, reason: str = "", undone_by: int = 0
) -> None:
    """Move a row to another state. An empty reason leaves the stored one."""
    connection.execute(
        "UPDATE ledger SET state = ?, undone_by = ?, reason = CASE WHEN ? <> '' THEN ? ELSE reason END"
        " WHERE id = ?",
        (state, undone_by, reason, reason, row_id),
    )


def count_by_state(connection: apsw.Connection, profile: str = "") -> dict[str, int]:
    """Count a profile's rows by state."""
    rows = connection.execute(
        "SELECT state, count(*) FROM ledger WHERE profile = ? GROUP BY state", (profile,)
    )
    return {row[0]: row[1] for row in rows}


def _read_row(row: tuple[Any, ...]) -> LedgerRow:
    head, origin, remark = list(row[:17]), row[17:-1], row[-1]
    head[9], head[12] = _changes.decode(head[9]), _quotes.decode(head[12])
    return LedgerRow(*head, Origin(*origin), remark)  # pyright: ignore[reportCallIssue] the columns are the fields
