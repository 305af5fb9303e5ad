"""The service's data as frozen values: requests, votes, events, outcomes.

Times are Unix seconds. `details_json` is the JSON text that the digest covers. Nothing here does I/O.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["pending", "approved", "denied", "expired", "cancelled", "auto_approved"]
STATUSES: tuple[Status, ...] = ("pending", "approved", "denied", "expired", "cancelled", "auto_approved")
Verdict = Literal["approve", "deny"]
Role = Literal["submit", "approve", "audit", "admin"]
ROLES: tuple[Role, ...] = ("submit", "approve", "audit", "admin")
BY_TIMEOUT = "system:timeout"

HIGH_RISK_ACTIONS = frozenset(
    {
        "deploy_production",
        "delete_data",
        "transfer_funds",
        "modify_permissions",
        "shutdown_service",
        "wipe_database",
        "exec_remote",
        "publish_package",
        "rotate_keys",
        "migrate_database",
    }
)


class Caller(msgspec.Struct, frozen=True):
    """The caller: the name that is recorded, and the role of its token.

    In open mode all callers are the same, so a caller can't be prevented from deciding on its own request.
    """

    name: str
    role: Role
    token_id: str = ""
    is_open: bool = False

    def may(self, *roles: str) -> bool:
        """Return whether the caller has one of `roles`. An admin has all of them."""
        return self.role in roles or self.role == "admin"


class ApprovalNeed(msgspec.Struct, frozen=True):
    """`count` distinct approvals from `group`. The empty group is everyone who may approve."""

    count: int
    group: str = ""


ANYBODY = ((ApprovalNeed(1),),)  # the need of most requests


class ApprovalPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The approvals that a request needs, according to its policy rule.

    `quorum` is a list of alternatives, each a list of needs that must all be met by different people.
    `grants` are the kinds of approvals for a while that an approver may give, with their limits.
    """

    rule: str = ""
    quorum: tuple[tuple[ApprovalNeed, ...], ...] = ANYBODY
    deny_threshold: int = 1
    approvers: tuple[str, ...] = ()
    min_review_s: float = 0.0
    escalate_to: str = ""
    escalate_after: float = 0.5
    needs_web: bool = False
    needs_factor: bool = False
    needs_passkey: bool = False
    grants: tuple[str, ...] = ()
    grant_max_s: float = 28_800.0
    grant_max_uses: int = 10


class ConfirmRequest(msgspec.Struct, frozen=True):
    """A submitted action and its outcome.

    `status` is `expired` as soon as `expires_at` has passed, whether or not the sweeper has recorded that.
    """

    seq: int
    id: str
    action: str
    description: str
    details_json: str
    requester: str
    session_key: str
    principal: str
    status: Status
    created_at: float
    expires_at: float
    timeout_seconds: int
    resolved_at: float | None
    resolved_by: str
    reason: str
    digest: str
    plan: ApprovalPlan
    policy_version: str
    is_high_risk: bool = False
    accepts_edits: bool = False
    original_json: str = ""
    edited_by: str = ""
    callback_url: str = ""
    escalated_at: float | None = None
    consumed_at: float | None = None
    consumed_by: str = ""
    consume_key: str = ""
    executed_at: float | None = None
    execution: str = ""
    execution_note: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether the request can still be decided."""
        return self.status == "pending"

    @property
    def length(self) -> int:
        """The approximate number of characters that people are shown."""
        return len(self.details_json) + len(self.description)


class Vote(msgspec.Struct, frozen=True):
    """One person's approval or denial of a request. A later vote of the same person replaces it."""

    request_id: str
    principal: str
    verdict: Verdict
    at: float
    reason: str = ""


class AuditEvent(msgspec.Struct, frozen=True):
    """One row of the audit log.

    `owner` is the principal whose request it is about, or empty. `data` is JSON text. `hash` covers all
    fields and the previous hash.
    """

    id: int
    at: float
    kind: str
    request_id: str
    principal: str
    owner: str
    data: str
    hash: bytes


OutcomeKind = Literal[
    "decided",  # this call settled it: request.status is approved, denied or cancelled
    "voted",  # counted, but more approvals (or denials) are needed
    "amended",  # the details were changed; votes so far are void
    "late",  # the deadline has passed
    "already_decided",  # another person decided first; the request names them
    "own_request",  # people can't decide on their own requests
    "not_allowed",  # the rule names other approvers
    "too_early",  # the minimum review time has not passed
    "code",  # a valid code of the second factor is missing
    "passkey",  # the person's passkey signature is missing
    "changed",  # the given digest is not the request's: another version was viewed
    "altered",  # the record or its votes differ from the log: no decision is made on them
    "not_found",
]


class RequestOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call on a request, with a line for a person.

    `request` is its state after the call, or None only if it does not exist. `grant_id` is the number of the
    grant that was given with an approval, or 0.
    """

    kind: OutcomeKind
    message: str
    request: ConfirmRequest | None = None
    approvals: int = 0
    denials: int = 0
    retry_after_s: float = 0.0
    grant_id: int = 0


class AuditState(msgspec.Struct, frozen=True):
    """The length of the audit log, its newest hash, and its newest signed checkpoint."""

    size: int
    head: str
    checkpoint_size: int
    checkpoint_at: float | None
