"""Requests, votes and views as rows. Each function runs one or two statements on the given connection.

Only another program can have written a row that can't be decoded. Reading it alone raises StoreCorrupt.
Lists skip it and log that once, so it does not block other requests.
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

from whet.contract.errors import StoreCorrupt
from whet.contract.texts import NOT_JSON, from_json, shared_decoder
from whet.sqlite.checked import checked_select
from whet_confirm import rates
from whet_confirm.ledger import Tx
from whet_confirm.records import (
    BY_TIMEOUT,
    STATUSES,
    ApprovalPlan,
    Caller,
    ConfirmRequest,
    Status,
    Verdict,
    Vote,
)

_FIELDS = ConfirmRequest.__struct_fields__
_COLUMNS = ", ".join(name.removesuffix("_json") for name in _FIELDS)
BY_ID = checked_select(_COLUMNS, "requests", "id = ?1", "seq")
_STORED = tuple(name for name in _FIELDS if name not in ("seq", "plan"))
_stored_values = attrgetter(*_STORED)
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
_LOG = logging.getLogger("whet_confirm.requests")
_decode_plan = shared_decoder(ApprovalPlan).decode
_encode_plan = msgspec.json.Encoder(order="deterministic").encode


@lru_cache(maxsize=256)
def decode_plan(text: str) -> ApprovalPlan:
    """Decode a stored plan. Raises StoreCorrupt."""
    try:
        return _decode_plan(text)
    except NOT_JSON as error:
        raise _unreadable_error("plan") from error


def decode_details(text: str) -> dict[str, Any]:
    """Decode stored details. Raises StoreCorrupt."""
    try:
        return from_json(text, dict[str, Any])
    except NOT_JSON as error:
        raise _unreadable_error("details") from error


def check_details(request: ConfirmRequest) -> None:
    """Raise StoreCorrupt if the details or the original details are not a JSON object.

    Large ones are only scanned, which takes a tenth of the time.
    """
    try:
        for text in (request.details_json, request.original_json):
            if text:
                from_json(text, dict[str, Any] if len(text) <= _READ_CHARS else dict[str, msgspec.Raw])
    except NOT_JSON as error:
        raise _unreadable_error("details") from error


def _unreadable_error(part: str) -> StoreCorrupt:
    return StoreCorrupt(f"a request's {part} in the database can't be read")


@lru_cache(maxsize=256)
def log_unreadable(request: str, why: str) -> None:
    """Log, once, that a request is skipped."""
    _LOG.error("request %s is left out: %s", request, why)


@lru_cache(maxsize=256)
def encode_plan(plan: ApprovalPlan) -> str:
    """Encode a plan for storage."""
    return _encode_plan(plan).decode()


def as_request(row: tuple[Any, ...], now_s: float) -> ConfirmRequest:
    """Convert a row to a request. After its deadline it is expired, even if its row is still pending.

    Raises StoreCorrupt if the row can't be decoded.
    """
    cells = _check_cells(row)
    if cells[_STATUS] == "pending" and now_s >= cells[_EXPIRES]:
        cells[_STATUS], cells[_RESOLVED], cells[_RESOLVED_BY] = "expired", cells[_EXPIRES], BY_TIMEOUT
    cells[_PLAN] = decode_plan(cells[_PLAN])
    cells[_RISK], cells[_EDITS] = bool(cells[_RISK]), bool(cells[_EDITS])
    return ConfirmRequest(*cells)


def _check_cells(row: tuple[Any, ...]) -> list[Any]:
    if len(row) < len(_FIELDS):
        raise _unreadable_error("text")
    if row[_STATUS] not in STATUSES:
        raise _unreadable_error("status")
    for index in _TIMES:
        if row[index] is not None and not _EARLIEST_S <= row[index] <= _LATEST_S:
            raise _unreadable_error("time")
    return list(row)


def _as_pending(row: tuple[Any, ...]) -> ConfirmRequest:
    """Convert a pending row so that it can expire. A plan that can't be decoded does not prevent that."""
    try:
        return as_request(row, -math.inf)
    except StoreCorrupt as error:
        if len(row) < len(_FIELDS):
            raise
        log_unreadable(str(row[1]), error.message)
        cells = list(row)
        cells[_PLAN] = _UNKNOWN_PLAN
        return ConfirmRequest(*cells)


def _convert_readable(
    rows: Iterable[tuple[Any, ...]], convert: Callable[[tuple[Any, ...]], ConfirmRequest]
) -> Iterator[ConfirmRequest]:
    for row in rows:
        try:
            yield convert(row)
        except StoreCorrupt as error:
            log_unreadable(str(row[1] if len(row) == len(_FIELDS) else row[0]), error.message)


def _rows(db: apsw.Connection, where: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Return rows, or only the number of a row that contains invalid text."""
    return select_rows(db, _COLUMNS, ("requests", "seq"), where, values)


def select_rows(
    db: apsw.Connection, columns: str, source: tuple[str, str], where: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Return the `columns` of the rows of `source` (a table and its key column) that match `where`.

    For a row that contains invalid text, only the key is returned.
    """
    table, key = source
    try:
        return db.execute(f"SELECT {columns} FROM {table} WHERE {where}", tuple(values)).fetchall()  # type: ignore[arg-type]
    except UnicodeDecodeError:
        keys = db.execute(f"SELECT {key} FROM {table} WHERE {where}", tuple(values)).fetchall()  # type: ignore[arg-type]
    rows: list[tuple[Any, ...]] = []
    for key_row in keys:
        try:
            rows += db.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", key_row).fetchall()
        except UnicodeDecodeError:
            rows.append(key_row)
    return rows


def find(db: apsw.Connection, request_id: str, now_s: float) -> ConfirmRequest | None:
    """Return one request, or None."""
    row = db.execute(BY_ID, (request_id,)).fetchone()
    return as_request(row, now_s) if row else None


class RequestKeys(msgspec.Struct, frozen=True):
    """The keys by which a new request is found again.

    `rate_number` is its number under the rate limit, or None if it does not count. `idempotency` is the
    caller's key for a repeated submission with the body of `body_hash`; it may be empty.
    """

    action: str
    rate_number: int | None
    idempotency: str
    body_hash: bytes


def insert(tx: Tx, request: ConfirmRequest, keys: RequestKeys) -> None:
    """Store a new request with its events. The database assigns `seq`."""
    plan, at_s = request.plan, request.created_at
    escalates_at = (
        at_s + plan.escalate_after * (request.expires_at - at_s)
        if plan.escalate_to and request.status == "pending"
        else None
    )
    more = (keys.action, encode_plan(plan), escalates_at, keys.rate_number)
    tx.connection.execute(_INSERT, (*_stored_values(request), *more))
    rates.remember(tx, request.principal, keys.action, keys.rate_number)
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
        settled = _pick_fields(request, "status", "digest", "resolved_at", "reason")
        tx.record("decided", request.id, request.resolved_by, request.principal, settled)


def _pick_fields(request: ConfirmRequest, *names: str) -> dict[str, object]:
    return {name: getattr(request, name) for name in names}


def end_pending(
    tx: Tx, request: ConfirmRequest, status: Status, by: str, reason: str = "", *, is_altered: bool = False
) -> ConfirmRequest:
    """End a pending request, record the event and queue the callback. Returns the updated request.

    The caller has read `request` in this transaction. `is_altered` means that another program changed the
    row; then the event does not include the row's hash.
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
    ended = msgspec.structs.replace(request, status=status, resolved_at=at_s, resolved_by=by, reason=reason)
    if request.callback_url:
        _queue_callback(tx, ended)
    return ended


def webhook_data(request: ConfirmRequest) -> dict[str, object]:
    """Return the data that a webhook sends about a request that has ended."""
    return _pick_fields(request, "id", "action", "status", "resolved_by", "resolved_at", "reason", "digest")


def _queue_callback(tx: Tx, request: ConfirmRequest) -> None:
    body = msgspec.json.encode(
        {
            "type": f"confirmation.{request.status}",
            "timestamp": tx.now_s,
            "data": webhook_data(request),
        }
    )
    tx.connection.execute(
        "INSERT INTO callbacks (message_id, request_id, url, body, created_at, run_after)"
        " VALUES (?,?,?,?,?,?)",
        (f"msg_{request.id}", request.id, request.callback_url, body.decode(), tx.now_s, tx.now_s),
    )


def cast_vote(
    tx: Tx, request: ConfirmRequest, caller: Caller, ballot: tuple[Verdict, str], more: Mapping[str, object]
) -> list[Vote]:
    """Count a vote, replacing an earlier one of the same person, and return all votes on the request.

    `ballot` is the verdict and the reason. `more` is added to the log: the passkey signature, and the
    people represented.
    """
    verdict, reason = ballot
    tx.connection.execute(
        "INSERT OR REPLACE INTO votes VALUES (?, ?, ?, ?, ?)",
        (request.id, caller.name, verdict, tx.now_s, reason),
    )
    data: dict[str, object] = {"verdict": verdict, "digest": request.digest}
    if reason:
        data["reason"] = reason
    data |= more
    tx.record("vote", request.id, caller.name, request.principal, data)
    return list_votes(tx.connection, request.id)


def list_votes(db: apsw.Connection, request_id: str) -> list[Vote]:
    """Return a request's votes, oldest first."""
    rows = db.execute("SELECT * FROM votes WHERE request_id = ?", (request_id,))
    votes = [Vote(*row) for row in rows]
    if not all(vote.verdict in _VERDICTS for vote in votes):
        raise StoreCorrupt("a vote in the database can't be read")
    # for one vote, sorting in SQLite takes longer than the look-up
    votes.sort(key=attrgetter("at", "principal"))
    return votes


def viewed_at(db: apsw.Connection, request_id: str, principal: str) -> float | None:
    """Return when `principal` first viewed the request, or None."""
    sql = "SELECT at FROM views WHERE request_id = ? AND principal = ?"
    row = db.execute(sql, (request_id, principal)).fetchone()
    return row[0] if row else None


def add_view(tx: Tx, request: ConfirmRequest, principal: str) -> None:
    """Record the first view of the request by `principal`."""
    tx.connection.execute("INSERT OR IGNORE INTO views VALUES (?, ?, ?)", (request.id, principal, tx.now_s))
    if tx.connection.changes():
        tx.record("viewed", request.id, principal, request.principal)


def revealed_digest(db: apsw.Connection, request_id: str, principal: str) -> str:
    """Return the digest of the version that a person revealed last, or an empty string."""
    where = "request_id = ?1 AND request_id != '' AND kind = 'revealed' AND principal = ?2"
    sql = f"{checked_select('data', 'events', where, 'id')} ORDER BY id DESC LIMIT 1"
    row = db.execute(sql, (request_id, principal)).fetchone()
    return str(from_json(row[0], dict[str, str]).get("digest", "")) if row else ""


def replace_plan(tx: Tx, request: ConfirmRequest, plan: ApprovalPlan, version: str) -> ConfirmRequest:
    """Replace the plan of a request. Votes so far are void."""
    tx.connection.execute(
        "UPDATE requests SET plan = ?, policy_version = ? WHERE seq = ?",
        (encode_plan(plan), version, request.seq),
    )
    tx.connection.execute("DELETE FROM votes WHERE request_id = ?", (request.id,))
    tx.record("replanned", request.id, "system:policy", request.principal, {"policy_version": version})
    return msgspec.structs.replace(request, plan=plan, policy_version=version)


def replace_details(
    tx: Tx, request: ConfirmRequest, caller: Caller, details_json: str, digest: str
) -> ConfirmRequest:
    """Replace the details of a request. Votes and views so far are void."""
    original = request.original_json or request.details_json
    tx.connection.execute(
        "UPDATE requests SET details = ?, digest = ?, original = ?, edited_by = ? WHERE seq = ?",
        (details_json, digest, original, caller.name, request.seq),
    )
    tx.connection.execute("DELETE FROM votes WHERE request_id = ?", (request.id,))
    tx.connection.execute("DELETE FROM views WHERE request_id = ?", (request.id,))
    data: dict[str, object] = {"digest": digest, "was": request.digest}
    tx.record("amended", request.id, caller.name, request.principal, data)
    return msgspec.structs.replace(
        request, details_json=details_json, digest=digest, original_json=original, edited_by=caller.name
    )


class RequestFilter(msgspec.Struct, frozen=True):
    """Selects requests of a status and a principal (empty: any) below `before_seq` (0: from the newest)."""

    status: str = ""
    principal: str = ""
    before_seq: int = 0
    limit: int = 50


def select(db: apsw.Connection, criteria: RequestFilter, now_s: float) -> Iterator[ConfirmRequest]:
    """Yield requests, newest first. A pending request past its deadline counts as expired."""

    def read(row: tuple[Any, ...]) -> ConfirmRequest:
        request = as_request(row, now_s)
        check_details(request)
        return request

    before, remaining = criteria.before_seq, criteria.limit
    while remaining > 0:
        where, values = _build_where(criteria, before, now_s)
        rows = _rows(db, f"{where} ORDER BY seq DESC LIMIT ?", (*values, remaining))
        page = [*_convert_readable(rows, read)]
        yield from page
        if len(page) == len(rows):
            return
        before, remaining = rows[-1][0], remaining - len(page)


def _build_where(criteria: RequestFilter, before_seq: int, now_s: float) -> tuple[str, list[object]]:
    where = ["seq < ?"] if before_seq else []
    values: list[object] = [before_seq] if before_seq else []
    if criteria.principal:
        where.append("principal = ?")
        values.append(criteria.principal)
    if criteria.status == "pending":
        where.append("status = 'pending' AND expires_at > ?")
        values.append(now_s)
    elif criteria.status == "expired":
        where.append("(status = 'expired' OR (status = 'pending' AND expires_at <= ?))")
        values.append(now_s)
    elif criteria.status:
        where.append("status = ?")
        values.append(criteria.status)
    return " AND ".join(where) or "seq > 0", values


def count_overdue(db: apsw.Connection, now_s: float) -> int:
    """Return the number of requests whose deadline has passed but whose row is still pending."""
    sql = "SELECT count(*) FROM requests WHERE status = 'pending' AND expires_at <= ?"
    row = db.execute(sql, (now_s,)).fetchone()
    return int(row[0]) if row else 0


def find_overdue(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Return the requests whose deadline has passed but whose row is still pending, unchanged."""
    where = "status = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    return [*_convert_readable(_rows(db, where, (now_s, limit)), _as_pending)]


def find_due_escalations(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Return pending requests that are due for escalation. If a plan can't be decoded, its group is empty."""
    where = (
        "status = 'pending' AND escalates_at IS NOT NULL"
        " AND escalated_at IS NULL AND escalates_at <= ? AND expires_at > ? LIMIT ?"
    )
    return [*_convert_readable(_rows(db, where, (now_s, now_s, limit)), _as_pending)]
