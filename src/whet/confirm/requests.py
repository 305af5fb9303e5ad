"""Requests, votes and views as rows. Each function is one or two statements on the connection it is given.

A row that can't be read, which only somebody else can have written, raises StoreCorrupt where it is asked for
by itself. Lists leave it out and say so in the log, once: nobody else's request waits behind it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from whet.confirm import rates
from whet.confirm.ledger import Tx
from whet.confirm.records import (
    BY_TIMEOUT,
    STATUSES,
    ApprovalPlan,
    Caller,
    ConfirmRequest,
    Status,
    Verdict,
    Vote,
)
from whet.contract.errors import StoreCorrupt
from whet.contract.texts import NOT_JSON, decoder, from_json
from whet.sqlite.checked import checked_select

_FIELDS = ConfirmRequest.__struct_fields__
_COLUMNS = ", ".join(name.removesuffix("_json") for name in _FIELDS)
ONE = checked_select(_COLUMNS, "requests", "id = ?1", "seq")
_STORED = tuple(name for name in _FIELDS if name not in ("seq", "plan"))
_stored_of = attrgetter(*_STORED)
_CELLS = [
    *(name.removesuffix("_json") for name in _STORED),
    "action_key",
    "plan",
    "escalates_at",
    "rate_number",
]
_INSERT = f"INSERT INTO requests ({', '.join(_CELLS)}) VALUES ({', '.join('?' * len(_CELLS))})"
_STATUS, _EXPIRES, _RESOLVED, _RESOLVED_BY, _PLAN, _RISK, _EDITS = map(
    _FIELDS.index,
    ("status", "expires_at", "resolved_at", "resolved_by", "plan", "is_high_risk", "accepts_edits"),
)
_TIMES = tuple(at for at, name in enumerate(_FIELDS) if name.endswith("_at"))
_EARLIEST_S, _LATEST_S = -62_135_596_800.0, 253_402_300_799.0  # years of four digits
_VERDICTS: tuple[Verdict, ...] = ("approve", "deny")
_UNKNOWN_PLAN = ApprovalPlan()
_READ_CHARS = 32 * 1024
_LOG = logging.getLogger("whet.confirm.requests")
_decode_plan = decoder(ApprovalPlan).decode
_encode_plan = msgspec.json.Encoder(order="deterministic").encode


@lru_cache(maxsize=256)
def plan_of(text: str) -> ApprovalPlan:
    """Read a stored plan. Raises StoreCorrupt."""
    try:
        return _decode_plan(text)
    except NOT_JSON as error:
        raise _unreadable("plan") from error


def details_of(text: str) -> dict[str, Any]:
    """Read stored details. Raises StoreCorrupt."""
    try:
        return from_json(text, dict[str, Any])
    except NOT_JSON as error:
        raise _unreadable("details") from error


def check_details(request: ConfirmRequest) -> None:
    """Raise StoreCorrupt for details, or earlier ones, that are no object of JSON. Large ones are only looked
    through, which takes a tenth of the time."""
    try:
        for text in (request.details_json, request.original_json):
            if text:
                from_json(text, dict[str, Any] if len(text) <= _READ_CHARS else dict[str, msgspec.Raw])
    except NOT_JSON as error:
        raise _unreadable("details") from error


def _unreadable(what: str) -> StoreCorrupt:
    return StoreCorrupt(f"a request's {what} in the database can't be read")


@lru_cache(maxsize=256)
def tell_unreadable(request: str, why: str) -> None:
    """Say in the log, once, that what needs a request goes on without it."""
    _LOG.error("request %s is left out: %s", request, why)


@lru_cache(maxsize=256)
def plan_text(plan: ApprovalPlan) -> str:
    """Write a plan as it is stored."""
    return _encode_plan(plan).decode()


def as_request(row: tuple[Any, ...], now_s: float) -> ConfirmRequest:
    """Give a row as a request; past its deadline it is expired, whatever the row still says. Raises
    StoreCorrupt."""
    cells = _checked(row)
    if cells[_STATUS] == "pending" and now_s >= cells[_EXPIRES]:
        cells[_STATUS], cells[_RESOLVED], cells[_RESOLVED_BY] = "expired", cells[_EXPIRES], BY_TIMEOUT
    cells[_PLAN] = plan_of(cells[_PLAN])
    cells[_RISK], cells[_EDITS] = bool(cells[_RISK]), bool(cells[_EDITS])
    return ConfirmRequest(*cells)


def _checked(row: tuple[Any, ...]) -> list[Any]:
    if len(row) < len(_FIELDS):
        raise _unreadable("text")
    if row[_STATUS] not in STATUSES:
        raise _unreadable("status")
    for at in _TIMES:
        if row[at] is not None and not _EARLIEST_S <= row[at] <= _LATEST_S:
            raise _unreadable("time")
    return list(row)


def _as_open(row: tuple[Any, ...]) -> ConfirmRequest:
    """Give a pending row as what its deadline needs: one whose plan nobody can read ends as others do."""
    try:
        return as_request(row, -math.inf)
    except StoreCorrupt as error:
        if len(row) < len(_FIELDS):
            raise
        tell_unreadable(str(row[1]), error.message)
        cells = list(row)
        cells[_PLAN] = _UNKNOWN_PLAN
        return ConfirmRequest(*cells)


def _readable(
    rows: Iterable[tuple[Any, ...]], read: Callable[[tuple[Any, ...]], ConfirmRequest]
) -> Iterator[ConfirmRequest]:
    for row in rows:
        try:
            yield read(row)
        except StoreCorrupt as error:
            tell_unreadable(str(row[1] if len(row) == len(_FIELDS) else row[0]), error.message)


def _rows(db: apsw.Connection, where: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Give rows; of one with a text that is none, the number alone."""
    return rows_of(db, _COLUMNS, ("requests", "seq"), where, values)


def rows_of(
    db: apsw.Connection, columns: str, source: tuple[str, str], where: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Give the `columns` of the rows of `source`, a table and the name of its key, that `where` finds; of one
    with a text that is none, the key alone."""
    table, key = source
    try:
        return db.execute(f"SELECT {columns} FROM {table} WHERE {where}", tuple(values)).fetchall()  # type: ignore[arg-type]
    except UnicodeDecodeError:
        keys = db.execute(f"SELECT {key} FROM {table} WHERE {where}", tuple(values)).fetchall()  # type: ignore[arg-type]
    found: list[tuple[Any, ...]] = []
    for one in keys:
        try:
            found += db.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", one).fetchall()
        except UnicodeDecodeError:
            found.append(one)
    return found


def find(db: apsw.Connection, request_id: str, now_s: float) -> ConfirmRequest | None:
    """Give one request."""
    row = db.execute(ONE, (request_id,)).fetchone()
    return as_request(row, now_s) if row else None


class RequestKeys(msgspec.Struct, frozen=True):
    """What a new request is found by again: its action's key, its number under the rate limit (None: it
    does not count), and its caller's idempotency key ("" for none) with the hash of the body."""

    action: str
    rate_number: int | None
    idempotency: str
    body_hash: bytes


def insert(tx: Tx, request: ConfirmRequest, keys: RequestKeys) -> None:
    """Store a new request, with the events that say so; `seq` is given by the database."""
    plan, at_s = request.plan, request.created_at
    escalates_at = (
        at_s + plan.escalate_after * (request.expires_at - at_s)
        if plan.escalate_to and request.status == "pending"
        else None
    )
    more = (keys.action, plan_text(plan), escalates_at, keys.rate_number)
    tx.connection.execute(_INSERT, (*_stored_of(request), *more))
    rates.keep(tx, request.principal, keys.action, keys.rate_number)
    _record_new(tx, request)
    if keys.idempotency:
        tx.connection.execute(
            "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)",
            (request.principal, keys.idempotency, keys.body_hash, request.id, tx.now_s),
        )


def _record_new(tx: Tx, request: ConfirmRequest) -> None:
    data: dict[str, object] = {
        "action": request.action,
        "digest": request.digest,
        "created_at": request.created_at,
        "expires_at": request.expires_at,
        "policy_version": request.policy_version,
    }
    if request.plan.rule:
        data["rule"] = request.plan.rule
    tx.record("submitted", request.id, request.principal, request.principal, data)
    if request.status != "pending":
        settled = _named(request, "status", "digest", "resolved_at", "reason")
        tx.record("decided", request.id, request.resolved_by, request.principal, settled)


def _named(request: ConfirmRequest, *names: str) -> dict[str, object]:
    return {name: getattr(request, name) for name in names}


def settle(
    tx: Tx, request: ConfirmRequest, status: Status, by: str, reason: str = "", *, is_altered: bool = False
) -> ConfirmRequest:
    """Compare and set: end a pending request, write the event and the callback.

    The caller has read `request` in this transaction. The log does not vouch for one that `is_altered`.
    Gives the request as it is now.
    """
    at_s = min(request.expires_at, tx.now_s) if status == "expired" else tx.now_s
    tx.connection.execute(
        "UPDATE requests SET status = ?, resolved_at = ?, resolved_by = ?, reason = ?"
        " WHERE seq = ? AND status = 'pending'",
        (status, at_s, by, reason, request.seq),
    )
    if tx.connection.changes() != 1:
        raise RuntimeError(f"request {request.id} was not pending inside its own transaction")
    if is_altered:
        tx.sealer.newest.pop("requests", None)
    kind = status if status in ("expired", "cancelled") else "decided"
    data: dict[str, object] = {"status": status, "digest": request.digest, "resolved_at": at_s}
    if reason:
        data["reason"] = reason
    tx.record(kind, request.id, by, request.principal, data)
    now = msgspec.structs.replace(request, status=status, resolved_at=at_s, resolved_by=by, reason=reason)
    if request.callback_url:
        _queue_callback(tx, now)
    return now


def outcome_of(request: ConfirmRequest) -> dict[str, object]:
    """Give what a webhook says of a request that has ended."""
    return _named(request, "id", "action", "status", "resolved_by", "resolved_at", "reason", "digest")


def _queue_callback(tx: Tx, request: ConfirmRequest) -> None:
    body = msgspec.json.encode(
        {
            "type": f"confirmation.{request.status}",
            "timestamp": tx.now_s,
            "data": outcome_of(request),
        }
    )
    tx.connection.execute(
        "INSERT INTO callbacks (message_id, request_id, url, body, created_at, run_after)"
        " VALUES (?,?,?,?,?,?)",
        (f"msg_{request.id}", request.id, request.callback_url, body.decode(), tx.now_s, tx.now_s),
    )


def cast_vote(
    tx: Tx, request: ConfirmRequest, who: Caller, said: tuple[Verdict, str], more: Mapping[str, object]
) -> list[Vote]:
    """Count a vote (a person's newer one replaces the older) and give all of the request's votes. `said` is
    the verdict and the reason; the log keeps `more`: what a passkey signed, for whom the person sits."""
    verdict, reason = said
    tx.connection.execute(
        "INSERT OR REPLACE INTO votes VALUES (?, ?, ?, ?, ?)",
        (request.id, who.name, verdict, tx.now_s, reason),
    )
    data: dict[str, object] = {"verdict": verdict, "digest": request.digest}
    if reason:
        data["reason"] = reason
    data |= more
    tx.record("vote", request.id, who.name, request.principal, data)
    return votes_of(tx.connection, request.id)


def votes_of(db: apsw.Connection, request_id: str) -> list[Vote]:
    """Give a request's votes, oldest first."""
    rows = db.execute("SELECT * FROM votes WHERE request_id = ?", (request_id,))
    votes = [Vote(*row) for row in rows]
    if not all(vote.verdict in _VERDICTS for vote in votes):
        raise StoreCorrupt("a vote in the database can't be read")
    votes.sort(key=attrgetter("at", "principal"))  # SQLite's sorting of one vote takes longer than its look
    return votes


def viewed_at(db: apsw.Connection, request_id: str, principal: str) -> float | None:
    """When `principal` first looked at the request."""
    sql = "SELECT at FROM views WHERE request_id = ? AND principal = ?"
    row = db.execute(sql, (request_id, principal)).fetchone()
    return row[0] if row else None


def add_view(tx: Tx, request: ConfirmRequest, principal: str) -> None:
    """Note the first look of `principal` at the request."""
    tx.connection.execute("INSERT OR IGNORE INTO views VALUES (?, ?, ?)", (request.id, principal, tx.now_s))
    if tx.connection.changes():
        tx.record("viewed", request.id, principal, request.principal)


def revealed_digest(db: apsw.Connection, request_id: str, principal: str) -> str:
    """Give the digest of what a person had shown whole last, "" for nothing."""
    where = "request_id = ?1 AND request_id != '' AND kind = 'revealed' AND principal = ?2"
    sql = f"{checked_select('data', 'events', where, 'id')} ORDER BY id DESC LIMIT 1"
    row = db.execute(sql, (request_id, principal)).fetchone()
    return str(from_json(row[0], dict[str, str]).get("digest", "")) if row else ""


def replace_plan(tx: Tx, request: ConfirmRequest, plan: ApprovalPlan, version: str) -> ConfirmRequest:
    """Put the request under another plan; votes so far are void."""
    tx.connection.execute(
        "UPDATE requests SET plan = ?, policy_version = ? WHERE seq = ?",
        (plan_text(plan), version, request.seq),
    )
    tx.connection.execute("DELETE FROM votes WHERE request_id = ?", (request.id,))
    tx.record("replanned", request.id, "system:policy", request.principal, {"policy_version": version})
    return msgspec.structs.replace(request, plan=plan, policy_version=version)


def replace_details(
    tx: Tx, request: ConfirmRequest, who: Caller, details_json: str, digest: str
) -> ConfirmRequest:
    """Change what is asked for; votes and looks so far are void."""
    original = request.original_json or request.details_json
    tx.connection.execute(
        "UPDATE requests SET details = ?, digest = ?, original = ?, edited_by = ? WHERE seq = ?",
        (details_json, digest, original, who.name, request.seq),
    )
    tx.connection.execute("DELETE FROM votes WHERE request_id = ?", (request.id,))
    tx.connection.execute("DELETE FROM views WHERE request_id = ?", (request.id,))
    data: dict[str, object] = {"digest": digest, "was": request.digest}
    tx.record("amended", request.id, who.name, request.principal, data)
    return msgspec.structs.replace(
        request, details_json=details_json, digest=digest, original_json=original, edited_by=who.name
    )


class RequestFilter(msgspec.Struct, frozen=True):
    """Which requests: of a status and a principal ("" for any), below `before_seq` (0: newest)."""

    status: str = ""
    principal: str = ""
    before_seq: int = 0
    limit: int = 50


def select(db: apsw.Connection, wanted: RequestFilter, now_s: float) -> Iterator[ConfirmRequest]:
    """Give requests, newest first. Pending means pending now: past the deadline is expired."""

    def read(row: tuple[Any, ...]) -> ConfirmRequest:
        request = as_request(row, now_s)
        check_details(request)
        return request

    before, left = wanted.before_seq, wanted.limit
    while left > 0:
        where, values = _where(wanted, before, now_s)
        rows = _rows(db, f"{where} ORDER BY seq DESC LIMIT ?", (*values, left))
        found = [*_readable(rows, read)]
        yield from found
        if len(found) == len(rows):
            return
        before, left = rows[-1][0], left - len(found)


def _where(wanted: RequestFilter, before_seq: int, now_s: float) -> tuple[str, list[object]]:
    where = ["seq < ?"] if before_seq else []
    values: list[object] = [before_seq] if before_seq else []
    if wanted.principal:
        where.append("principal = ?")
        values.append(wanted.principal)
    if wanted.status == "pending":
        where.append("status = 'pending' AND expires_at > ?")
        values.append(now_s)
    elif wanted.status == "expired":
        where.append("(status = 'expired' OR (status = 'pending' AND expires_at <= ?))")
        values.append(now_s)
    elif wanted.status:
        where.append("status = ?")
        values.append(wanted.status)
    return " AND ".join(where) or "seq > 0", values


def count_pending(db: apsw.Connection, now_s: float) -> int:
    """How many requests can be decided now."""
    sql = "SELECT count(*) FROM requests WHERE status = 'pending' AND expires_at > ?"
    row = db.execute(sql, (now_s,)).fetchone()
    return int(row[0]) if row else 0


def due(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Give requests whose deadline has passed and whose row still says pending, as they were."""
    where = "status = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    return [*_readable(_rows(db, where, (now_s, limit)), _as_open)]


def to_escalate(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Give pending requests that the next group should hear of; it is "" where the plan can't be read."""
    where = (
        "status = 'pending' AND escalates_at IS NOT NULL"
        " AND escalated_at IS NULL AND escalates_at <= ? AND expires_at > ? LIMIT ?"
    )
    return [*_readable(_rows(db, where, (now_s, now_s, limit)), _as_open)]
