"""Build the API's answers from the service's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from whet_confirm.http.shapes import (
    AuditEntry,
    DeliveryRecord,
    EventRecord,
    RequestRecord,
    RiskRecord,
    VoteRecord,
)
from whet_confirm.notify.deliveries import NotifyDelivery
from whet_confirm.quorum import describe
from whet_confirm.records import ApprovalPlan, AuditEvent, ConfirmRequest, Vote
from whet_confirm.requests import check_details
from whet_confirm.risk import RiskReading
from whet_confirm.shown import describe_unclear
from whet_confirm.sight import Assessment

_ONE_PERSON = ApprovalPlan().quorum
A = TypeVar("A", bound=msgspec.Struct)


def iso(at_s: float | None) -> str | None:
    """Format Unix seconds as ISO 8601 in UTC."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat()


@lru_cache(maxsize=64)
def _common_fields(
    shape: type[msgspec.Struct], source: type[msgspec.Struct]
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the fields that both types have, and a getter of their values.

    The types must share at least two fields, because `attrgetter` returns no tuple for one.
    """
    names = tuple(name for name in shape.__struct_fields__ if name in source.__struct_fields__)
    return names, attrgetter(*names)


def build_answer(shape: type[A], source: msgspec.Struct, **more: object) -> A:
    """Build an answer from the fields that `source` shares with it, replaced or completed by `more`."""
    names, values_of = _common_fields(shape, type(source))
    return shape(**(dict(zip(names, values_of(source), strict=True)) | more))


def record(request: ConfirmRequest, assessment: Assessment) -> RequestRecord:
    """Return the whole record. Raises StoreCorrupt if its details would make the answer invalid JSON."""
    check_details(request)
    plan = request.plan
    is_quorum = plan.quorum != _ONE_PERSON or plan.deny_threshold != 1
    was_consumed, was_executed = request.consumed_at is not None, request.executed_at is not None
    return _summary(
        RequestRecord,
        request,
        details=msgspec.Raw(request.details_json.encode()),
        high_risk=request.is_high_risk,
        rule=plan.rule or UNSET,
        quorum=describe(plan.quorum) if is_quorum else UNSET,
        deny_threshold=plan.deny_threshold if is_quorum else UNSET,
        edited_by=request.edited_by or UNSET,
        original_details=msgspec.Raw(request.original_json.encode()) if request.edited_by else UNSET,
        escalated_at=UNSET if request.escalated_at is None else request.escalated_at,
        consumed_at=UNSET if request.consumed_at is None else request.consumed_at,
        consumed_by=request.consumed_by if was_consumed else UNSET,
        executed_at=UNSET if request.executed_at is None else request.executed_at,
        execution=request.execution if was_executed else UNSET,
        execution_note=request.execution_note if was_executed else UNSET,
        unclear=describe_unclear(request) or UNSET,
        votes=[_vote_record(vote) for vote in assessment.votes] if is_quorum or assessment.votes else UNSET,
        missing=assessment.missing or UNSET,
        risk=_risk_record(assessment.risk),
        grants=[*assessment.offers] or UNSET,
        grant_id=assessment.grant_id or UNSET,
        on_call=assessment.on_call or UNSET,
    )


def _vote_record(vote: Vote) -> VoteRecord:
    return VoteRecord(vote.principal, vote.verdict, vote.at, vote.reason or UNSET)


def _risk_record(reading: RiskReading | None) -> RiskRecord | UnsetType:
    return UNSET if reading is None else RiskRecord(reading.level, [*reading.reasons], reading.line)


def delivery_record(row: NotifyDelivery) -> DeliveryRecord:
    """Return the JSON form of a delivery."""
    return DeliveryRecord(
        row.channel,
        row.kind,
        row.state,
        row.updated_at,
        row.attempts,
        label=row.label or UNSET,
        waits=row.waits or UNSET,
        error=UNSET if row.state in ("sent", "delivered", "seen") else row.error or UNSET,
        delivered_at=UNSET if row.delivered_at is None else row.delivered_at,
        seen_at=UNSET if row.seen_at is None else row.seen_at,
    )


def audit_entry(request: ConfirmRequest) -> AuditEntry:
    """Return a row of GET /audit."""
    return _summary(AuditEntry, request, details=request.details_json)


def _summary(shape: type[A], request: ConfirmRequest, **more: object) -> A:
    times = {"created_at_iso": iso(request.created_at), "resolved_at_iso": iso(request.resolved_at)}
    return build_answer(shape, request, **times, **more)


def event_record(audit_event: AuditEvent) -> EventRecord:
    """Return the JSON form of an audit event."""
    return build_answer(
        EventRecord, audit_event, data=msgspec.Raw(audit_event.data.encode()), hash=audit_event.hash.hex()
    )


def stream_chunk(audit_event: AuditEvent) -> bytes:
    """Return an event as a server-sent event."""
    body = msgspec.json.encode(event_record(audit_event))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (audit_event.id, audit_event.kind.encode(), body)


def next_page(requests: Sequence[ConfirmRequest], limit: int) -> str | UnsetType:
    """Return the query of the next page, or UNSET if this page is not full."""
    return f"before={requests[-1].seq}" if len(requests) == limit else UNSET
