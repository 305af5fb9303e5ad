"""Turn a submission into a stored request: policy, whitelist, rate limit, deadline, digest.

The contract sets the order of the checks: first the fields (`http/submissions.py`), then the whitelist, then
the rate limit.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from whet_confirm import rates, requests
from whet_confirm.canonical import canonical, stored_digest
from whet_confirm.ledger import Tx
from whet_confirm.names import GATE_PREFIX, SHORTEST_S, action_key, is_high_risk, new_request_id
from whet_confirm.policy import CONTRACT_LIMIT_S, ConfirmPolicy, Facts, PolicyJudgement
from whet_confirm.records import Caller, ConfirmRequest
from whet_confirm.risk import RiskReadings
from whet_confirm.running_grants import RunningGrant, asks_one_person, count_use, covers

WINDOW_S = 3600
_GATE_FACTOR = 100
DEFAULT_TIMEOUT_S = 300
_WHITELIST_ENDS = "SELECT coalesce(max(expires_at), 0.0) FROM whitelist NOT INDEXED WHERE revoked_at IS NULL"

_WHITELIST_ROWS = (
    "SELECT w.id, l.request_id, l.kind, l.host, l.max_uses, l.uses FROM whitelist w NOT INDEXED"
    " LEFT JOIN whitelist_limits l ON l.entry_id = w.id"
    " WHERE w.action_key = ? AND w.revoked_at IS NULL AND w.expires_at > ?"
    " AND w.principal IN ('*', ?) AND w.session_key IN ('', ?) ORDER BY l.entry_id IS NOT NULL, w.id"
)


class Submission(msgspec.Struct, frozen=True):
    """A caller's submission with checked fields. `timeout_s` None means the default."""

    action: str
    description: str
    details: dict[str, Any] = {}
    requester: str = "agent"
    session_key: str = ""
    timeout_s: int | None = None
    callback_url: str = ""
    accepts_edits: bool = False
    idempotency_key: str = ""
    body_hash: bytes = b""
    size_bytes: int = 0


class SubmissionResult(msgspec.Struct, frozen=True):
    """The result of a submission. `refused` is a line for a person if nothing was stored."""

    kind: Literal["pending", "auto_approved", "denied", "limited", "too_many_pending", "key_reused", "gone"]
    request: ConfirmRequest | None = None
    is_replay: bool = False
    refused: str = ""
    retry_after_s: float = 0.0


NO_LONGER_VALID = SubmissionResult("gone", refused="your token or sign-in does not hold any more")


class SubmissionDraft(msgspec.Struct, frozen=True):
    """A submission judged by the policy, ready to be stored in one transaction."""

    request: ConfirmRequest
    key: str
    judgement: PolicyJudgement
    submission: Submission


def judge_submission(
    submission: Submission, caller: Caller, policy: ConfirmPolicy, now_s: float
) -> SubmissionDraft:
    """Judge a submission and compute its id, deadline and digest.

    Raises ValueError for details that are not JSON.
    """
    key = action_key(submission.action)
    high_risk = is_high_risk(key)
    facts = Facts(
        action_key=key,
        principal=caller.name,
        requester=submission.requester,
        session_key=submission.session_key,
        details=submission.details,
        is_high_risk=high_risk,
        now_s=now_s,
        action=submission.action,
    )
    judgement = policy.judge(facts)
    request_id = new_request_id(now_s)
    timeout_s = _choose_timeout(submission.timeout_s, judgement)
    expires_at = now_s + timeout_s
    details_json = canonical(submission.details).decode()
    request = ConfirmRequest(
        seq=0,
        id=request_id,
        action=submission.action,
        description=submission.description,
        details_json=details_json,
        requester=submission.requester,
        session_key=submission.session_key,
        principal=caller.name,
        status="pending",
        created_at=now_s,
        expires_at=expires_at,
        timeout_seconds=timeout_s,
        resolved_at=None,
        resolved_by="",
        reason="",
        digest=stored_digest(
            request_id,
            submission.action,
            details_json,
            submission.requester,
            submission.session_key,
            expires_at,
        ),
        plan=judgement.plan,
        policy_version=policy.version,
        is_high_risk=high_risk,
        accepts_edits=submission.accepts_edits,
        callback_url=submission.callback_url,
    )
    return SubmissionDraft(request, key, judgement, submission)


def _choose_timeout(asked_s: int | None, judgement: PolicyJudgement) -> int:
    if asked_s is None:
        return judgement.timeout_s or DEFAULT_TIMEOUT_S
    return max(SHORTEST_S, min(asked_s, max(CONTRACT_LIMIT_S, judgement.max_timeout_s)))


def store(
    tx: Tx, draft: SubmissionDraft, rate_limit: int, pending_left: int, risks: RiskReadings
) -> SubmissionResult:
    """Store a draft in the transaction, or return why not.

    `pending_left` is how many more requests of this principal may be pending. `risks` reads its commands if a
    grant could let it pass.
    """
    submission = draft.submission
    if submission.idempotency_key and (replay := _find_replay(tx, draft)):
        return replay
    request = _apply_rules(tx, draft, risks)
    rate_number = None
    if request.status != "auto_approved":
        rate_limit *= _GATE_FACTOR if draft.key.startswith(GATE_PREFIX) else 1
        rate_number, earlier_at = rates.next_rate(tx, request.principal, draft.key, rate_limit, WINDOW_S)
        if refusal := _find_excess(request, rate_limit, tx.now_s - earlier_at, pending_left):
            return refusal
    keys = requests.RequestKeys(draft.key, rate_number, submission.idempotency_key, submission.body_hash)
    requests.insert(tx, request, keys)
    return SubmissionResult(_result_kind(request), request)


def _apply_rules(tx: Tx, draft: SubmissionDraft, risks: RiskReadings) -> ConfirmRequest:
    """Return the request after the policy and the whitelist: pending, or already ended."""
    verdict, by, why = draft.judgement.effect, f"policy:{draft.judgement.rule}", draft.judgement.why
    if verdict == "ask" and _can_pass(draft) and (entry := _find_whitelist_entry(tx, draft, risks)):
        number, grant = entry
        why = count_use(tx, grant) if grant else f"whitelist entry {number} lets it pass"
        verdict, by = "allow", f"whitelist:{number}"
    if verdict == "ask":
        return draft.request
    return msgspec.structs.replace(
        draft.request,
        status="auto_approved" if verdict == "allow" else "denied",
        resolved_at=tx.now_s,
        resolved_by=by,
        reason=why,
    )


def _can_pass(draft: SubmissionDraft) -> bool:
    """Return whether a whitelist entry may replace a person.

    Never for a high-risk action, or a rule that requires more than one person's approval.
    """
    return not draft.request.is_high_risk and asks_one_person(draft.judgement.plan)


def _find_excess(
    request: ConfirmRequest, rate_limit: int, age_s: float, pending_left: int
) -> SubmissionResult | None:
    """Return the refusal if the request is over a limit.

    `age_s` is the age of the submission that has to leave the window first.
    """
    if age_s < WINDOW_S:
        why = f"more than {rate_limit} an hour of {request.action} that nobody approved"
        return SubmissionResult("limited", refused=why, retry_after_s=WINDOW_S - age_s)
    if pending_left <= 0:
        why = "too many of your requests are pending"
        return SubmissionResult("too_many_pending", refused=why, retry_after_s=60.0)
    return None


def _result_kind(request: ConfirmRequest) -> Literal["pending", "auto_approved", "denied"]:
    if request.status == "auto_approved":
        return "auto_approved"
    return "denied" if request.status == "denied" and request.resolved_by.startswith("policy:") else "pending"


def _find_replay(tx: Tx, draft: SubmissionDraft) -> SubmissionResult | None:
    row = tx.connection.execute(
        "SELECT body_hash, request_id FROM idempotency WHERE principal = ? AND key = ?",
        (draft.request.principal, draft.submission.idempotency_key),
    ).fetchone()
    if row is None:
        return None
    if row[0] != draft.submission.body_hash:
        return SubmissionResult("key_reused", refused="this Idempotency-Key was used with another body")
    request = requests.find(tx.connection, row[1], tx.now_s)
    return SubmissionResult(_result_kind(request), request, is_replay=True) if request else None


def _find_whitelist_entry(
    tx: Tx, draft: SubmissionDraft, risks: RiskReadings
) -> tuple[int, RunningGrant | None] | None:
    """Return the number of the whitelist entry that lets a submission pass, or None.

    If an approver granted the entry, its limits are returned too.
    """
    cache = tx.sealer.row_cache("whitelist")
    if "until" not in cache:
        (cache["until"],) = tx.connection.execute(_WHITELIST_ENDS).fetchone() or (0.0,)
    if tx.now_s >= cache["until"]:
        return None
    request = draft.request
    rows = tx.connection.execute(
        _WHITELIST_ROWS, (draft.key, tx.now_s, request.principal, request.session_key)
    ).fetchall()
    for number, request_id, *limits in rows:
        if request_id is None:  # no approver granted the entry, so it has no limits
            return number, None
        grant = RunningGrant(number, request_id, *limits)
        if covers(tx, grant, request, risks.read(request)):
            return number, grant
    return None
