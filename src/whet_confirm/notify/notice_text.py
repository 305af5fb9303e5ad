"""Builds the notice about a stored request, with texts for each state that fit the limits of messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from whet_confirm.notify.notice import RequestNotice, State
from whet_confirm.quorum import describe
from whet_confirm.records import ConfirmRequest
from whet_confirm.requests import decode_details
from whet_confirm.shown import fit_text, format_json, hidden_parts, one_line, redact, unclear_warning
from whet_confirm.sight import UNASSESSED, Assessment

ACTION_LIMIT, REQUESTER_LIMIT, DESCRIPTION_LIMIT, DETAILS_LIMIT, REASON_LIMIT = 150, 80, 700, 1_500, 300
RISK_LIMIT = 300
_HEADLINES: dict[State, str] = {
    "pending": "Approval needed",
    "approved": "Approved",
    "denied": "Denied",
    "expired": "Expired: denied by silence",
    "cancelled": "Cancelled by the requester",
    "trial": "Trial message: there is nothing to decide",
}


def build_notice(
    request: ConfirmRequest,
    assessment: Assessment = UNASSESSED,
    *,
    link: str,
    redacted: Sequence[str] = (),
    kind: str = "submitted",
) -> RequestNotice:
    """Build the notice about `request` in its current state. `kind` is the event's."""
    reading = assessment.risk
    body, cut_details, is_hidden = _details(request, redacted)
    action, cut_action = one_line(request.action, ACTION_LIMIT)
    requester, cut_requester = one_line(request.requester, REQUESTER_LIMIT)
    description, cut_description = fit_text(request.description, DESCRIPTION_LIMIT)
    was_cut = cut_action or cut_requester or cut_description or cut_details
    state: State = "approved" if request.status == "auto_approved" else request.status
    plan = request.plan
    needs_page = plan.needs_web or plan.needs_factor or plan.needs_passkey
    return RequestNotice(
        request_id=request.id,
        digest=request.digest,
        state=state,
        headline=_headline(state, kind),
        action=action,
        requester=requester,
        principal=one_line(request.principal, REQUESTER_LIMIT)[0],
        description=description,
        details=body,
        is_high_risk=request.is_high_risk,
        expires_s=request.expires_at,
        deadline=clock_time(request.expires_at),
        link=link,
        was_cut=was_cut,
        outcome=_outcome(request) + (f" Grant {assessment.grant_id} runs." if assessment.grant_id else ""),
        progress=_progress(request, assessment),
        may_approve=not (was_cut or is_hidden or needs_page),
        is_hidden=is_hidden,
        risk=one_line(reading.line, RISK_LIMIT)[0] if reading else "",
        warning=unclear_warning(request) if state == "pending" else "",
        is_alarming=reading is not None and reading.is_alarming,
        offers=assessment.offers,
        grant_id=assessment.grant_id,
    )


def build_trial(trial_id: str, sender: str, at_s: float) -> RequestNotice:
    """Build a notice that only shows that a channel works. `sender` is the person who tries it."""
    return RequestNotice(
        request_id=trial_id,
        digest="",
        state="trial",
        headline=_HEADLINES["trial"],
        action="whet confirm try-channels",
        requester=one_line(sender, REQUESTER_LIMIT)[0],
        principal="",
        description="If you can read this, approvals reach you here.",
        details="",
        is_high_risk=False,
        expires_s=at_s,
        deadline=clock_time(at_s),
        link="",
        may_approve=False,
        outcome=f"Sent at {clock_time(at_s)}.",
    )


def _details(request: ConfirmRequest, redacted: Sequence[str]) -> tuple[str, bool, bool]:
    """Return the details as text, whether they were cut, and whether a part is hidden."""
    # too long for any message, so don't spend time parsing it
    if len(request.details_json) > 20 * DETAILS_LIMIT:
        return f"[{len(request.details_json):,} characters: see the page]", True, False
    details = decode_details(request.details_json)
    body, was_cut = fit_text(format_json(redact(details, redacted)) if details else "", DETAILS_LIMIT)
    texts = request.description, request.action, request.requester
    return body, was_cut, bool(hidden_parts(details, texts, redacted))


def clock_time(at_s: float) -> str:
    """Format Unix seconds as a time of day in UTC, with the date."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S UTC on %d %b")


def _headline(state: State, kind: str) -> str:
    if state == "pending" and kind == "escalated":
        return "Still unanswered: approval needed"
    if state == "pending" and kind == "amended":
        return "Changed: approval needed"
    return _HEADLINES[state]


def _outcome(request: ConfirmRequest) -> str:
    if request.is_pending:
        return ""
    by = one_line(request.resolved_by, REQUESTER_LIMIT)[0]
    author = f" by {by}" if by and not by.startswith("system:") else ""
    at = f" at {clock_time(request.resolved_at)}" if request.resolved_at else ""
    reason = f"; reason: {one_line(request.reason, REASON_LIMIT)[0]}" if request.reason else ""
    return f"{request.status.replace('_', ' ').capitalize()}{author}{at}{reason}."


def _progress(request: ConfirmRequest, assessment: Assessment) -> str:
    needs = describe(request.plan.quorum)
    on_call = f"On call: {one_line(assessment.on_call, 40)[0]}." if assessment.on_call else ""
    if not request.is_pending or (needs == "1 of anyone" and not assessment.votes):
        return on_call
    verdicts = [f"{one_line(vote.principal, 40)[0]} {_WORDS[vote.verdict]}" for vote in assessment.votes]
    missing = f" Missing: {one_line(assessment.missing, 150)[0]}." if verdicts else ""
    return f"Takes {needs}. So far: {', '.join(verdicts) or 'nobody'}.{missing} {on_call}".rstrip()


_WORDS = {"approve": "approved", "deny": "denied"}
