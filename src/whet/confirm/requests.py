"""Requests, votes and views as rows. Each function is one or two statements on the connection it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from whet.confirm.ledger import Tx
from whet.confirm.records import BY_TIMEOUT, ApprovalPlan, Caller, ConfirmRequest, Status, Verdict, Vote
from whet.contract.errors import StoreCorrupt
from whet.contract.texts import decoder, from_json

_FIELDS = ConfirmRequest.__struct_fields__
_COLUMNS = ", ".join(name.removesuffix("_json") for name in _FIELDS)
ONE = f"SELECT {_COLUMNS} FROM requests WHERE id = ?"
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
_OF_RATE = "FROM requests WHERE principal = ? AND action_key = ? AND rate_number"
_NEWEST_RATE = f"SELECT rate_number {_OF_RATE} IS NOT NULL ORDER BY rate_number DESC LIMIT 1"
_RATE_AT = f"SELECT created_at {_OF_RATE} = ?"
_RATES, _MOST_RATES = "rate numbers", 1024
_STATUS, _EXPIRES, _RESOLVED, _RESOLVED_BY, _PLAN, _RISK, _EDITS = map(
    _FIELDS.index,
    ("status", "expires_at", "resolved_at", "resolved_by", "plan", "is_high_risk", "accepts_edits"),
)
_decode_plan = decoder(ApprovalPlan).decode
_encode_plan = msgspec.json.Encoder(order="deterministic").encode


@lru_cache(maxsize=256)
def plan_of(text: str) -> ApprovalPlan:
    """Read a stored plan. Raises StoreCorrupt."""
    try:
        return _decode_plan(text)
    except msgspec.DecodeError as error:
        raise StoreCorrupt("a request's plan in the database can't be read") from error


@lru_cache(maxsize=256)
def plan_text(plan: ApprovalPlan) -> str:
    """Write a plan as it is stored."""
    return _encode_plan(plan).decode()


def as_request(row: tuple[Any, ...], now_s: float) -> ConfirmRequest:
    """Give a row as a request; past its deadline it is expired, whatever the row still says."""
    cells = list(row)
    if cells[_STATUS] == "pending" and now_s >= cells[_EXPIRES]:
        cells[_STATUS], cells[_RESOLVED], cells[_RESOLVED_BY] = "expired", cells[_EXPIRES], BY_TIMEOUT
    cells[_PLAN] = plan_of(cells[_PLAN])
    cells[_RISK], cells[_EDITS] = bool(cells[_RISK]), bool(cells[_EDITS])
    return ConfirmRequest(*cells)


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
    _keep_rate(tx, request.principal, keys)
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


def settle(tx: Tx, request: ConfirmRequest, status: Status, by: str, reason: str = "") -> ConfirmRequest:
    """Compare and set: end a pending request, write the event and the callback.

    The caller has read `request` in this transaction. Gives the request as it is now.
    """
    at_s = min(request.expires_at, tx.now_s) if status == "expired" else tx.now_s
    tx.connection.execute(
        "UPDATE requests SET status = ?, resolved_at = ?, resolved_by = ?, reason = ?"
        " WHERE seq = ? AND status = 'pending'",
        (status, at_s, by, reason, request.seq),
    )
    if tx.connection.changes() != 1:
        raise RuntimeError(f"request {request.id} was not pending inside its own transaction")
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
    sql = (
        "SELECT data FROM events WHERE request_id = ? AND request_id != '' AND kind = 'revealed'"
        " AND principal = ? ORDER BY id DESC LIMIT 1"
    )
    row = db.execute(sql, (request_id, principal)).fetchone()
    return str(from_json(row[0], dict[str, str]).get("digest", "")) if row else ""


def replace_plan(tx: Tx, request: ConfirmRequest, plan: ApprovalPlan, version: str) -> ConfirmRequest:
    """Put the request under another plan; votes so far are void."""
    tx.connection.execute(
        "UPDATE requests SET plan = ?, policy_version = ? WHERE id = ?",
        (plan_text(plan), version, request.id),
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
        "UPDATE requests SET details = ?, digest = ?, original = ?, edited_by = ? WHERE id = ?",
        (details_json, digest, original, who.name, request.id),
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
    where = ["seq < ?"] if wanted.before_seq else []
    values: list[object] = [wanted.before_seq] if wanted.before_seq else []
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
    sql = f"SELECT {_COLUMNS} FROM requests" + (f" WHERE {' AND '.join(where)}" if where else "")
    values.append(wanted.limit)
    for row in db.execute(f"{sql} ORDER BY seq DESC LIMIT ?", tuple(values)):  # type: ignore[arg-type]
        yield as_request(row, now_s)


def count_pending(db: apsw.Connection, now_s: float) -> int:
    """How many requests can be decided now."""
    sql = "SELECT count(*) FROM requests WHERE status = 'pending' AND expires_at > ?"
    row = db.execute(sql, (now_s,)).fetchone()
    return int(row[0]) if row else 0


def due(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Give requests whose deadline has passed and whose row still says pending, as they were."""
    where = "status = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    sql = f"SELECT {_COLUMNS} FROM requests WHERE {where}"
    return [as_request(row, 0.0) for row in db.execute(sql, (now_s, limit))]


def to_escalate(db: apsw.Connection, now_s: float, limit: int) -> list[ConfirmRequest]:
    """Give pending requests that the next group should hear of."""
    sql = (
        f"SELECT {_COLUMNS} FROM requests WHERE status = 'pending' AND escalates_at IS NOT NULL"
        " AND escalated_at IS NULL AND escalates_at <= ? AND expires_at > ? LIMIT ?"
    )
    return [as_request(row, now_s) for row in db.execute(sql, (now_s, now_s, limit))]


def next_rate(tx: Tx, principal: str, action_key: str, limit: int) -> tuple[int, float]:
    """Give the number of the principal's next counted submission of an action, and the time of the one
    `limit` before it (0.0 where there is none)."""
    newest = tx.sealer.kept(_RATES).get((principal, action_key))
    if newest is None:
        row = tx.connection.execute(_NEWEST_RATE, (principal, action_key)).fetchone()
        newest = row[0] if row else 0
    earlier = newest + 1 - limit
    if earlier < 1:
        return newest + 1, 0.0
    row = tx.connection.execute(_RATE_AT, (principal, action_key, earlier)).fetchone()
    return newest + 1, row[0] if row else 0.0


def _keep_rate(tx: Tx, principal: str, keys: RequestKeys) -> None:
    """Remember the number of the submission just stored, as long as nobody else writes."""
    if keys.rate_number is not None:
        kept = tx.sealer.kept(_RATES)
        if len(kept) >= _MOST_RATES:
            kept.clear()
        kept[principal, keys.action] = keys.rate_number
