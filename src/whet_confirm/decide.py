"""Change a submitted request: decide, amend, cancel, consume, report, expire or escalate it.

Each change is one write transaction that checks the request's state and deadline first. If two decisions
race, even from two processes, one wins and the other is refused with the winner's name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from whet_confirm import factors, passkeys, requests, running_grants
from whet_confirm.audit_records import request_problem
from whet_confirm.canonical import stored_digest
from whet_confirm.ledger import Tx
from whet_confirm.names import is_same_person
from whet_confirm.on_call import list_next_people
from whet_confirm.passkeys import PasskeyProof
from whet_confirm.people import drop_removed_voters, is_still_valid
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.policy_review import judge_again
from whet_confirm.quorum import counts_for, describe
from whet_confirm.records import (
    BY_TIMEOUT,
    Caller,
    ConfirmRequest,
    OutcomeKind,
    RequestOutcome,
    Verdict,
    Vote,
)
from whet_confirm.running_grants import pick_offer
from whet_confirm.stand_ins import apply_stand_ins, find_givers
from whet_confirm.tally import count_votes, is_repeated

_CLOCK_SLACK_S = 60.0


class DecisionInput(msgspec.Struct, frozen=True):
    """A requested decision.

    An empty `digest` means that the caller did not name the version that it viewed. `passkey` is the
    signature of the browser's authenticator, as JSON, made on the page at `origin`.
    """

    request_id: str
    verdict: Verdict
    reason: str = ""
    digest: str = ""
    via_web: bool = False
    code: str = ""
    passkey: str = ""
    origin: str = ""
    grant: str = ""
    """The grant given with an approval, which lets similar calls pass for a while: a kind of
    `running_grants`, or `times:N`."""
    is_one_of_many: bool = False
    """Whether it is decided together with others. Then it must have been viewed, and need only a yes."""


def decide(tx: Tx, ballot: DecisionInput, caller: Caller, policy: ConfirmPolicy) -> RequestOutcome:
    """Count a vote, and end the request if that is enough."""
    request, refusal = _load_pending(tx, ballot.request_id, caller)
    if refusal or request is None:
        return refusal or _missing()
    if ballot.digest and (refusal := _check_digest(tx, request, caller, ballot.digest)):
        return refusal
    if not caller.is_open and is_same_person(caller.name, request.principal):
        return _refuse(
            tx, request, caller, "own_request", "you asked for this yourself; somebody else must decide"
        )
    if request.policy_version != policy.version:
        request, refusal = _replan(tx, request, policy)
        if refusal:
            return refusal
    policy = apply_stand_ins(tx.connection, policy, tx.now_s, request.principal)
    if refusal := _check_permission(tx, request, caller, policy, ballot):
        return refusal
    proof, refusal = _check_passkey(tx, request, caller, ballot)
    if refusal := refusal or _check_code(tx, request, caller, ballot):
        return refusal
    more: dict[str, object] = {} if proof is None else {"proof": proof}
    if policy.away and (sits_for := find_givers(tx.connection, caller.name, tx.now_s)):
        more["for"] = sits_for
    earlier = requests.list_votes(tx.connection, request.id)
    if is_repeated(earlier, caller.name, ballot.verdict, ballot.reason):
        # counted again, because a group may have other members now
        return _count_vote(tx, request, ballot, caller, (earlier, policy), "already counted")
    votes = requests.cast_vote(tx, request, caller, (ballot.verdict, ballot.reason), more)
    return _count_vote(tx, request, ballot, caller, (votes, policy), "counted")


def _count_vote(
    tx: Tx,
    request: ConfirmRequest,
    ballot: DecisionInput,
    caller: Caller,
    count: tuple[Sequence[Vote], ConfirmPolicy],
    note: str,
) -> RequestOutcome:
    votes, policy = count
    if len(votes) > 1:
        votes = drop_removed_voters(tx.connection, votes)
    tally = count_votes(request, votes, policy.groups, may_approve_own_edit=caller.is_open)
    numbers = len(tally.approved_by), len(tally.denied_by)
    if tally.status == "pending":
        message = f"{note}; it takes {describe(request.plan.quorum)}; missing: {tally.missing}"
        return RequestOutcome("voted", message, request, *numbers)
    names = tally.approved_by if tally.status == "approved" else tally.denied_by
    by = caller.name if len(names) == 1 else ", ".join(names)
    settled = requests.end_pending(tx, request, tally.status, by, ballot.reason)
    offer = pick_offer(request, ballot.grant) if ballot.grant and tally.status == "approved" else None
    grant_id = running_grants.add(tx, settled, offer, caller.name) if offer else 0
    return RequestOutcome("decided", tally.status, settled, *numbers, grant_id=grant_id)


def _check_permission(
    tx: Tx, request: ConfirmRequest, caller: Caller, policy: ConfirmPolicy, ballot: DecisionInput
) -> RequestOutcome | None:
    plan = request.plan
    if refusal := _check_approver(tx, request, caller, policy):
        return refusal
    if plan.needs_web and not ballot.via_web and ballot.verdict == "approve":
        return RequestOutcome(
            "not_allowed", f"rule {plan.rule!r} wants this approved on the web page", request
        )
    if ballot.is_one_of_many and (refusal := _check_joint_decision(tx, request, caller)):
        return refusal
    if plan.min_review_s and ballot.verdict == "approve":
        seen_at = requests.viewed_at(tx.connection, request.id, caller.name)
        if seen_at is None:
            requests.add_view(tx, request, caller.name)
            seen_at = tx.now_s
        wait_s = seen_at + plan.min_review_s - tx.now_s
        if wait_s > 0:
            message = f"look at it for {plan.min_review_s:g} s first; {wait_s:.0f} s to go"
            return RequestOutcome("too_early", message, request, retry_after_s=wait_s)
    return None


def _check_approver(
    tx: Tx, request: ConfirmRequest, caller: Caller, policy: ConfirmPolicy
) -> RequestOutcome | None:
    plan = request.plan
    if caller.is_open or (
        policy.may_approve(plan, caller.name) and counts_for(plan.quorum, caller.name, policy.groups)
    ):
        return None
    message = f"rule {plan.rule!r} lets others decide this: {describe(plan.quorum)}"
    return _refuse(tx, request, caller, "not_allowed", message)


def _check_joint_decision(tx: Tx, request: ConfirmRequest, caller: Caller) -> RequestOutcome | None:
    plan = request.plan
    if request.is_high_risk or plan.needs_factor or plan.needs_passkey:
        return RequestOutcome(
            "not_allowed", "this one is decided by itself, not together with others", request
        )
    if requests.viewed_at(tx.connection, request.id, caller.name) is None:
        return RequestOutcome("too_early", "look at it first: you have not opened it as it is now", request)
    return None


def _check_passkey(
    tx: Tx, request: ConfirmRequest, caller: Caller, ballot: DecisionInput
) -> tuple[PasskeyProof | None, RequestOutcome | None]:
    """Verify the passkey signature, if any. Refuse an approval that lacks a required one."""
    if not ballot.passkey:
        if not request.plan.needs_passkey or ballot.verdict != "approve":
            return None, None
        message = "it takes your passkey, on the web page"
        return None, RequestOutcome("passkey", message, request)
    vote = ballot.verdict, request.digest
    site = request.id, passkeys.PasskeyOrigin(ballot.origin)
    proof, problem = passkeys.verify_vote(tx, caller.name, ballot.passkey, vote, site)
    return proof, RequestOutcome("passkey", problem, request) if problem else None


def _check_code(
    tx: Tx, request: ConfirmRequest, caller: Caller, ballot: DecisionInput
) -> RequestOutcome | None:
    """Consume the second factor's code if the approval needs one.

    This must be the last check, so that another refusal does not use up a code.
    """
    if not request.plan.needs_factor or ballot.verdict != "approve":
        return None
    if caller.is_open:
        return RequestOutcome(
            "not_allowed", "a second factor takes tokens: run without --insecure-no-auth", request
        )
    tried = factors.use_code(tx, caller.name, ballot.code, request.id)
    if not tried.problem:
        return None
    return RequestOutcome("code", tried.problem, request, retry_after_s=tried.retry_after_s)


def _replan(
    tx: Tx, request: ConfirmRequest, policy: ConfirmPolicy
) -> tuple[ConfirmRequest, RequestOutcome | None]:
    """Judge a pending request by the current policy. A changed plan voids the votes so far."""
    judged = judge_again(request, requests.decode_details(request.details_json), policy, tx.now_s)
    if judged.effect == "deny":
        settled = requests.end_pending(tx, request, "denied", f"policy:{judged.rule}", judged.why)
        return settled, RequestOutcome("already_decided", f"the policy was changed: {judged.why}", settled)
    plan = judged.plan if judged.effect == "ask" else request.plan
    if plan == request.plan:
        return request, None
    return requests.replace_plan(tx, request, plan, policy.version), None


def cancel(tx: Tx, request_id: str, caller: Caller, reason: str) -> RequestOutcome:
    """Cancel a pending request. Only its submitter or an admin may."""
    request, refusal = _load_pending(tx, request_id, caller, is_own=True)
    if refusal or request is None:
        return refusal or _missing()
    return RequestOutcome(
        "decided", "cancelled", requests.end_pending(tx, request, "cancelled", caller.name, reason)
    )


class Amendment(msgspec.Struct, frozen=True):
    """A requested change of details.

    `digest` is the digest of the viewed version, `text` the new details in canonical JSON.
    """

    request_id: str
    digest: str
    details: dict[str, Any]
    text: str
    reason: str = ""


def amend(tx: Tx, change: Amendment, caller: Caller, policy: ConfirmPolicy) -> RequestOutcome:
    """Change the details of a pending request whose submitter accepts edits.

    Only a person who may decide on the request can change it, and only the version that they viewed. Votes
    so far are void, and the rule for the new details applies.
    """
    request, refusal = _load_pending(tx, change.request_id, caller)
    if refusal or request is None:
        return refusal or _missing()
    if refusal := _check_digest(tx, request, caller, change.digest):
        return refusal
    if not request.accepts_edits:
        return RequestOutcome(
            "not_allowed", "the requester does not take edits: deny with a reason instead", request
        )
    if not caller.is_open and is_same_person(caller.name, request.principal):
        return _refuse(tx, request, caller, "own_request", "you asked for this yourself")
    policy = apply_stand_ins(tx.connection, policy, tx.now_s, request.principal)
    if refusal := _check_approver(tx, request, caller, policy):
        return refusal
    judged = judge_again(request, change.details, policy, tx.now_s)
    if judged.effect == "deny":
        return _refuse(tx, request, caller, "not_allowed", f"rule {judged.rule!r} denies this: {judged.why}")
    digest = stored_digest(
        request.id, request.action, change.text, request.requester, request.session_key, request.expires_at
    )
    changed = requests.replace_details(tx, request, caller, change.text, digest)
    if judged.effect == "ask" and judged.plan != request.plan:
        changed = requests.replace_plan(tx, changed, judged.plan, policy.version)
    message = change.reason or "the details were changed; it must be approved as it is now"
    return RequestOutcome("amended", message, changed)


def consume(
    tx: Tx, request_id: str, caller: Caller, proof: tuple[str, str], valid_s: float
) -> RequestOutcome:
    """Consume an approval: once, for exactly the approved digest, before it is `valid_s` old.

    `proof` is the digest and an idempotency key (empty if not used). A caller that repeats the key that
    consumed the approval gets the same answer.
    """
    digest, key = proof
    request = requests.find(tx.connection, request_id, tx.now_s)
    if request is None or not _owns(caller, request):
        return _missing()
    if refusal := _check_caller(tx, request, caller) or _check_integrity(tx, request, caller):
        return refusal
    if request.digest != digest:
        tx.record(
            "consume_refused",
            request.id,
            caller.name,
            request.principal,
            {"why": "digest", "given": digest[:64]},
        )
        return RequestOutcome("changed", "this digest is not what was approved", request)
    if request.status not in ("approved", "auto_approved"):
        return RequestOutcome("already_decided", f"it is {request.status}, not approved", request)
    if request.consumed_at is not None:
        if key and (request.consume_key, request.consumed_by) == (key, caller.name):
            return RequestOutcome("decided", "this key has used it up before", request)
        tx.record("consume_refused", request.id, caller.name, request.principal, {"why": "used up"})
        return RequestOutcome("already_decided", "the approval was used before", request)
    age_s = tx.now_s - (request.resolved_at or request.created_at)
    if not -_CLOCK_SLACK_S <= age_s <= valid_s:  # in the future: decided with a wrong clock
        return RequestOutcome("late", "the approval is too old to be used: ask again", request)
    tx.connection.execute(
        "UPDATE requests SET consumed_at = ?, consumed_by = ?, consume_key = ? WHERE seq = ?",
        (tx.now_s, caller.name, key, request.seq),
    )
    tx.record("consumed", request.id, caller.name, request.principal, {"digest": digest})
    used = msgspec.structs.replace(request, consumed_at=tx.now_s, consumed_by=caller.name)
    return RequestOutcome("decided", "the approval is used up now: run the action once", used)


def report(tx: Tx, request_id: str, caller: Caller, result: str, note: str) -> RequestOutcome:
    """Record the result of running the action, executed or failed. Allowed once."""
    request = requests.find(tx.connection, request_id, tx.now_s)
    if request is None or not _owns(caller, request):
        return _missing()
    if refusal := _check_caller(tx, request, caller) or _check_integrity(tx, request, caller):
        return refusal
    if request.consumed_at is None:
        return RequestOutcome("already_decided", "report comes after consume", request)
    if request.executed_at is not None:
        return RequestOutcome("already_decided", f"reported before: {request.execution}", request)
    tx.connection.execute(
        "UPDATE requests SET executed_at = ?, execution = ?, execution_note = ? WHERE seq = ?",
        (tx.now_s, result, note, request.seq),
    )
    data: dict[str, object] = {"result": result, "note": note} if note else {"result": result}
    tx.record("executed", request.id, caller.name, request.principal, data)
    closed = msgspec.structs.replace(request, executed_at=tx.now_s, execution=result, execution_note=note)
    return RequestOutcome("decided", result, closed)


def record_view(tx: Tx, viewed: ConfirmRequest, caller: Caller) -> None:
    """Record that a possible approver viewed a pending request, unless it has changed since."""
    request = requests.find(tx.connection, viewed.id, tx.now_s)
    if request is not None and request.is_pending and request.digest == viewed.digest:
        requests.add_view(tx, request, caller.name)


def record_reveal(tx: Tx, request_id: str, caller: Caller) -> None:
    """Record that a person revealed the hidden parts of a request."""
    request = requests.find(tx.connection, request_id, tx.now_s)
    if request is not None:
        tx.record("revealed", request.id, caller.name, request.principal, {"digest": request.digest})


def expire(tx: Tx, limit: int) -> int:
    """Expire up to `limit` overdue requests, and return their number."""
    overdue = requests.find_overdue(tx.connection, tx.now_s, limit)
    for request in overdue:
        requests.end_pending(tx, request, "expired", BY_TIMEOUT, is_altered=bool(_find_damage(tx, request)))
    return len(overdue)


def expire_all(tx: Tx, limit: int) -> int:
    """Expire up to `limit` pending requests, regardless of their deadline, and return their number."""
    pending, why = requests.find_overdue(tx.connection, math.inf, limit), "the service's clock was corrected"
    for request in pending:
        is_altered = bool(_find_damage(tx, request))
        requests.end_pending(tx, request, "expired", BY_TIMEOUT, why, is_altered=is_altered)
    return len(pending)


def escalate(tx: Tx, limit: int, policy: ConfirmPolicy) -> int:
    """Escalate up to `limit` due requests, each to its group or its rota's next person. Returns how many."""
    overdue = requests.find_due_escalations(tx.connection, tx.now_s, limit)
    for request in overdue:
        group = request.plan.escalate_to
        is_altered = not group or _find_damage(tx, request)
        data: dict[str, object] = {"group": group}
        next_at = None
        if (rota := policy.rotas.get(group)) is not None:
            people = list_next_people(tx, request, policy, rota)
            data["person"] = people[0]
            next_at = tx.now_s + rota.next_after_s if people[1:] else None
        # `escalated_at` is set once the last person was notified
        tx.connection.execute(
            "UPDATE requests SET escalates_at = coalesce(?, escalates_at), escalated_at = ? WHERE seq = ?",
            (next_at, None if next_at else tx.now_s, request.seq),
        )
        if is_altered:  # the log must not vouch for a row that another program wrote
            tx.sealer.newest.pop("requests", None)
        if group:
            tx.record("escalated", request.id, "system:policy", request.principal, data)
    return len(overdue)


def _load_pending(
    tx: Tx, request_id: str, caller: Caller, *, is_own: bool = False
) -> tuple[ConfirmRequest | None, RequestOutcome | None]:
    """Load a request that is pending now for a caller that is still valid.

    Otherwise return the outcome that explains why not. An overdue request is recorded as expired.
    """
    row = tx.connection.execute(requests.BY_ID, (request_id,)).fetchone()
    if row is None:
        return None, _missing()
    request = requests.as_request(row, 0.0)
    if is_own and not _owns(caller, request):
        return None, _missing()
    if request.is_pending and tx.now_s >= request.expires_at:
        request = requests.end_pending(tx, request, "expired", BY_TIMEOUT)
    if request.status == "expired":
        return None, RequestOutcome("late", "too late: it ran out before anybody decided", request)
    if not request.is_pending:
        by = f" by {request.resolved_by}" if request.resolved_by else ""
        return None, RequestOutcome("already_decided", f"already {request.status}{by}", request)
    return request, _check_caller(tx, request, caller) or _check_integrity(tx, request, caller)


def _check_digest(tx: Tx, request: ConfirmRequest, caller: Caller, digest: str) -> RequestOutcome | None:
    """Refuse a caller that viewed another version. `digest` is the version that it viewed."""
    if digest == request.digest:
        return None
    tx.record("digest_mismatch", request.id, caller.name, request.principal, {"given": digest[:64]})
    return RequestOutcome("changed", "the request is not what you looked at: load it again", request)


def _check_integrity(tx: Tx, request: ConfirmRequest, caller: Caller) -> RequestOutcome | None:
    """Refuse to use a record that this service did not write."""
    if not (problem := _find_damage(tx, request)):
        return None
    tx.record("tampering", request.id, caller.name, request.principal, {"why": problem})
    message = f"the database was changed from outside: {problem}. Nothing is decided on it"
    return RequestOutcome("altered", message, request)


def _find_damage(tx: Tx, request: ConfirmRequest) -> str:
    return "" if tx.sealer.is_own_write(request.seq) else request_problem(tx.connection, request.id)


def _check_caller(tx: Tx, request: ConfirmRequest, caller: Caller) -> RequestOutcome | None:
    """Refuse a caller whose token or login was accepted, but has been removed since."""
    if is_still_valid(tx, caller):
        return None
    return _refuse(tx, request, caller, "not_allowed", "your token or sign-in does not hold any more")


def _owns(caller: Caller, request: ConfirmRequest) -> bool:
    return caller.is_open or caller.role == "admin" or caller.name == request.principal


def _refuse(tx: Tx, request: ConfirmRequest, caller: Caller, kind: OutcomeKind, why: str) -> RequestOutcome:
    tx.record("refused", request.id, caller.name, request.principal, {"why": kind})
    return RequestOutcome(kind, why, request)


def _missing() -> RequestOutcome:
    return RequestOutcome("not_found", "there is no such request")
