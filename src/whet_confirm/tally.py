"""Counts the votes on a request: whether they decide it, and which approvals are still missing.

The decision itself, the API's record, the page, the messages and the command line all read this count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from whet_confirm.names import is_same_person, person_key
from whet_confirm.quorum import describe, find_missing
from whet_confirm.records import ConfirmRequest, Verdict, Vote


class Tally(msgspec.Struct, frozen=True):
    """The people who approved and denied, and the resulting status.

    `missing` describes the approvals that are still missing; it is empty once the request is decided.
    """

    approved_by: tuple[str, ...]
    denied_by: tuple[str, ...]
    status: Literal["pending", "approved", "denied"]
    missing: str = ""


def count_votes(
    request: ConfirmRequest,
    votes: Sequence[Vote],
    groups: Mapping[str, Sequence[str]],
    *,
    may_approve_own_edit: bool = False,
) -> Tally:
    """Count the votes on a request by its plan and the members of the groups.

    People who changed the details don't count as the only approvers, except in open mode, where no caller
    proves an identity (`may_approve_own_edit`).
    """
    plan = request.plan
    yes, no = _voters(votes, "approve"), _voters(votes, "deny")
    if len(no) >= plan.deny_threshold:
        return Tally(yes, no, "denied")
    missing = find_missing(plan.quorum, yes, groups)
    is_own_edit = not may_approve_own_edit and all(is_same_person(name, request.edited_by) for name in yes)
    if not missing and not is_own_edit:
        return Tally(yes, no, "approved")
    text = describe(missing) if missing else f"1 of anyone but {request.edited_by}, who changed it"
    if plan.deny_threshold > 1:
        text += f" to approve, {plan.deny_threshold - len(no)} to deny"
    return Tally(yes, no, "pending", text)


def is_repeated(votes: Sequence[Vote], name: str, verdict: Verdict, reason: str) -> bool:
    """Return whether a person has cast this vote before, and gives no new reason."""
    return any(
        vote.principal == name and vote.verdict == verdict and reason in ("", vote.reason) for vote in votes
    )


def _voters(votes: Sequence[Vote], verdict: Verdict) -> tuple[str, ...]:
    """Return the people with that verdict, each once however the name is spelled."""
    names = [vote.principal for vote in votes if vote.verdict == verdict]
    return tuple({person_key(name): name for name in names}.values() if len(names) > 1 else names)
