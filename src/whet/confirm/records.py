"""What the service keeps and answers, as frozen values: requests, votes, events, outcomes.

Times are Unix seconds. `details_json` is the JSON text that the digest was made of. Nothing here does I/O.
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
    """Who is calling: the name that is recorded, and what its token allows. In open mode everybody is
    the same, so nobody can be kept from deciding on an own request."""

    name: str
    role: Role
    token_id: str = ""
    is_open: bool = False

    def may(self, *roles: str) -> bool:
        """Whether one of `roles` is held; an admin holds all of them."""
        return self.role in roles or self.role == "admin"


class ApprovalNeed(msgspec.Struct, frozen=True):
    """`count` distinct approvals from `group`; the empty group is anybody who may approve."""

    count: int
    group: str = ""


ANYBODY = ((ApprovalNeed(1),),)  # what most requests need


class ApprovalPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request needs before it is approved, as its policy rule said.

    `quorum` is a list of alternatives, each a list of needs that must all be met by different people.
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


class ConfirmRequest(msgspec.Struct, frozen=True):
    """A submitted action and what became of it. `status` is already `expired` once `expires_at` has passed,
    whether or not the sweeper has written that down."""

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
        """Whether it can still be decided."""
        return self.status == "pending"

    @property
    def length(self) -> int:
        """How many characters people are shown of it, about."""
        return len(self.details_json) + len(self.description)


class Vote(msgspec.Struct, frozen=True):
    """One person's yes or no on a request; a later one of the same person replaces it."""

    request_id: str
    principal: str
    verdict: Verdict
    at: float
    reason: str = ""


class AuditEvent(msgspec.Struct, frozen=True):
    """One row of the audit log. `owner` is the principal whose request it is about, "" for none; `data` is
    JSON text; `hash` covers all of it and the hash before."""

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
    "already_decided",  # somebody else was first; request says who
    "own_request",  # nobody decides on what they asked for themselves
    "not_allowed",  # the rule names other approvers
    "too_early",  # the minimum review time has not passed
    "code",  # a right code of the second factor is missing
    "passkey",  # the person's passkey has not signed it
    "changed",  # the digest given is not the request's: something else was looked at
    "altered",  # the record or its votes are not what the log says: nothing is decided on them
    "not_found",
]


class RequestOutcome(msgspec.Struct, frozen=True):
    """What a call on a request came to, with a line for a person; the request as it is after the call
    (None only where there is no such request)."""

    kind: OutcomeKind
    message: str
    request: ConfirmRequest | None = None
    approvals: int = 0
    denials: int = 0
    retry_after_s: float = 0.0


class AuditState(msgspec.Struct, frozen=True):
    """How long the audit log is, its newest hash, and the newest signed checkpoint."""

    size: int
    head: str
    checkpoint_size: int
    checkpoint_at: float | None
