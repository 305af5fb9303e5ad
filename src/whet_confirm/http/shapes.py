"""The JSON of the API as types: the bodies and answers of its calls. Field names are the contract's.

The OpenAPI document is generated from these types, so it matches the JSON that is read and sent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from whet_confirm.names import DIGEST_PATTERN, ID_PATTERN
from whet_confirm.records import Status, Verdict
from whet_confirm.running_grants import GrantOffer
from whet_confirm.stand_ins import Delegation
from whet_confirm.submit import DEFAULT_TIMEOUT_S
from whet_confirm.whitelist import AllowedEntry

RequestId = Annotated[str, Meta(pattern=ID_PATTERN)]
Digest = Annotated[str, Meta(pattern=DIGEST_PATTERN)]
JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]
_Action = Annotated[str, Meta(min_length=1, max_length=256)]
_Name = Annotated[str, Meta(max_length=256)]
_Key = Annotated[str, Meta(max_length=1024)]
_Reason = Annotated[str, Meta(max_length=4096)]
_Proof = Annotated[str, Meta(min_length=1, max_length=64)]


class ErrorBody(msgspec.Struct, frozen=True):
    """A refusal. It holds the id of a submission that the policy denies, and the status after a late call."""

    error: str
    status: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET
    window_seconds: int | UnsetType = UNSET
    id: RequestId | UnsetType = UNSET
    action: str | UnsetType = UNSET
    digest: Digest | UnsetType = UNSET


class SubmitBody(msgspec.Struct, frozen=True):
    """An action that waits for a person.

    The contract reads a timeout that is not a number as the default, any empty value as no details, and
    null as a field that is left out.
    """

    action: _Action
    description: Annotated[str, Meta(min_length=1, max_length=65_536)]
    details: Annotated[Any, Meta(extra_json_schema={"type": "object"})] = {}
    requester: _Key | None = None
    session_key: _Key | None = None
    timeout_seconds: Annotated[
        Any,
        Meta(
            description="clamped to 30..3600",
            extra_json_schema={"type": "integer", "default": DEFAULT_TIMEOUT_S},
        ),
    ] = UNSET
    callback_url: Annotated[str, Meta(max_length=2048, extra_json_schema={"format": "uri"})] | None = None
    accepts_edits: Annotated[Any, Meta(extra_json_schema={"type": "boolean"})] = False


class ApproveBody(msgspec.Struct, frozen=True):
    """An approval. `approver` is used in open mode only. A given `digest` must be the record's. `grant` lets
    further requests pass for a while: one of the record's `grants`, or `times:N`."""

    approver: _Name = ""
    digest: _Proof | UnsetType = UNSET
    reason: _Reason = ""
    code: Annotated[str, Meta(max_length=32)] = ""
    grant: Annotated[str, Meta(max_length=32)] = ""


class DenyBody(msgspec.Struct, frozen=True):
    """A denial. `denier` is used in open mode only."""

    denier: _Name = ""
    digest: _Proof | UnsetType = UNSET
    reason: _Reason = ""


class CancelBody(msgspec.Struct, frozen=True):
    """Why a request is cancelled."""

    reason: _Reason = ""


class ManyItem(msgspec.Struct, frozen=True):
    """One of several requests, with the digest that was viewed."""

    id: RequestId
    digest: Digest


class ManyBody(msgspec.Struct, frozen=True):
    """One verdict on several requests, each of which the caller has viewed before."""

    verdict: Literal["approve", "deny"]
    items: Annotated[list[ManyItem], Meta(min_length=1, max_length=20)]
    reason: _Reason = ""


class ManyOutcome(msgspec.Struct, frozen=True):
    """The outcome for one of the requests. `counted`: the verdict was recorded."""

    id: RequestId
    counted: bool
    status: str
    message: str


class ManyAnswer(msgspec.Struct, frozen=True):
    """The outcome for each request, in the order of the body."""

    outcomes: list[ManyOutcome]


class AmendBody(msgspec.Struct, frozen=True):
    """The new details, and the digest of the details that were viewed."""

    details: dict[str, Any]
    digest: _Proof
    reason: _Reason = ""


class ConsumeBody(msgspec.Struct, frozen=True):
    """The digest of the action that is about to run."""

    digest: Annotated[str, Meta(min_length=1, max_length=64)]


class ReportBody(msgspec.Struct, frozen=True):
    """The result of running the action."""

    result: Literal["executed", "failed"]
    note: _Reason = ""


class AllowBody(msgspec.Struct, frozen=True):
    """The action to whitelist, and for how long. Every entry expires."""

    action: _Action
    principal: _Name
    seconds: float
    session_key: _Key = ""


class AwayBody(msgspec.Struct, frozen=True):
    """The person who decides for the caller, and until when (Unix seconds)."""

    stand_in: _Name
    until: float


class DelegationList(msgspec.Struct, frozen=True):
    """The delegations in force, oldest first."""

    delegations: list[Delegation]


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that is pending."""

    id: RequestId
    action: str
    digest: Digest
    status: Literal["pending"]
    timeout_seconds: int
    expires_at: float
    message: str
    approve_url: str
    deny_url: str
    page_url: str | UnsetType = UNSET


class AllowedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that a rule or the whitelist approved."""

    id: RequestId
    action: str
    digest: Digest
    status: Literal["auto_approved"]
    message: str


class SettledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request that this call ended."""

    id: RequestId
    action: str
    status: Status
    resolved_by: str
    resolved_at: float | None
    digest: Digest
    reason: str | UnsetType = UNSET
    grant_id: int | UnsetType = UNSET
    """The number of the grant that was given with it, to stop it: DELETE /whitelist/NUMBER."""


class CountedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A vote that was counted; more are needed."""

    id: RequestId
    action: str
    status: Literal["pending"]
    message: str
    approvals: int
    denials: int
    quorum: str


class AmendedAnswer(msgspec.Struct, frozen=True):
    """A request whose details were changed."""

    id: RequestId
    status: Status
    digest: Digest
    details: JsonObject


class ConsumedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that was just consumed. `grant` is the signed statement of it."""

    id: RequestId
    action: str
    status: Literal["consumed"]
    digest: Digest
    consumed_at: float | None
    grant: str


class ReportedAnswer(msgspec.Struct, frozen=True):
    """A record that was closed."""

    id: RequestId
    status: Status
    execution: str


class GrantAnswer(msgspec.Struct, frozen=True):
    """The signed statement that a request was approved."""

    id: RequestId
    digest: Digest
    grant: str


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    id: RequestId
    action: str
    description: str
    requester: str
    session_key: str
    status: Status
    resolved_by: str
    resolved_at: float | None
    created_at: float
    timeout_seconds: int
    created_at_iso: str
    resolved_at_iso: str | None
    reason: str
    expires_at: float
    digest: Digest


class VoteRecord(msgspec.Struct, frozen=True):
    """One person's vote."""

    by: str
    verdict: Verdict
    at: float
    reason: str | UnsetType = UNSET


class RiskRecord(msgspec.Struct, frozen=True):
    """How dangerous the request's commands are; `text` says it in one line."""

    level: Literal["safe", "normal", "dangerous", "unread"]
    reasons: list[str]
    text: str


class RequestRecord(_Summary, frozen=True, kw_only=True):
    """A request in its current state. Fields that don't apply yet are left out."""

    details: JsonObject
    principal: str
    policy_version: str
    high_risk: bool
    rule: str | UnsetType = UNSET
    quorum: str | UnsetType = UNSET
    deny_threshold: int | UnsetType = UNSET
    edited_by: str | UnsetType = UNSET
    original_details: JsonObject | UnsetType = UNSET
    escalated_at: float | UnsetType = UNSET
    consumed_at: float | UnsetType = UNSET
    consumed_by: str | UnsetType = UNSET
    executed_at: float | UnsetType = UNSET
    execution: str | UnsetType = UNSET
    execution_note: str | UnsetType = UNSET
    unclear: list[str] | UnsetType = UNSET
    """Names of the request's characters that are invisible or look like others."""
    votes: list[VoteRecord] | UnsetType = UNSET
    """The votes, oldest first, if it takes more than one."""
    missing: str | UnsetType = UNSET
    """The approvals that a pending request still needs, e.g. `1 of security`."""
    risk: RiskRecord | UnsetType = UNSET
    grants: list[GrantOffer] | UnsetType = UNSET
    """The grants that an approver may give with an approval of a pending request."""
    grant_id: int | UnsetType = UNSET
    """The running grant that was given with it."""
    on_call: str | UnsetType = UNSET
    """The person of a rota to whom a pending request was escalated last."""


class DeliveryRecord(msgspec.Struct, frozen=True):
    """How far a channel or device is with one event of a request. `state` is queued, failed (tried again),
    sent (the channel accepted it), delivered or seen (the device said so), dead or dropped. `waits` says for
    what a queued one waits."""

    channel: str
    kind: str
    state: str
    updated_at: float
    attempts: int
    label: str | UnsetType = UNSET
    waits: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    delivered_at: float | UnsetType = UNSET
    seen_at: float | UnsetType = UNSET


class DeliveryList(msgspec.Struct, frozen=True):
    """All deliveries of a request, oldest first."""

    deliveries: list[DeliveryRecord]


class RequestList(msgspec.Struct, frozen=True):
    """Requests, newest first; `next` is the query of the next page."""

    count: int
    requests: list[RequestRecord]
    next: str | UnsetType = UNSET


class AuditEntry(_Summary, frozen=True, kw_only=True):
    """A row of GET /audit; its details are JSON text."""

    details: str


class AuditPage(msgspec.Struct, frozen=True):
    """Requests in the shape of the audit page, newest first."""

    count: int
    entries: list[AuditEntry]
    next: str | UnsetType = UNSET


class EventRecord(msgspec.Struct, frozen=True):
    """An event of the hash-chained log; `hash` is in hexadecimal."""

    id: int
    at: float
    kind: str
    request_id: str
    principal: str
    owner: str
    data: JsonObject
    hash: str


class EventPage(msgspec.Struct, frozen=True):
    """Events, oldest first."""

    count: int
    events: list[EventRecord]


class CheckpointAnswer(msgspec.Struct, frozen=True):
    """The newest signed checkpoint, or only a size of 0 if none exists."""

    size: int
    head: str | UnsetType = UNSET
    at: float | UnsetType = UNSET
    key_id: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET


class AllowedEntries(msgspec.Struct, frozen=True):
    """The whitelist, newest first."""

    entries: list[AllowedEntry]


class RowAnswer(msgspec.Struct, frozen=True):
    """The new state of a row."""

    id: int
    status: Literal["removed", "waiting"]


class DeadLetter(msgspec.Struct, frozen=True):
    """A webhook that was not delivered."""

    id: int
    request_id: str
    url: str
    status: str
    attempts: int
    error: str
    created_at: float


class DeadLetters(msgspec.Struct, frozen=True):
    """Undelivered webhooks, newest first."""

    callbacks: list[DeadLetter]


class JsonWebKey(msgspec.Struct, frozen=True):
    """A public key for verifying grants and checkpoints."""

    kid: str
    x: str
    kty: str = "OKP"
    crv: str = "Ed25519"
    alg: str = "EdDSA"
    use: str = "sig"


class JsonWebKeys(msgspec.Struct, frozen=True):
    """All keys that were ever in use (JWK set)."""

    keys: list[JsonWebKey]


class HealthAnswer(msgspec.Struct, frozen=True):
    """The service's health, the number of pending requests, and of those that reached no person yet."""

    status: str
    pending_count: int
    timestamp: float
    unreached_count: int
