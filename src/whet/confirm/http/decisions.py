"""POST /confirm/{id}/approve, deny, amend, cancel, consume, report: calls on one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from whet.confirm.decide import DecisionInput
from whet.confirm.grants import sign_grant
from whet.confirm.http.guard import need, retry_after
from whet.confirm.http.wire import HttpRefusal, parse_object, text_field
from whet.confirm.quorum import describe
from whet.confirm.records import Caller, ConfirmRequest, OutcomeKind, RequestOutcome, Verdict
from whet.confirm.service import ConfirmService

_LONGEST_NAME, _LONGEST_REASON, _LONGEST_CODE = 256, 4096, 32
_STATUS: dict[OutcomeKind, int] = {
    "late": 409,
    "already_decided": 409,
    "changed": 409,
    "own_request": 403,
    "not_allowed": 403,
    "too_early": 425,
    "code": 403,
    "not_found": 404,
}
Answer = tuple[int, dict[str, Any]]
Given = tuple[bytes, str]  # the body, and the Idempotency-Key
Verb = Callable[[ConfirmService, Caller, str, Given], Awaitable[Answer]]


async def approve(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Say yes."""
    return await _vote(service, who, request_id, ("approve", "approver", given[0]))


async def deny(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Say no, with a reason where one is given."""
    return await _vote(service, who, request_id, ("deny", "denier", given[0]))


async def _vote(
    service: ConfirmService, who: Caller, request_id: str, what: tuple[Verdict, str, bytes]
) -> Answer:
    verdict, name_field, body = what
    need(who, "approve")
    fields = _fields(body)
    name = text_field(fields, name_field, "", _LONGEST_NAME).strip()
    reason = text_field(fields, "reason", "", _LONGEST_REASON)
    digest = text_field(fields, "digest", "", 64)
    code = text_field(fields, "code", "", _LONGEST_CODE)
    if who.is_open:
        # Nobody proves who they are in open mode; what they say is recorded as the contract has it.
        who = msgspec.structs.replace(who, name=name or "api")
    outcome = await service.decide(DecisionInput(request_id, verdict, reason, digest, code=code), who)
    request = _request_of(outcome)
    if outcome.kind == "voted":
        return 202, _counted(outcome, request)
    shown = _settled(request)
    if reason:
        shown["reason"] = reason
    return 200, shown


def _counted(outcome: RequestOutcome, request: ConfirmRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "action": request.action,
        "status": "pending",
        "message": outcome.message,
        "approvals": outcome.approvals,
        "denials": outcome.denials,
        "quorum": describe(request.plan.quorum),
    }


async def amend(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Change the details, where the requester takes edits."""
    need(who, "approve")
    fields = _fields(given[0])
    details: object = fields.get("details")
    if not isinstance(details, dict):
        raise HttpRefusal(400, "details must be an object")
    try:
        outcome = await service.amend(
            request_id,
            who,
            cast("dict[str, Any]", details),
            text_field(fields, "reason", "", _LONGEST_REASON),
        )
    except ValueError as error:
        raise HttpRefusal(400, f"details can't be encoded: {error}") from error
    request = _request_of(outcome)
    return 200, {
        "id": request.id,
        "status": request.status,
        "digest": request.digest,
        "details": msgspec.Raw(request.details_json.encode()),
    }


async def cancel(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Take an own request back."""
    need(who, "submit")
    reason = text_field(_fields(given[0]), "reason", "", _LONGEST_REASON)
    return 200, _settled(_request_of(await service.cancel(request_id, who, reason)))


async def consume(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Use an approval up for exactly the approved digest; gives the signed grant along. The same
    Idempotency-Key gets the same answer again: a caller that crashed after this may ask what it had got."""
    need(who, "submit")
    digest = text_field(_fields(given[0]), "digest", "", 64)
    if not digest:
        raise HttpRefusal(400, "digest is required: it is in the answer to your submission")
    request = _request_of(await service.consume(request_id, who, digest, given[1]))
    return 200, {
        "id": request.id,
        "action": request.action,
        "status": "consumed",
        "digest": request.digest,
        "consumed_at": request.consumed_at,
        "grant": grant_of(service, request),
    }


async def report(service: ConfirmService, who: Caller, request_id: str, given: Given) -> Answer:
    """Close the record with what came of it."""
    need(who, "submit")
    fields = _fields(given[0])
    result = fields.get("result")
    if result not in ("executed", "failed"):
        raise HttpRefusal(400, "result must be executed or failed")
    note = text_field(fields, "note", "", _LONGEST_REASON)
    request = _request_of(await service.report(request_id, who, result, note))
    return 200, {"id": request.id, "status": request.status, "execution": request.execution}


VERBS: dict[bytes, Verb] = {
    b"approve": approve,
    b"deny": deny,
    b"amend": amend,
    b"cancel": cancel,
    b"consume": consume,
    b"report": report,
}


def grant_of(service: ConfirmService, request: ConfirmRequest) -> str:
    """Give the signed grant of an approved request."""
    return sign_grant(service.key, request, service.policy_file.policy.approval_valid_s)


def _fields(body: bytes) -> dict[str, Any]:
    """Read an optional body: none at all is an empty object, anything malformed is refused."""
    return parse_object(body) if body.strip() else {}


def _settled(request: ConfirmRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "action": request.action,
        "status": request.status,
        "resolved_by": request.resolved_by,
        "resolved_at": request.resolved_at,
        "digest": request.digest,
    }


def _request_of(outcome: RequestOutcome) -> ConfirmRequest:
    """Give the request of an outcome that went through; refuse the rest with its status."""
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
