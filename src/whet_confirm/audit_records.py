"""Compare every stored request and vote with the log, and name those that were altered."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from whet.contract.texts import from_json
from whet.sqlite.checked import checked_select
from whet_confirm.canonical import stored_digest
from whet_confirm.seals import row_digest

MAX_PROBLEMS = 20

_RECORD = (
    "SELECT id, action, details, requester, session_key, expires_at, digest, status, resolved_by,"
    " resolved_at, reason, consumed_at FROM requests"
)
_OF_REQUEST = "request_id = ?1 AND request_id != ''"
_EVENTS = checked_select("kind, principal, at, data", "events", _OF_REQUEST, "id") + " ORDER BY id"
_ENDS = ("decided", "expired", "cancelled")


def check_records(db: apsw.Connection, problems: list[str], is_pruned: bool) -> int:
    """Compare every stored request with the log, and return their number. Differences go to `problems`."""
    count = 0
    for row in db.execute(_RECORD):
        count += 1
        if problem := _record_problem(db, row, is_pruned):
            problems.append(f"request {row[0]}: {problem}")
            if len(problems) >= MAX_PROBLEMS:
                return count
    pruned = db.execute("SELECT value FROM facts WHERE name = 'pruned_before'").fetchone()
    missing = db.execute(
        "SELECT e.request_id FROM events e LEFT JOIN requests r ON r.id = e.request_id"
        " WHERE e.kind = 'submitted' AND r.id IS NULL AND e.at >= ? LIMIT ?",
        (float(pruned[0]) if pruned else 0.0, MAX_PROBLEMS),
    )
    problems.extend(f"request {row[0]} is in the log, but its record is gone" for row in missing)
    return count


def _record_problem(db: apsw.Connection, row: tuple[Any, ...], is_pruned: bool) -> str:
    request_id, *content, digest, status, by, at, reason, consumed_at = row
    if problem := _content_problem(request_id, content, digest):
        return problem
    logged = _read_logged_request(db, request_id)
    if not logged.digest:
        return "" if is_pruned and _is_older_than_log(db, request_id) else "the log says nothing of it"
    if logged.digest != digest:
        return "its digest is not the one in the log"
    if logged.end is None:
        if status != "pending":
            return f"it says {status}, the log says pending"
        return _row_problem(db, request_id, logged.record) or _votes_problem(db, request_id, logged)
    names = ("status", "resolved_by", "resolved_at", "reason")
    for name, stored_value, logged_value in zip(names, (status, by, at, reason), logged.end, strict=True):
        if stored_value != logged_value:
            return f"its {name} says {stored_value or 'nothing'}, the log says {logged_value or 'nothing'}"
    if logged.is_used != (consumed_at is not None):
        return "whether it was consumed is not what the log says"
    return _row_problem(db, request_id, logged.record) or _votes_problem(db, request_id, logged)


def _content_problem(request_id: str, content: list[Any], digest: str) -> str:
    action, details, requester, session_key, expires_at = content
    actual_digest = stored_digest(request_id, action, details, requester, session_key, expires_at)
    return "" if actual_digest == digest else "its content was altered: it does not fit its digest"


class _EventData(msgspec.Struct, frozen=True):
    """The request's fields in the data of one event."""

    digest: str = ""
    status: str = ""
    resolved_at: float = 0.0
    reason: str = ""
    verdict: str = ""
    record: str = ""


def _decode_event_data(data: str) -> _EventData:
    """Decode an event's data. Data that can't be decoded counts as empty; the chain check reports it."""
    try:
        return from_json(data, _EventData)
    except msgspec.DecodeError:
        return _EventData()


class _LoggedRequest(msgspec.Struct):
    """A request as the log records it."""

    digest: str = ""
    """The newest digest."""
    end: tuple[str, str, float, str] | None = None
    """Status, person, time and reason of its end."""
    is_used: bool = False
    votes: dict[str, tuple[str, float, str]] = {}
    """Verdict, time and reason of each vote that counts, by person."""
    record: str = ""
    """The hash of its row."""

    def apply_event(self, kind: str, principal: str, at_s: float, event_data: _EventData) -> None:
        """Apply one event."""
        self.record = event_data.record or self.record
        if kind in ("submitted", "amended", *_ENDS):
            self.digest = event_data.digest
        if kind in _ENDS:
            self.end = (event_data.status, principal, event_data.resolved_at, event_data.reason)
        elif kind == "vote":
            self.votes[principal] = (event_data.verdict, at_s, event_data.reason)
        elif kind in ("amended", "replanned"):
            self.votes.clear()
        elif kind == "consumed":
            self.is_used = True


def _read_logged_request(db: apsw.Connection, request_id: str) -> _LoggedRequest:
    logged = _LoggedRequest()
    for kind, principal, at_s, data in db.execute(_EVENTS, (request_id,)):
        logged.apply_event(kind, principal, at_s, _decode_event_data(data))
    return logged


def _is_older_than_log(db: apsw.Connection, request_id: str) -> bool:
    """Return whether a request is older than the log's first event: its events may have been pruned."""
    row = db.execute(
        "SELECT r.created_at < e.at FROM requests r, events e WHERE r.id = ? ORDER BY e.id LIMIT 1",
        (request_id,),
    ).fetchone()
    return bool(row and row[0])


def _row_problem(db: apsw.Connection, request_id: str, logged_hash: str) -> str:
    if not logged_hash:
        return ""  # written by a version that stored no hash of the row
    row = db.execute("SELECT * FROM requests WHERE id = ?", (request_id,)).fetchone()
    is_same = row is not None and row_digest("requests", row).hex() == logged_hash
    return "" if is_same else "its record was altered: it is not the one that the log has the hash of"


def _votes_problem(db: apsw.Connection, request_id: str, logged: _LoggedRequest) -> str:
    sql = "SELECT principal, verdict, at, reason FROM votes WHERE request_id = ?"
    stored = {row[0]: row[1:] for row in db.execute(sql, (request_id,))}
    differing = sorted(
        name for name in stored.keys() | logged.votes.keys() if stored.get(name) != logged.votes.get(name)
    )
    return f"the vote of {differing[0]} is not the one in the log" if differing else ""


def request_problem(db: apsw.Connection, request_id: str) -> str:
    """Describe how a stored request or its votes differ from the log. Returns "" if they don't."""
    row = db.execute(f"{_RECORD} WHERE id = ?", (request_id,)).fetchone()
    is_pruned = db.execute("SELECT 1 FROM facts WHERE name = 'pruned_to'").fetchone() is not None
    return _record_problem(db, row, is_pruned) if row else ""
