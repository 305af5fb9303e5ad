"""The rules one by one: which details, times and people a rule fits, and which rules can have no effect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.confirm.test_policy import facts
from tests.support import each
from whet_confirm.policy import (
    Condition,
    ConfirmPolicy,
    ConfirmRule,
    Effect,
    find_ineffective_rules,
    find_unreachable_quorums,
    matches,
    parse_path,
)
from whet_confirm.quorum import parse_quorum
from whet_confirm.records import HIGH_RISK_ACTIONS, ApprovalPlan

DETAILS: dict[str, Any] = {
    "n": 5,
    "yes": True,
    "none": None,
    "name": "prod-1",
    "list": [{"name": "a"}, {"name": "b"}],
    "odd key": {"x": 1.5},
    "map": {"0": 2},
}


def rule(**more: Any) -> ConfirmRule:
    usual = ConfirmRule("r", "deny", (), (), (), (), (), None, frozenset(), "", ApprovalPlan(), None, 3600)
    return msgspec.structs.replace(usual, **more)


@each(
    ("path", "wanted", "fits"),
    [
        ("$.n", 5, True), ("$.n", 5.0, False), ("$.n", "5", False), ("$.n", {"gt": 5}, False),
        ("$.n", {"gt": 4}, True), ("$.n", {"ge": 5}, True), ("$.n", {"ge": 6}, False),
        ("$.n", {"lt": 5}, False), ("$.n", {"lt": 6}, True), ("$.n", {"le": 5}, True),
        ("$.n", {"le": 4}, False), ("$.n", {"gt": 1, "lt": 5}, False), ("$.n", {"not": 5}, False),
        ("$.n", {"not": {"gt": 5}}, True), ("$.n", [4, 5], True), ("$.n", [4, 6], False),
        ("$.n", {"exists": True}, True), ("$.n", {"exists": False}, False),
        ("$.gone", {"exists": True}, False), ("$.gone", {"exists": False}, True),
        ("$.gone", {"not": 5}, False), ("$.yes", True, True), ("$.yes", 1, False),
        ("$.yes", {"ge": 1}, False), ("$.none", {"exists": True}, True), ("$.name", "prod-?", True),
        ("$.name", "prod", False), ("$.name", ["x", "prod*"], True), ("$.list[0].name", "a", True),
        ("$.list[1].name", "a", False), ("$.list[2].name", {"exists": True}, False),
        ("$.list[*].name", "b", True), ("$.list[*].name", "c", False),
        ("$.list.name", {"exists": True}, False), ("$.n[0]", {"exists": True}, False),
        ("$.n[*]", {"exists": True}, False), ("$.name[*]", {"exists": True}, False), ("map[0]", 2, False),
        ('$["odd key"].x', 1.5, True), ("$['odd key'][*]", 1.5, True), ("odd key.x", {"lt": 2}, True),
    ],
)  # fmt: skip
def test_a_condition_fits_what_a_path_leads_to(path, wanted, fits):
    conditions = (Condition(parse_path(path), wanted),)
    assert matches(rule(conditions=conditions), facts(details=DETAILS)) is fits


def test_all_conditions_of_a_rule_must_hold():
    both = (Condition(("n",), 5), Condition(("name",), "test"))
    assert not matches(rule(conditions=both), facts(details=DETAILS))
    assert matches(rule(conditions=both[:1]), facts(details=DETAILS))


@pytest.mark.parametrize(
    ("more", "fits"),
    [
        ({}, True), ({"actions": ("deploy",)}, True), ({"actions": ("x", "dep*")}, True),
        ({"actions": ("x",)}, False), ({"principals": ("agent",)}, True), ({"principals": ("other",)}, False),
        ({"requesters": ("bot",)}, True), ({"requesters": ("agent",)}, False), ({"sessions": ("s*",)}, True),
        ({"sessions": ("t*",)}, False),
    ],
)  # fmt: skip
def test_a_rule_fits_by_each_name(more, fits):
    assert matches(rule(**more), facts(requester="bot", principal="agent", session="s1")) is fits


def test_who_a_plan_lets_decide():
    policy = ConfirmPolicy(groups={"ops": ("ben",)}, away={"cat": "dan", "eve": ""})
    plan = ApprovalPlan(approvers=("ann", "group:ops", "group:none", "cat", "eve"))
    names = ("ann", "ben", "cat", "dan", "eve", "ops")
    assert [name for name in names if policy.may_approve(plan, name)] == ["ann", "ben", "dan"]
    assert policy.may_approve(ApprovalPlan(), "anybody")


def test_a_high_risk_action_is_asked_about_whatever_allows_it():
    risky = sorted(HIGH_RISK_ACTIONS)[0]
    allow = rule(name="yes", effect="allow")
    judged = ConfirmPolicy(rules=(allow,)).judge(facts(risky))
    assert judged.effect == "ask"
    assert judged.why == "rule 'yes' would allow it, but it is a high-risk action"
    asks = rule(name="asks", effect="ask", timeout_s=60, max_timeout_s=120)
    judged = ConfirmPolicy(rules=(allow, asks)).judge(facts(risky))
    assert (judged.effect, judged.rule, judged.why) == ("ask", "asks", "rule 'asks' says ask")
    assert (judged.timeout_s, judged.max_timeout_s) == (60, 120)
    judged = ConfirmPolicy(rules=(rule(actions=("other",)),)).judge(facts(risky))
    assert judged.why == "no rule matches, so a person is asked" == ConfirmPolicy().judge(facts()).why


def test_rules_that_allow_what_always_needs_a_person_are_named():
    first, second = sorted(HIGH_RISK_ACTIONS)[:2]
    named = [
        rule(name="none", effect="allow", actions=("read_*",)),
        rule(name="denies", actions=(first,)),
        rule(name="one", effect="allow", actions=(first,)),
        rule(name="two", effect="allow", actions=(second, first)),
        rule(name="mixed", effect="allow", actions=(first, "read")),
        rule(name="all", effect="allow"),
    ]
    assert find_ineffective_rules(ConfirmPolicy(rules=tuple(named))) == [
        f"rule 'one' has no effect: {first} always needs a person",
        f"rule 'two' has no effect: {first}, {second} always need a person",
        f"rule 'mixed' has no effect on {first}, which always needs a person",
        "rule 'all' has no effect on high-risk actions, which always need a person",
    ]


def test_rules_that_too_few_people_can_approve_are_named():
    groups = {"ops": ("ann",), "both": ("ann", "bob"), "company": ("ann", "oidc:all"), "none": ()}

    def asks(name: str, quorum: str | int, *approvers: str, effect: Effect = "ask") -> ConfirmRule:
        plan = ApprovalPlan(quorum=parse_quorum(quorum), approvers=approvers)
        return rule(name=name, effect=effect, plan=plan)

    named = [
        asks("fits", "1 of ops and 1 of both"), asks("anybody", 3),
        asks("one of two", "2 of ops or 2 of both"), asks("company", "5 of company"),
        asks("denied", "2 of ops", effect="deny"), asks("approver", 1, "ann"), asks("group", 2, "group:both"),
        asks("too many", "2 of ops"), asks("both jobs", "1 of ops and 2 of both"),
        asks("two approvers", 3, "ann", "bob"), asks("other approver", "1 of ops", "bob"),
        asks("empty", "1 of none"), asks("small group", 3, "group:both"),
    ]  # fmt: skip
    assert find_unreachable_quorums(ConfirmPolicy(rules=tuple(named), groups=groups)) == [
        "rule 'too many' can never be approved: it lacks 1 of ops",
        "rule 'both jobs' can never be approved: it lacks 1 of both",
        "rule 'two approvers' can never be approved: it lacks 1 of anyone",
        "rule 'other approver' can never be approved: it lacks 1 of ops",
        "rule 'empty' can never be approved: it lacks 1 of none",
        "rule 'small group' can never be approved: it lacks 1 of anyone",
    ]
