"""The policy: which actions are denied, asked about or allowed, and what an approval requires.

Of the matching rules deny wins over ask, and ask over allow; the first rule with the winning effect sets
the conditions. An action that matches no rule is asked about. High-risk actions always need a person, even
if a rule allows them. `policy_file.py` reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

import msgspec

from whet.lookalike import find_lookalikes
from whet_confirm.names import fold_spelling, is_high_risk, is_plain_name, person_key, squash_spelling
from whet_confirm.quorum import describe, find_missing, groups_in
from whet_confirm.records import HIGH_RISK_ACTIONS, ApprovalPlan
from whet_confirm.rotas import Rota

Effect = Literal["deny", "ask", "allow"]
CONTRACT_LIMIT_S = 3600
LONGEST_S = 7 * 86_400
BUILT_IN = "builtin"
_STRENGTH: dict[str, int] = {"deny": 2, "ask": 1, "allow": 0}


class Facts(msgspec.Struct, frozen=True):
    """The data that rules can test. `now_s` is Unix time."""

    action_key: str
    principal: str
    requester: str
    session_key: str
    details: dict[str, Any]
    is_high_risk: bool
    now_s: float
    action: str = ""
    """The action as it was submitted; if empty, its key counts."""


class Condition(msgspec.Struct, frozen=True):
    """A test of one value in the details: its `path` as steps, and the expected value as in the file."""

    path: tuple[str | int, ...]
    wanted: Any


class ConfirmRule(msgspec.Struct, frozen=True):
    """One rule, ready to match. Empty patterns match anything. `spellings` are the folded `actions`."""

    name: str
    effect: Effect
    actions: tuple[str, ...]
    principals: tuple[str, ...]
    requesters: tuple[str, ...]
    sessions: tuple[str, ...]
    conditions: tuple[Condition, ...]
    minutes: tuple[int, int] | None
    days: frozenset[int]
    timezone: str
    plan: ApprovalPlan
    timeout_s: int | None
    max_timeout_s: int
    spellings: tuple[str, ...] = ()


class PolicyJudgement(msgspec.Struct, frozen=True):
    """The policy's judgement of a request, with the reason as a line for a person."""

    effect: Effect
    plan: ApprovalPlan
    rule: str
    why: str
    timeout_s: int | None
    max_timeout_s: int


class ConfirmPolicy(msgspec.Struct, frozen=True):
    """All rules, the groups that they name, and a hash of the file as their version."""

    version: str = BUILT_IN
    rules: tuple[ConfirmRule, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}
    redact: tuple[str, ...] = ()
    approval_valid_s: float = 86_400.0
    rotas: dict[str, Rota] = {}
    away: dict[str, str] = {}
    """The delegate of each absent person, by the absent person's `person_key`; an empty name if there is none
    for this request. Not part of the file."""

    def judge(self, facts: Facts) -> PolicyJudgement:
        """Judge a request."""
        if not self.rules:
            return _DEFAULT
        matching = [rule for rule in self.rules if matches(rule, facts)]
        if facts.is_high_risk:
            allowed = [rule for rule in matching if rule.effect == "allow"]
            matching = [rule for rule in matching if rule.effect != "allow"]
            if allowed and not matching:
                return msgspec.structs.replace(
                    _DEFAULT, why=f"rule {allowed[0].name!r} would allow it, but it is a high-risk action"
                )
        if not matching:
            return _DEFAULT
        rule = max(matching, key=lambda rule: _STRENGTH[rule.effect])
        return PolicyJudgement(
            effect=rule.effect,
            plan=rule.plan,
            rule=rule.name,
            why=f"rule {rule.name!r} says {rule.effect}",
            timeout_s=rule.timeout_s,
            max_timeout_s=rule.max_timeout_s,
        )

    def may_approve(self, plan: ApprovalPlan, name: str) -> bool:
        """Return whether a plan lets `name` decide at all. Entries are names or `group:NAME`."""
        if not plan.approvers:
            return True
        for entry in plan.approvers:
            if self.away.get(person_key(entry), entry) == name or (
                entry.startswith("group:") and name in self.groups.get(entry.removeprefix("group:"), ())
            ):
                return True
        return False


_DEFAULT = PolicyJudgement(
    "ask", ApprovalPlan(), "", "no rule matches, so a person is asked", None, CONTRACT_LIMIT_S
)


def matches(rule: ConfirmRule, facts: Facts) -> bool:
    """Return whether every part of a rule matches."""
    return (
        _matches_action(rule, facts)
        and _matches_any(rule.principals, facts.principal)
        and _matches_any(rule.requesters, facts.requester)
        and _matches_any(rule.sessions, facts.session_key)
        and all(_is_met(condition, facts.details) for condition in rule.conditions)
        and _is_time(rule, facts.now_s)
    )


def _matches_action(rule: ConfirmRule, facts: Facts) -> bool:
    """Return whether a rule's globs match the action.

    A rule that denies or asks also matches other spellings of the name. A rule that allows matches a name
    with look-alike letters only if it contains exactly that name.
    """
    is_match = _matches_any(rule.actions, facts.action_key)
    if rule.effect == "allow":
        return is_match and (facts.action_key in rule.actions or not find_lookalikes(facts.action_key))
    if is_match:
        return True
    action = facts.action or facts.action_key
    letters = squash_spelling(action)
    return _matches_any(rule.spellings or rule.actions, fold_spelling(action)) or any(
        is_plain_name(name) and squash_spelling(name) == letters != "" for name in rule.actions
    )


def find_ineffective_rules(policy: ConfirmPolicy) -> list[str]:
    """Return one line for a person per rule that allows actions which always need a person."""
    lines: list[str] = []
    for rule in policy.rules:
        if rule.effect != "allow":
            continue
        matching = {name for name in HIGH_RISK_ACTIONS if _matches_any(rule.actions, name)}
        names = sorted(matching | {pattern for pattern in rule.actions if is_high_risk(pattern)})
        if not names:
            continue
        actions = "high-risk actions" if len(matching) == len(HIGH_RISK_ACTIONS) else ", ".join(names)
        needs = f"always need{'s' if len(names) == 1 else ''} a person"
        if rule.actions and all(is_high_risk(pattern) for pattern in rule.actions):
            lines.append(f"rule {rule.name!r} has no effect: {actions} {needs}")
        else:
            lines.append(f"rule {rule.name!r} has no effect on {actions}, which {needs}")
    return lines


def find_unreachable_quorums(policy: ConfirmPolicy) -> list[str]:
    """Return one line for a person per rule that too few people can approve.

    Groups of other systems, such as `oidc:NAME`, may have any number of members.
    """
    lines: list[str] = []
    for rule in policy.rules:
        plan = rule.plan
        entries = [entry for entry in plan.approvers if entry.startswith("group:")]
        names = groups_in(plan.quorum) | {entry.removeprefix("group:") for entry in entries}
        members = [person for name in sorted(names) for person in policy.groups[name]]
        if rule.effect != "ask" or any(":" in person for person in members):
            continue
        # A token may have any name, so add as many people without a group as could be needed.
        total = sum(need.count for needs in plan.quorum for need in needs)
        others = [str(number) for number in range(total)]
        people = dict.fromkeys((*members, *plan.approvers, *others))
        able = [name for name in people if name not in entries and policy.may_approve(plan, name)]
        if missing := find_missing(plan.quorum, able, policy.groups):
            lines.append(f"rule {rule.name!r} can never be approved: it lacks {describe(missing)}")
    return lines


def _matches_any(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(_compile_glob(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _is_time(rule: ConfirmRule, now_s: float) -> bool:
    if not rule.days and rule.minutes is None:
        return True
    now = datetime.fromtimestamp(now_s, ZoneInfo(rule.timezone) if rule.timezone else None)
    if rule.days and now.weekday() not in rule.days:
        return False
    if rule.minutes is None:
        return True
    begin, end = rule.minutes
    minute = now.hour * 60 + now.minute
    return begin <= minute < end if begin <= end else minute >= begin or minute < end


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse a JSON path: `$.a.b[0]`, `$.items[*].name`, `$["odd key"]`. Raises ValueError."""
    steps: list[str | int] = []
    remaining = text.removeprefix("$")
    if remaining and remaining[0] not in ".[":
        remaining = f".{remaining}"
    pattern = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[\*\]|\["([^"]*)"\]|\['([^']*)'\]""")
    position = 0
    while position < len(remaining):
        match = pattern.match(remaining, position)
        if match is None:
            raise ValueError(f"{text!r} is not a path like $.a.b[0] or $.items[*].name")
        if match[2] is not None:
            steps.append(int(match[2]))
        else:
            steps.append(match[1] or match[3] or match[4] or "*")
        position = match.end()
    if not steps:
        raise ValueError(f"{text!r} names nothing")
    return tuple(steps)


def _find_values(value: Any, path: Sequence[str | int]) -> list[Any]:
    """Return every value at a path."""
    if not path:
        return [value]
    step, remaining = path[0], path[1:]
    if step == "*":
        inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else value
        items = list(inner) if isinstance(value, dict | list) else []
        return [match for item in items for match in _find_values(item, remaining)]
    if isinstance(step, int):
        if isinstance(value, list) and step < len(cast("list[Any]", value)):
            return _find_values(value[step], remaining)
        return []
    if isinstance(value, dict) and step in value:
        return _find_values(value[step], remaining)
    return []


def _is_met(condition: Condition, details: dict[str, Any]) -> bool:
    values = _find_values(details, condition.path)
    expected = condition.wanted
    if isinstance(expected, dict) and "exists" in expected:
        return bool(values) is bool(cast("dict[str, Any]", expected)["exists"])
    return any(_matches_value(value, expected) for value in values)


def _matches_value(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(
            _passes_test(value, sign, bound) for sign, bound in cast("dict[str, Any]", expected).items()
        )
    if isinstance(expected, list):
        return any(_matches_value(value, option) for option in cast("list[Any]", expected))
    if isinstance(expected, str) and isinstance(value, str):
        return _compile_glob(expected).fullmatch(value) is not None
    return type(value) is type(expected) and value == expected


def _passes_test(value: Any, sign: str, bound: Any) -> bool:
    if sign == "not":
        return not _matches_value(value, bound)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return {"gt": value > bound, "ge": value >= bound, "lt": value < bound, "le": value <= bound}[sign]
