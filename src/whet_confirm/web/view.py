"""Prepares a request for the page's templates: texts made visible, times as numbers and as words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from whet.contract.texts import NOT_JSON, from_json
from whet.visible import visible
from whet_confirm.names import is_same_person
from whet_confirm.notify.deliveries import DEVICE_PREFIX, LOG, NEWS, NotifyDelivery
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.quorum import counts_for, describe
from whet_confirm.records import BY_TIMEOUT, AuditEvent, Caller, ConfirmRequest, Vote
from whet_confirm.requests import decode_details
from whet_confirm.risk import RiskReading
from whet_confirm.service import ConfirmService
from whet_confirm.shown import MAX_TEXT, format_editable, hidden_parts, one_line, unclear_warning
from whet_confirm.sight import UNASSESSED, Assessment, last_revealed_digest
from whet_confirm.web.arguments import ArgumentDiffLine, Disclosure, build_rows, diff_lines, format_document
from whet_confirm.whitelist import AllowedEntry

_STATUS_WORDS = {
    "pending": "Pending",
    "approved": "Approved",
    "denied": "Denied",
    "expired": "Expired",
    "cancelled": "Cancelled",
    "auto_approved": "Allowed by rule",
}
_DELIVERY_WORDS = {
    "sent": "accepted by the channel",
    "delivered": "shown by the device",
    "seen": "seen on the device",
    "queued": "being sent",
    "failed": "failing, will be tried again",
    "dead": "not delivered",
    "dropped": "no longer needed",
}
_EVENT_WORDS = {
    "submitted": "submitted",
    "notified": "a channel was told",
    "notify_failed": "a channel could not be told",
    "delivered": "shown by a device",
    "seen": "seen on a device",
    "granted": "allowed for a while",
    "whitelist_removed": "the grant was stopped",
    "viewed": "looked at",
    "attended": "its agent waits for it",
    "vote": "voted",
    "decided": "decided",
    "expired": "ran out",
    "cancelled": "cancelled",
    "escalated": "passed to the next group",
    "consumed": "approval used",
    "consume_refused": "use of the approval refused",
    "executed": "run reported",
    "amended": "details changed",
    "revealed": "hidden parts were shown",
    "tampering": "a change from outside was found",
    "press_refused": "a button press refused",
    "digest_mismatch": "decision on something else refused",
    "refused": "decision refused",
    "replanned": "policy changed; votes void",
    "factor_failed": "wrong code",
    "auto_approved": "allowed by rule",
}


class Viewer(msgspec.Struct, frozen=True):
    """The caller who views the page, the policy, the time, and when they first viewed the request."""

    caller: Caller
    policy: ConfirmPolicy
    now_s: float
    viewed_at_s: float | None = None
    revealed: str = ""
    """The digest of the version whose hidden parts this person has revealed."""


def build_request_card(
    request: ConfirmRequest, now_s: float, assessment: Assessment = UNASSESSED
) -> dict[str, Any]:
    """Return a request for a list. Times whose names end in `_s` are Unix seconds."""
    by = request.resolved_by
    return dict(
        id=request.id,
        action=one_line(request.action, 120)[0],
        requester=one_line(request.requester, 60)[0],
        principal=one_line(request.principal, 60)[0],
        summary=one_line(request.description, 160)[0],
        status=request.status,
        status_word=_STATUS_WORDS[request.status],
        is_pending=request.is_pending,
        is_high_risk=request.is_high_risk,
        risk_word=_risk_word(request, assessment.risk),
        missing=one_line(assessment.missing, 160)[0] if assessment.votes else "",
        created_s=request.created_at,
        expires_s=request.expires_at,
        timeout_s=max(request.expires_at - request.created_at, 1.0),
        left_s=max(request.expires_at - now_s, 0.0),
        resolved=format_moment(request.resolved_at),
        resolved_by="" if by == BY_TIMEOUT else one_line(by, 60)[0],
        created=format_moment(request.created_at),
    )


def build_request_detail(
    request: ConfirmRequest,
    viewer: Viewer,
    assessment: Assessment,
    deliveries: Sequence[NotifyDelivery],
    events: Sequence[AuditEvent],
) -> dict[str, Any]:
    """Return everything on a request's own page."""
    details = decode_details(request.details_json)
    disclosure = Disclosure(viewer.policy.redact, is_whole=viewer.revealed == request.digest)
    unseen = [] if disclosure.is_whole else unseen_parts(request, viewer.policy)
    plan = request.plan
    edits: tuple[ArgumentDiffLine, ...] = ()
    if request.original_json and request.original_json != request.details_json:
        edits = diff_lines(
            format_document(decode_details(request.original_json), disclosure),
            format_document(details, disclosure),
            disclosure,
        )
    return dict(
        card=build_request_card(request, viewer.now_s, assessment),
        description=disclosure.show(request.description, MAX_TEXT),
        rows=build_rows(details, disclosure),
        json_text=format_document(details, disclosure),
        edit_text="" if unseen else format_editable(details),
        warning=unclear_warning(request),
        unseen=unseen,
        reading=assessment.risk,
        offers=assessment.offers,
        on_call=one_line(assessment.on_call, 60)[0],
        digest=request.digest,
        action=disclosure.show_line(request.action),
        requester=disclosure.show_line(request.requester),
        session_key=disclosure.show_line(request.session_key),
        rule=one_line(plan.rule, 80)[0],
        needs=describe(plan.quorum),
        is_quorum=describe(plan.quorum) != "1 of anyone",
        votes=[format_ballot(vote) for vote in assessment.votes],
        my_vote=next((vote.verdict for vote in assessment.votes if vote.principal == viewer.caller.name), ""),
        barrier=find_barrier(request, viewer),
        min_review_s=plan.min_review_s,
        review_left_s=max((viewer.viewed_at_s or viewer.now_s) + plan.min_review_s - viewer.now_s, 0.0),
        needs_code=plan.needs_factor and request.is_pending,
        needs_passkey=plan.needs_passkey and request.is_pending,
        accepts_edits=request.accepts_edits,
        edits=edits,
        edited_by=one_line(request.edited_by, 60)[0],
        reason=visible(request.reason, 2_000),
        outcome=_outcome(request),
        execution=_execution(request),
        deliveries=[_describe_delivery(delivery) for delivery in deliveries],
        events=[describe_event(event) for event in events],
    )


def build_grant_card(entry: AllowedEntry) -> dict[str, Any]:
    """Return a running grant, or another whitelist entry in force, for a list."""
    limits = [f"at {entry.host}"] if entry.host else []
    limits += [f"{entry.uses or 0} of {entry.max_uses} times"] if entry.max_uses else []
    limits += ["in one session"] if entry.session_key else []
    return dict(
        id=entry.id,
        action=one_line(entry.action, 80)[0],
        principal=one_line(entry.principal, 60)[0],
        limits=", ".join(limits),
        until=format_moment(entry.expires_at),
        by=one_line(str(entry.created_by), 60)[0],
        request_id=entry.request_id or "",
    )


def unseen_parts(request: ConfirmRequest, policy: ConfirmPolicy) -> list[str]:
    """Describe the parts of a request that are hidden at first."""
    details = decode_details(request.details_json)
    texts = request.description, request.action, request.requester, request.session_key
    return hidden_parts(details, texts, policy.redact)


def has_unseen_parts(service: ConfirmService, request: ConfirmRequest, caller: Caller) -> bool:
    """Return whether parts are hidden that this person has not revealed."""
    if last_revealed_digest(service, request.id, caller) == request.digest:
        return False
    return bool(unseen_parts(request, service.policy_file.policy))


def find_barrier(request: ConfirmRequest, viewer: Viewer) -> str:
    """Return why this person can't decide, or an empty string. The service checks again when they try."""
    caller, plan = viewer.caller, request.plan
    if not request.is_pending:
        return "It is over."
    if not caller.may("approve"):
        return f"You are signed in as {caller.name}, who may look but not decide."
    if caller.is_open:
        return ""
    if is_same_person(caller.name, request.principal):
        return "You asked for this yourself, so somebody else must decide."
    if not (
        viewer.policy.may_approve(plan, caller.name)
        and counts_for(plan.quorum, caller.name, viewer.policy.groups)
    ):
        return f"This one is for others to decide: {describe(plan.quorum)}."
    return ""


def format_moment(at_s: float | None) -> str:
    """Format Unix seconds as UTC, or return an empty string if not set."""
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_duration(seconds: float) -> str:
    """Format a duration briefly: 4:05, 2 h 10 min, 3 d."""
    total_s = int(seconds)
    if total_s < 3600:
        return f"{total_s // 60}:{total_s % 60:02d}"
    if total_s < 48 * 3600:
        return f"{total_s // 3600} h {total_s % 3600 // 60:02d} min"
    return f"{total_s // 86400} d"


def _risk_word(request: ConfirmRequest, reading: RiskReading | None) -> str:
    if request.is_high_risk:
        return "High risk"
    if reading is None or not reading.is_alarming:
        return ""
    return "Dangerous" if reading.level == "dangerous" else "Not read"


def format_ballot(vote: Vote) -> dict[str, Any]:
    word = "approved" if vote.verdict == "approve" else "denied"
    name, reason = one_line(vote.principal, 60)[0], visible(vote.reason, 500)
    return dict(name=name, verdict=word, at=format_moment(vote.at), reason=reason)


def _describe_delivery(row: NotifyDelivery) -> dict[str, Any]:
    """Describe how far a channel is with a delivery."""
    channel = row.label or row.channel
    values: dict[str, Any] = dict(channel=channel, kind=row.kind, at=format_moment(row.updated_at))
    if row.channel == LOG:
        word = "no channel reached a person; only the log has it"
        return values | dict(status="dead", word=word, error="", attempts=1)
    word = visible(row.waits, 300) or _DELIVERY_WORDS.get(row.state, row.state)
    if row.state == "sent" and row.channel.startswith(DEVICE_PREFIX) and row.kind in NEWS:
        word = "accepted by the push service; the device has not answered"
    return values | dict(status=row.status, word=word, error=visible(row.error, 300), attempts=row.attempts)


def describe_event(event: AuditEvent) -> dict[str, Any]:
    """Describe an event as a line for a person."""
    word = _EVENT_WORDS.get(event.kind, event.kind.replace("_", " "))
    try:
        data = from_json(event.data, dict[str, Any])
    except NOT_JSON:  # altered data, which the log's verification reports
        data = {"why": "its data can't be read"}
    extra = [
        str(data[name])
        for name in ("verdict", "status", "channel", "why", "result", "reason")
        if data.get(name)
    ]
    text = f"{word} ({visible(', '.join(extra), 300)})" if extra else word
    return dict(at=format_moment(event.at), word=text, who=one_line(event.principal, 60)[0])


def _outcome(request: ConfirmRequest) -> str:
    if request.is_pending:
        return ""
    word = _STATUS_WORDS[request.status]
    if request.status == "expired":
        return f"Expired at {format_moment(request.resolved_at)}: nobody decided, which is a denial."
    author = one_line(request.resolved_by, 60)[0]
    by = f"({author})" if request.status == "auto_approved" else f"by {author}"  # a rule or a grant
    return f"{word} {by} at {format_moment(request.resolved_at)}."


def _execution(request: ConfirmRequest) -> str:
    if request.executed_at is not None:
        note = f": {visible(request.execution_note, 500)}" if request.execution_note else ""
        return f"Reported as {request.execution} at {format_moment(request.executed_at)}{note}"
    if request.consumed_at is not None:
        return (
            f"Approval used by {one_line(request.consumed_by, 60)[0]} at {format_moment(request.consumed_at)}"
        )
    return "Approval not used yet" if request.status in ("approved", "auto_approved") else ""
