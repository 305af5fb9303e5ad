"""Parses and checks quorums, the approvals that a rule needs: `2 of ops and 1 of security or 1 of admins`.

`and` binds tighter than `or`. Within one alternative each person counts for one need only, so `1 of ops
and 1 of security` always takes two people, even if one person is in both groups.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from whet_confirm.records import ANYBODY, ApprovalNeed

_NEED = re.compile(r"(\d{1,3})(?:\s+of\s+([\w.@+:/-]+))?", re.IGNORECASE)
Groups = Mapping[str, Sequence[str]]


def parse_quorum(text: str | int) -> tuple[tuple[ApprovalNeed, ...], ...]:
    """Parse a quorum: a number, or `N of GROUP` joined by `and` and `or`. Raises ValueError."""
    return tuple(
        tuple(_parse_term(part) for part in re.split(r"\s+and\s+", alternative.strip(), flags=re.IGNORECASE))
        for alternative in re.split(r"\s+or\s+", str(text).strip(), flags=re.IGNORECASE)
    )


def _parse_term(text: str) -> ApprovalNeed:
    match = _NEED.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError(f"{text.strip()!r} is not `N of GROUP`")
    group = match[2] or ""
    return ApprovalNeed(int(match[1]), "" if group.lower() in ("anyone", "any") else group)


def describe(quorum: Sequence[Sequence[ApprovalNeed]]) -> str:
    """Format a quorum for people."""
    return " or ".join(
        " and ".join(f"{need.count} of {need.group or 'anyone'}" for need in needs) for needs in quorum
    )


def groups_in(quorum: Sequence[Sequence[ApprovalNeed]]) -> set[str]:
    """Return the names of the groups in a quorum."""
    return {need.group for needs in quorum for need in needs if need.group}


def find_missing(
    quorum: Sequence[Sequence[ApprovalNeed]], people: Sequence[str], groups: Groups
) -> tuple[tuple[ApprovalNeed, ...], ...]:
    """Return the approvals that each alternative still needs, or nothing if one of them is met."""
    if quorum is ANYBODY:
        return () if people else ANYBODY
    missing = tuple(_missing_needs(needs, people, groups) for needs in quorum)
    return missing if all(missing) else ()


def counts_for(quorum: Sequence[Sequence[ApprovalNeed]], person: str, groups: Groups) -> bool:
    """Return whether an approval of `person` could count for any need."""
    if quorum is ANYBODY:
        return True
    return any(_is_member(person, need.group, groups) for needs in quorum for need in needs)


def _is_member(person: str, group: str, groups: Groups) -> bool:
    return not group or person in groups.get(group, ())


def _missing_needs(
    needs: Sequence[ApprovalNeed], people: Sequence[str], groups: Groups
) -> tuple[ApprovalNeed, ...]:
    """Return the needs that remain after as many approvals as possible are assigned (bipartite matching).

    Each approval is assigned to a different person.
    """
    slots = [need.group for need in needs for _ in range(need.count)]
    if not any(slots):  # no need names a group
        missing = len(slots) - len(people)
        return (ApprovalNeed(missing),) if missing > 0 else ()
    assignments: dict[str, int] = {}

    def assign(index: int, tried: set[str]) -> bool:
        for person in people:
            if person in tried or not _is_member(person, slots[index], groups):
                continue
            tried.add(person)
            if person not in assignments or assign(assignments[person], tried):
                assignments[person] = index
                return True
        return False

    # an approval that can't be assigned now can't be assigned later either
    open_slots = Counter(slots[index] for index in range(len(slots)) if not assign(index, set()))
    return tuple(ApprovalNeed(count, group) for group, count in open_slots.items())
