"""POST /confirm/{id}/approve, deny, amend, cancel, consume, report: the calls on one request."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from whet.confirm.decide import DecisionInput
from whet.confirm.grants import sign_grant
from whet.confirm.http.answers import made_of
from whet.confirm.http.exchange import Answer, Exchange
from whet.confirm.http.guard import retry_after
from whet.confirm.http.shapes import (
    AmendBody,
    AmendedAnswer,
    ApproveBody,
    CancelBody,
    ConsumeBody,
    ConsumedAnswer,
    CountedAnswer,
    DenyBody,
    ManyAnswer,
    ManyBody,
    ManyOutcome,
    ReportBody,
    ReportedAnswer,
    SettledAnswer,
)
from whet.confirm.http.submissions import idempotency_key
from whet.confirm.http.wire import HttpRefusal
from whet.confirm.quorum import describe
from whet.confirm.records import ConfirmRequest, OutcomeKind, RequestOutcome
from whet.confirm.service import ConfirmService

_STATUS: dict[OutcomeKind, int] = {
    "late": 409,
    "already_decided": 409,
    "changed": 409,
    "altered": 409,
    "own_request": 403,
    "not_allowed": 403,
    "too_early": 425,
    "code": 403,
    "passkey": 403,
    "not_found": 404,
}


async def approve(call: Exchange, asked: ApproveBody) -> Answer:
    """Approve a request."""
    ballot = DecisionInput(call.request_id, "approve", asked.reason, asked.digest or "", code=asked.code)
    return await _vote(call, ballot, asked.approver)


async def deny(call: Exchange, asked: DenyBody) -> Answer:
    """Deny a request. A reason may be added."""
    return await _vote(
        call, DecisionInput(call.request_id, "deny", asked.reason, asked.digest or ""), asked.denier
    )


async def decide_many(call: Exchange, asked: ManyBody) -> Answer:
    """Decide on several requests that were viewed before. Each has a transaction of its own."""
    outcomes: list[ManyOutcome] = []
    for item in asked.items:
        ballot = DecisionInput(item.id, asked.verdict, asked.reason, item.digest, is_one_of_many=True)
        outcome = await call.service.decide(ballot, call.who)
        status = outcome.request.status if outcome.request else "not_found"
        counted = outcome.kind in ("decided", "voted")
        outcomes.append(ManyOutcome(item.id, counted, status, outcome.message))
    return 200, ManyAnswer(outcomes)


async def _vote(call: Exchange, ballot: DecisionInput, name: str) -> Answer:
    caller = call.who
    if caller.is_open:
        # In open mode no caller proves an identity; the name in the body is recorded, as the contract
        # specifies.
        caller = msgspec.structs.replace(caller, name=name.strip() or "api")
    outcome = await call.service.decide(ballot, caller)
    request = _request_of(outcome)
    if outcome.kind == "voted":
        quorum = describe(request.plan.quorum)
        return 202, made_of(
            CountedAnswer, outcome, id=request.id, action=request.action, status="pending", quorum=quorum
        )
    return 200, _settled(request, ballot.reason)


async def amend(call: Exchange, asked: AmendBody) -> Answer:
    """Change the details of a request. Only if the requester accepts edits."""
    try:
        target = call.request_id, asked.digest
        outcome = await call.service.amend(target, call.who, asked.details, asked.reason)
    except ValueError as error:
        raise HttpRefusal(400, f"details can't be encoded: {error}") from error
    request = _request_of(outcome)
    return 200, made_of(AmendedAnswer, request, details=msgspec.Raw(request.details_json.encode()))


async def cancel(call: Exchange, asked: CancelBody) -> Answer:
    """Cancel one of your requests."""
    outcome = await call.service.cancel(call.request_id, call.who, asked.reason)
    return 200, _settled(_request_of(outcome))


async def consume(call: Exchange, asked: ConsumeBody) -> Answer:
    """Consume an approval, once. Only for exactly the approved digest; the answer contains the signed grant.
    Repeating the call with the same Idempotency-Key returns the same answer, so a caller that crashed can
    ask again."""
    key = idempotency_key(call)
    request = _request_of(await call.service.consume(call.request_id, call.who, asked.digest, key))
    grant = grant_of(call.service, request)
    return 200, made_of(ConsumedAnswer, request, status="consumed", grant=grant)


async def report(call: Exchange, asked: ReportBody) -> Answer:
    """Report the result of the action. It closes the record."""
    outcome = await call.service.report(call.request_id, call.who, asked.result, asked.note)
    request = _request_of(outcome)
    return 200, made_of(ReportedAnswer, request)


def grant_of(service: ConfirmService, request: ConfirmRequest) -> str:
    """Return the signed grant of an approved request."""
    return sign_grant(service.key, request, service.policy_file.policy.approval_valid_s)


def _settled(request: ConfirmRequest, reason: str = "") -> SettledAnswer:
    return made_of(SettledAnswer, request, reason=reason or UNSET)


def _request_of(outcome: RequestOutcome) -> ConfirmRequest:
    """Return the request of a successful outcome. Raises HttpRefusal for the others."""
    status = _STATUS.get(outcome.kind)
    if status is None and outcome.request is not None:
        return outcome.request
    more: dict[str, object] = {}
    if outcome.request is not None:
        more = {"status": outcome.request.status, "reason": outcome.kind}
        if outcome.kind == "changed":
            more["digest"] = outcome.request.digest
    headers = [retry_after(outcome.retry_after_s)] if outcome.retry_after_s else []
    if outcome.kind == "code" and headers:
        status = 429
    raise HttpRefusal(status or 500, outcome.message, more=more, headers=headers)
