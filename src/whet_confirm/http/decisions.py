"""POST /confirm/{id}/approve, deny, amend, cancel, consume, report: the calls on one request."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from whet_confirm.decide import DecisionInput
from whet_confirm.grants import sign_grant
from whet_confirm.http.answers import build_answer
from whet_confirm.http.exchange import Answer, Exchange
from whet_confirm.http.guard import retry_after
from whet_confirm.http.shapes import (
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
from whet_confirm.http.submissions import idempotency_key
from whet_confirm.http.wire import HttpRefusal
from whet_confirm.quorum import describe
from whet_confirm.records import ConfirmRequest, OutcomeKind, RequestOutcome
from whet_confirm.service import ConfirmService

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


async def approve(call: Exchange, body: ApproveBody) -> Answer:
    """Approve a request."""
    ballot = DecisionInput(
        call.request_id, "approve", body.reason, body.digest or "", code=body.code, grant=body.grant
    )
    return await _vote(call, ballot, body.approver)


async def deny(call: Exchange, body: DenyBody) -> Answer:
    """Deny a request. A reason may be added."""
    return await _vote(
        call, DecisionInput(call.request_id, "deny", body.reason, body.digest or ""), body.denier
    )


async def decide_many(call: Exchange, body: ManyBody) -> Answer:
    """Decide on several requests that were viewed before. Each has a transaction of its own."""
    outcomes: list[ManyOutcome] = []
    for item in body.items:
        ballot = DecisionInput(item.id, body.verdict, body.reason, item.digest, is_one_of_many=True)
        outcome = await call.service.decide(ballot, call.caller)
        status = outcome.request.status if outcome.request else "not_found"
        counted = outcome.kind in ("decided", "voted")
        outcomes.append(ManyOutcome(item.id, counted, status, outcome.message))
    return 200, ManyAnswer(outcomes)


async def _vote(call: Exchange, ballot: DecisionInput, name: str) -> Answer:
    caller = call.caller
    if caller.is_open:
        # In open mode no caller proves an identity; the name in the body is recorded, as the contract
        # specifies.
        caller = msgspec.structs.replace(caller, name=name.strip() or "api")
    outcome = await call.service.decide(ballot, caller)
    request = _request_of(outcome)
    if outcome.kind == "voted":
        quorum = describe(request.plan.quorum)
        return 202, build_answer(
            CountedAnswer, outcome, id=request.id, action=request.action, status="pending", quorum=quorum
        )
    return 200, _settled_answer(request, ballot.reason, outcome.grant_id)


async def amend(call: Exchange, body: AmendBody) -> Answer:
    """Change the details of a request. Only if the requester accepts edits."""
    try:
        target = call.request_id, body.digest
        outcome = await call.service.amend(target, call.caller, body.details, body.reason)
    except ValueError as error:
        raise HttpRefusal(400, f"details can't be encoded: {error}") from error
    request = _request_of(outcome)
    return 200, build_answer(AmendedAnswer, request, details=msgspec.Raw(request.details_json.encode()))


async def cancel(call: Exchange, body: CancelBody) -> Answer:
    """Cancel one of your requests."""
    outcome = await call.service.cancel(call.request_id, call.caller, body.reason)
    return 200, _settled_answer(_request_of(outcome))


async def consume(call: Exchange, body: ConsumeBody) -> Answer:
    """Consume an approval, once. Only for exactly the approved digest; the answer contains the signed grant.
    Repeating the call with the same Idempotency-Key returns the same answer, so a caller that crashed can
    ask again."""
    key = idempotency_key(call)
    request = _request_of(await call.service.consume(call.request_id, call.caller, body.digest, key))
    grant = build_grant(call.service, request)
    return 200, build_answer(ConsumedAnswer, request, status="consumed", grant=grant)


async def report(call: Exchange, body: ReportBody) -> Answer:
    """Report the result of the action. It closes the record."""
    outcome = await call.service.report(call.request_id, call.caller, body.result, body.note)
    request = _request_of(outcome)
    return 200, build_answer(ReportedAnswer, request)


def build_grant(service: ConfirmService, request: ConfirmRequest) -> str:
    """Return the signed grant of an approved request."""
    return sign_grant(service.key, request, service.policy_file.policy.approval_valid_s)


def _settled_answer(request: ConfirmRequest, reason: str = "", grant_id: int = 0) -> SettledAnswer:
    return build_answer(SettledAnswer, request, reason=reason or UNSET, grant_id=grant_id or UNSET)


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
