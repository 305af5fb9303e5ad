"""Requests and events as the JSON that the API answers with; field names are the contract's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from whet.confirm.quorum import describe
from whet.confirm.records import ApprovalPlan, AuditEvent, ConfirmRequest

_ONE_PERSON = ApprovalPlan().quorum


def iso(at_s: float | None) -> str | None:
    """Write Unix seconds as ISO 8601 in UTC."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat()


def record(request: ConfirmRequest) -> dict[str, Any]:
    """Give the whole record."""
    shown = _common(request) | {
        "details": msgspec.Raw(request.details_json.encode()),
        "principal": request.principal,
        "policy_version": request.policy_version,
        "high_risk": request.is_high_risk,
    }
    plan = request.plan
    if plan.rule:
        shown["rule"] = plan.rule
    if plan.quorum != _ONE_PERSON or plan.deny_threshold != 1:
        shown["quorum"] = describe(plan.quorum)
        shown["deny_threshold"] = plan.deny_threshold
    if request.edited_by:
        shown["edited_by"] = request.edited_by
        shown["original_details"] = msgspec.Raw(request.original_json.encode())
    if request.escalated_at is not None:
        shown["escalated_at"] = request.escalated_at
    if request.consumed_at is not None:
        shown["consumed_at"] = request.consumed_at
        shown["consumed_by"] = request.consumed_by
    if request.executed_at is not None:
        shown["executed_at"] = request.executed_at
        shown["execution"] = request.execution
        shown["execution_note"] = request.execution_note
    return shown


def audit_entry(request: ConfirmRequest) -> dict[str, Any]:
    """Give a row of GET /audit; details are JSON text there."""
    return _common(request) | {"details": request.details_json}


def _common(request: ConfirmRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "action": request.action,
        "description": request.description,
        "details": None,
        "requester": request.requester,
        "session_key": request.session_key,
        "status": request.status,
        "resolved_by": request.resolved_by,
        "resolved_at": request.resolved_at,
        "created_at": request.created_at,
        "timeout_seconds": request.timeout_seconds,
        "created_at_iso": iso(request.created_at),
        "resolved_at_iso": iso(request.resolved_at),
        "reason": request.reason,
        "expires_at": request.expires_at,
        "digest": request.digest,
    }


def event(found: AuditEvent) -> dict[str, Any]:
    """Give an event of the audit log."""
    return {
        "id": found.id,
        "at": found.at,
        "kind": found.kind,
        "request_id": found.request_id,
        "principal": found.principal,
        "owner": found.owner,
        "data": msgspec.Raw(found.data.encode()),
        "hash": found.hash.hex(),
    }


def stream_chunk(found: AuditEvent) -> bytes:
    """Give an event as a server-sent event."""
    body = msgspec.json.encode(event(found))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (found.id, found.kind.encode(), body)
