"""Assess a request for the people who see it, and record which of its parts a person revealed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from whet_confirm import decide, requests
from whet_confirm.on_call import list_notified
from whet_confirm.people import drop_removed_voters
from whet_confirm.quorum import describe
from whet_confirm.records import ANYBODY, Caller, ConfirmRequest, Vote
from whet_confirm.risk import RiskReading
from whet_confirm.running_grants import GrantOffer, find_running_grant, list_offers
from whet_confirm.service import ConfirmService
from whet_confirm.stand_ins import apply_stand_ins
from whet_confirm.tally import count_votes


async def reveal(service: ConfirmService, request_id: str, caller: Caller) -> None:
    """Record that a person reveals the hidden parts of a request, before they are shown."""
    await service.change(lambda tx: decide.record_reveal(tx, request_id, caller))


def last_revealed_digest(service: ConfirmService, request_id: str, caller: Caller) -> str:
    """Return the digest of the version that the caller revealed last, or an empty string."""
    return service.database.read_now(lambda db: requests.revealed_digest(db, request_id, caller.name))


class Assessment(msgspec.Struct, frozen=True):
    """The facts about a request, beyond its own fields, that the API, the page and the messages show."""

    votes: tuple[Vote, ...] = ()
    missing: str = ""
    """The approvals that are still missing, as text; empty once the request has ended."""
    risk: RiskReading | None = None
    offers: tuple[GrantOffer, ...] = ()
    """The grants that may be given with an approval."""
    grant_id: int = 0
    """The running grant that was given with the approval, or 0."""
    on_call: str = ""
    """The person of a rota to whom the request was escalated last."""


UNASSESSED = Assessment()
_ANYBODY = describe(ANYBODY)


def assess(service: ConfirmService, request: ConfirmRequest) -> Assessment:
    """Assess a request in its current state."""
    reading = service.risks.read(request)
    offers = list_offers(request, reading) if request.is_pending else ()
    grant_id, on_call = _find_grant(service, request), _find_person_on_call(service, request)
    return Assessment(*_count(service, request), reading, offers, grant_id, on_call)


async def assess_all(service: ConfirmService, pending: Sequence[ConfirmRequest]) -> list[Assessment]:
    """Assess several requests. Other tasks may run before each request whose commands must be read first."""
    assessments: list[Assessment] = []
    for request in pending:
        if not service.risks.knows(request):
            await asyncio.sleep(0)
        assessments.append(assess(service, request))
    return assessments


def _find_grant(service: ConfirmService, request: ConfirmRequest) -> int:
    if request.status != "approved" or not request.plan.grants:
        return 0
    now_s = service.timeline.now_s()
    return service.database.read_now(lambda db: find_running_grant(db, request.id, now_s))


def _find_person_on_call(service: ConfirmService, request: ConfirmRequest) -> str:
    if not request.is_pending or request.plan.escalate_to not in service.policy_file.policy.rotas:
        return ""
    people = service.database.read_now(lambda db: list_notified(db, request.id))
    return people[-1] if people else ""


def _count(service: ConfirmService, request: ConfirmRequest) -> tuple[tuple[Vote, ...], str]:
    plan = request.plan
    if not request.edited_by and plan.deny_threshold == 1 and plan.quorum == ANYBODY:
        return (), _ANYBODY if request.is_pending else ""  # the first vote ends it
    votes = tuple(service.votes(request.id))
    if not request.is_pending:
        return votes, ""
    policy, now_s = service.policy_file.policy, service.timeline.now_s()
    groups = service.database.read_now(
        lambda db: apply_stand_ins(db, policy, now_s, request.principal).groups
    )
    counted = service.database.read_now(lambda db: drop_removed_voters(db, votes))
    return votes, count_votes(request, counted, groups).missing
