"""The calls that only read: one request, lists, the audit page, health."""

from __future__ import annotations

from typing import Any

from whet.confirm.http import shapes
from whet.confirm.http.decisions import grant_of
from whet.confirm.http.guard import need
from whet.confirm.http.wire import HttpRefusal, Scope, query
from whet.confirm.records import STATUSES, Caller, ConfirmRequest
from whet.confirm.requests import RequestFilter
from whet.confirm.service import ConfirmService

LONGEST_WAIT_S = 300.0
_PAGE, _LARGEST_PAGE = 50, 500


def visible(service: ConfirmService, who: Caller, request_id: str) -> ConfirmRequest:
    """Give a request that the caller may see: a submitter sees its own. Raises Refusal (404)."""
    request = service.get(request_id)
    if request is None or (who.role == "submit" and request.principal != who.name):
        raise HttpRefusal(404, "there is no such request")
    return request


async def note_look(service: ConfirmService, who: Caller, request: ConfirmRequest) -> None:
    """Note the first look of somebody who may decide at a pending request."""
    if who.role == "approve" and request.is_pending:
        await service.mark_viewed(request.id, who)


def grant(service: ConfirmService, who: Caller, request_id: str) -> dict[str, Any]:
    """GET /confirm/{id}/grant: the signed statement that it was approved."""
    need(who, "submit", "audit")
    request = visible(service, who, request_id)
    if request.status not in ("approved", "auto_approved"):
        raise HttpRefusal(409, f"it is {request.status}, not approved", more={"status": request.status})
    return {"id": request.id, "digest": request.digest, "grant": grant_of(service, request)}


def wait_seconds(scope: Scope) -> float:
    """Read ?wait=SECONDS, at most five minutes; what is no number is no wait."""
    if not scope["query_string"]:
        return 0.0
    try:
        seconds = float(query(scope).get("wait", "0"))
    except ValueError:
        return 0.0
    return min(seconds, LONGEST_WAIT_S) if seconds > 0 else 0.0


def listing(service: ConfirmService, who: Caller, scope: Scope) -> dict[str, Any]:
    """GET /confirm?status=pending: newest first, paged with ?before=."""
    asked = query(scope)
    wanted = asked.get("status", "")
    if wanted and wanted not in STATUSES:
        raise HttpRefusal(400, f"status must be one of: {', '.join(STATUSES)}")
    limit = _limit(asked)
    owner = who.name if who.role == "submit" else ""
    found = service.list(RequestFilter(wanted, owner, _before(asked), limit))
    shown: dict[str, Any] = {"count": len(found), "requests": [shapes.record(one) for one in found]}
    if len(found) == limit:
        shown["next"] = f"before={found[-1].seq}"
    return shown


def audit(service: ConfirmService, who: Caller, scope: Scope) -> dict[str, Any]:
    """GET /audit: the newest requests in the contract's shape, paged with ?before=."""
    need(who, "audit", "approve")
    asked = query(scope)
    limit = _limit(asked)
    found = service.list(RequestFilter(before_seq=_before(asked), limit=limit))
    shown: dict[str, Any] = {"count": len(found), "entries": [shapes.audit_entry(one) for one in found]}
    if len(found) == limit:
        shown["next"] = f"before={found[-1].seq}"
    return shown


def health(service: ConfirmService) -> dict[str, Any]:
    """GET /health."""
    return {"status": "ok", "pending_count": service.count_pending(), "timestamp": service.timeline.now_s()}


def _limit(asked: dict[str, str]) -> int:
    try:
        return max(1, min(int(asked.get("limit", _PAGE)), _LARGEST_PAGE))
    except ValueError:
        return _PAGE


def _before(asked: dict[str, str]) -> int:
    text = asked.get("before", "0")
    return int(text) if text.isdigit() and text.isascii() and len(text) < 19 else 0
