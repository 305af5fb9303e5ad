from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.confirm.running import SUBMIT, ManualClock, Running
from tests.support import each
from whet.contract.errors import ConfigError
from whet_confirm.names import action_key, is_high_risk
from whet_confirm.policy import Facts, parse_path
from whet_confirm.policy_file import PolicyFile, load_policy, parse_policy
from whet_confirm.quorum import describe

NOON_MONDAY = 1_789_992_000.0  # 2026-09-21 12:00 UTC


def policy(text, tmp_path, name="p.toml"):
    path = tmp_path / name
    path.write_text(text)
    return load_policy(path)


def facts(
    action="deploy", details=None, *, requester="agent", principal="agent", session="", now_s=NOON_MONDAY
):
    key = action_key(action)
    return Facts(key, principal, requester, session, details or {}, is_high_risk(key), now_s, action)


def test_deny_wins_over_ask_and_ask_over_allow(tmp_path):
    rules = policy(
        '[[rules]]\nname="a"\naction="*"\neffect="allow"\n'
        '[[rules]]\nname="b"\naction="deploy_*"\neffect="ask"\n'
        '[[rules]]\nname="c"\naction="deploy_x"\neffect="deny"\n',
        tmp_path,
    )
    judgements = [rules.judge(facts(name)) for name in ("read", "deploy_y", "DEPLOY_X")]
    assert [(item.effect, item.rule) for item in judgements] == [("allow", "a"), ("ask", "b"), ("deny", "c")]


RESPELT = [
    "{0}_{1}\ufe0f{2}",  # a variation selector, and others that Unicode ignores by default
    "{0}\u034f_{1}{2}",
    "{0}\u115f_{1}{2}",
    "{0}_\u3164{1}{2}",
    "{0}_{1}\u180b{2}",
    "{0}_\U000e0061{1}{2}",
    "{0}__{1}{2}",
    "{0} - {1}{2}",
    "{0}.{1}{2}",
]
OTHERWISE = [
    "DeployProduction",
    "deployProduction",
    "deployproduction",
    "depl\u043ey_production",  # Cyrillic
    "d\u00e9ploy_production",
    "\u1d05eploy_production",  # a small capital
]


@pytest.mark.parametrize(
    "name", [*(n.format("deploy", "prod", "uction") for n in RESPELT), *OTHERWISE], ids=ascii
)
def test_high_risk_actions_need_a_person_in_every_spelling(tmp_path, name):
    assert policy('[[rules]]\naction="*"\neffect="allow"\n', tmp_path).judge(facts(name)).effect == "ask"


@pytest.mark.fast_rows("pay_*-", "PayOut-'pay_o")
@pytest.mark.parametrize(
    "name",
    [
        *(n.format("pay", "o", "ut") for n in RESPELT),
        "PayOut",
        "pay\u005fOut",
        "p\u0430y_out",
        "\u1d18ay_out",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("pattern", ["pay_out", "pay_*", "PayOut", "pay-[a-o]*"])
def test_a_rule_that_denies_holds_for_every_spelling(tmp_path, name, pattern):
    text = f'[[rules]]\naction="*"\neffect="allow"\n[[rules]]\naction="{pattern}"\neffect="deny"\n'
    rules = policy(text, tmp_path)
    assert rules.judge(facts(name)).effect == "deny"
    assert rules.judge(facts("payout")).effect == ("deny" if "*" not in pattern else "allow")
    assert rules.judge(facts("payee_list")).effect == "allow"


def test_a_rule_that_allows_holds_for_the_name_alone(tmp_path):
    rules = policy('[[rules]]\naction=["read_log", "list_*", "\u0447итать_log"]\neffect="allow"\n', tmp_path)
    names = ("read_log", "Read_Log", "list_all", "\u0447итать_log")
    effects = {name: rules.judge(facts(name)).effect for name in names}
    assert set(effects.values()) == {"allow"}, effects
    others = ("readlog", "ReadLog", "read-log", "re\u0430d_log", "list_\u0430ll", "listall")
    assert {rules.judge(facts(name)).effect for name in others} == {"ask"}


def test_yaml_says_the_same(tmp_path):
    text = "rules:\n  - {action: 'deploy_*', effect: ask, quorum: 2 of ops}\ngroups: {ops: [alice, bob]}\n"
    judgement = policy(text, tmp_path, "p.yaml").judge(facts("deploy_x"))
    assert describe(judgement.plan.quorum) == "2 of ops"


@pytest.mark.parametrize(
    ("line", "times", "fits"),
    [
        ('hours="09:00-18:00"', ("09:00", "12:00", "17:59"), True),
        ('hours="09:00-18:00"', ("08:59", "18:00"), False),
        ('hours="22:00-06:00"', ("22:00", "23:59", "00:00", "05:59"), True),
        ('hours="22:00-06:00"', ("21:59", "06:00"), False),
        ('hours="00:00-24:00"', ("00:00", "23:59"), True),
        ('hours="12:00-12:01"\ndays=["mon"]', ("12:00",), True),
        ('hours="13:00-18:00"\ndays=["mon"]', ("12:00",), False),
        ('hours="09:00-18:00"\ndays=["tue"]', ("12:00",), False),
        ('days=["sun", "Monday"]', ("00:00", "23:59"), True),
        ('days=["tue"]', ("00:00", "23:59"), False),
        ('hours="00:00-24:00"\ndays=["tue"]', ("00:00", "12:00"), False),
        ('hours="10:00-10:00"', ("10:00",), False),
        ('hours="21:00-21:01"\ntimezone="Asia/Tokyo"', ("12:00",), True),
    ],
)
def test_time_of_day(tmp_path, line, times, fits):
    zone = "" if "timezone" in line else '\ntimezone="UTC"'
    rules = policy(f'[[rules]]\neffect="deny"\n{line}{zone}\n', tmp_path)
    for time in times:
        at_s = NOON_MONDAY + (int(time[:2]) - 12) * 3600 + int(time[3:]) * 60
        assert (rules.judge(facts(now_s=at_s)).effect == "deny") is fits, time


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("max_timeout_s = 30", True), ("max_timeout_s = 29", False), ("max_timeout_s = 604800", True),
        ("timeout_s = 30", True), ("timeout_s = 29", False),
        ("timeout_s = 3600", True), ("timeout_s = 3601", False),
        ("deny_threshold = 1", True), ("deny_threshold = 0", False),
        ("deny_threshold = 100", True), ("deny_threshold = 101", False),
        ("escalate_after = 0.01", True), ("escalate_after = 0.0", False),
        ("escalate_after = 0.99", True), ("escalate_after = 1.0", False),
        ("min_review_s = 0.0", True), ("min_review_s = -0.1", False),
        ("min_review_s = 3600.0", True), ("min_review_s = 3600.1", False),
        ('days = ["Sunday"]', True), ('days = ["mon", "noday"]', False),
        ('hours = "24:00-09:00"', False), ('hours = "09:00-18:60"', False),
        ('approvers = ["group:ops", "carol"]', True), ('approvers = ["group:nobody"]', False),
        ('escalate_to = "ops"', True), ('quorum = "1 of ops or 2"', True), ('quorum = "1 of x"', False),
        ('details = { a = { gt = 1.5, le = 3 } }', True), ('details = { a = { gt = true } }', False),
        ('details = { a = { ge = "x" } }', False), ('details = { a = {} }', False),
        ('details = { a = { not = "x" } }', True), ('details = { a = { not = { lt = "x" } } }', False),
        ('details = { a = ["x", { gt = 1 }] }', True), ('details = { a = ["x", { about = 1 }] }', False),
        ('details = { a = { exists = true } }', True), ('details = { a = { exists = "false" } }', False),
        ('details = { a = { exists = true, lt = 5 } }', False),
        ('details = { a = { not = { exists = true } } }', False),
        ('details = { "a[" = 1 }', False), ('details = { "$" = 1 }', False),
    ],
)  # fmt: skip
def test_what_a_rule_may_say(tmp_path, line, holds):
    text = f'[groups]\nops = ["ann"]\n[[rules]]\neffect = "ask"\n{line}\n'
    if holds:
        assert len(parse_policy(text, tmp_path / "p.toml").rules) == 1
    else:
        with pytest.raises(ConfigError, match=r"rule 1 \(rule 1\): "):
            parse_policy(text, tmp_path / "p.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[rules]]\neffect="permit"\n', "effect"),
        ('[[rules]]\neffekt="deny"\n', "effekt"),
        ("[[rules]\n", "Expected"),
        ('[[rules]]\neffect="ask"\nquorum="2 of nobody"\n', "nobody"),
        ('[[rules]]\neffect="ask"\nquorum="some"\n', "N of GROUP"),
        ('[[rules]]\neffect="ask"\ntimeout_s=7200\n', "timeout_s"),
        ('[[rules]]\neffect="ask"\nmax_timeout_s=604801\n', "7 days"),
        ('[[rules]]\neffect="ask"\nhours="9-18"\n', "09:00-18:00"),
        ('[[rules]]\neffect="ask"\ntimezone="Mars/Base"\n', "time zone"),
        ('[[rules]]\neffect="ask"\ndetails={"$.a"={about=3}}\n', "exists"),
        ('[[rules]]\neffect="ask"\ndetails={"$..a"=3}\n', "path"),
        ('[[rules]]\neffect="ask"\nescalate_to="x"\n', "group"),
    ],
)
def test_a_broken_file_says_where(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        parse_policy(text, tmp_path / "p.toml")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ('$.a["odd key"][0][*]', ("a", "odd key", 0, "*")),
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("$.items[12].name", ("items", 12, "name")),
        ("$['it is'].x", ("it is", "x")),
        ("[*]", ("*",)),
        ("[3]", (3,)),
        ("$.*", ("*",)),
        ("$[0]", (0,)),
        ("$['x'][\"y\"]", ("x", "y")),
    ],
)
def test_paths(text, steps):
    assert parse_path(text) == steps


@pytest.mark.parametrize("text", ["$.", "$..a", "a..b", "$.a[", "a[x]", "a[1", "a]", "$.a b[-1]"])
def test_what_is_no_path(text):
    with pytest.raises(ValueError, match="is not a path like"):
        parse_path(text)


@pytest.mark.parametrize("text", ["", "$"])
def test_a_path_names_something(text):
    with pytest.raises(ValueError, match=f"'{re.escape(text)}' names nothing"):
        parse_path(text)


def test_a_file_is_read_again_when_it_has_changed(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text('[[rules]]\naction="x"\neffect="deny"\n')
    file = PolicyFile(path)
    first = file.policy
    assert not file.reload() and file.policy is first
    path.write_text("[[rules]\n")
    assert not file.reload() and file.policy is first and "p.toml" in file.error
    path.unlink()
    assert not file.reload() and file.policy is first and "there is no policy file" in file.error
    path.write_text('[[rules]]\naction="x"\neffect="allow"\n')
    assert file.reload() and not file.error
    assert (first.judge(facts("x")).effect, file.policy.judge(facts("x")).effect) == ("deny", "allow")
    path.replace(tmp_path / "other.toml")
    path.write_text('[[rules]]\naction="x"\neffect="allow"\n')
    assert not file.reload(), "the same text is the same policy"
    assert not PolicyFile(None).reload()


RULES = """
groups = {ops = ["alice", "bob"], security = ["carol"]}
rules = [
  {name="prod", action="deploy", effect="ask", quorum="1 of ops and 1 of security", \
    deny_threshold=2, timeout_s=7200, max_timeout_s=86400},
  {name = "slow", action = "slow", effect = "ask", approvers = ["alice"], min_review_s = 5},
  {name = "never", action = "never", effect = "deny"},
  {name = "up", action = "up", effect = "ask", escalate_to = "security"},
]
"""


@pytest.fixture
def ruled(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(RULES)
    clock = ManualClock()
    with Running(tmp_path, policy=path, clock=clock) as server:
        yield server, path, clock


def test_quorum_over_http(ruled):
    server, _, _ = ruled
    agent = server.client("submit", "agent")
    alice, bob, carol, dave = (server.client("approve", name) for name in ("alice", "bob", "carol", "dave"))
    request = agent.post("/confirm", json={"action": "deploy", "description": "d"}).json()
    assert request["timeout_seconds"] == 7200
    path = f"/confirm/{request['id']}"
    assert dave.post(f"{path}/approve").status_code == 403
    first = alice.post(f"{path}/approve")
    assert first.status_code == 202 and first.json()["status"] == "pending" and first.json()["approvals"] == 1
    assert alice.post(f"{path}/approve").json()["approvals"] == 1
    assert bob.post(f"{path}/deny").status_code == 202
    done = carol.post(f"{path}/approve")
    assert done.status_code == 200 and done.json()["resolved_by"] == "alice, carol"
    second = agent.post("/confirm", json={"action": "deploy", "description": "d"}).json()
    assert bob.post(f"/confirm/{second['id']}/deny").status_code == 202
    assert carol.post(f"/confirm/{second['id']}/deny").json()["status"] == "denied"
    body = {"action": "deploy", "description": "d", "timeout_seconds": 90_000}
    long = agent.post("/confirm", json=body).json()
    assert long["timeout_seconds"] == 86_400


def test_review_time_and_named_approvers(ruled):
    server, _, clock = ruled
    agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
    bob = server.client("approve", "bob")
    request = agent.post("/confirm", json={"action": "slow", "description": "d"}).json()
    assert bob.post(request["approve_url"]).status_code == 403
    early = alice.post(request["approve_url"])
    assert early.status_code == 425 and early.headers["retry-after"] == "5"
    clock.pass_by(5)
    assert alice.post(request["approve_url"]).status_code == 200


def test_denied_by_policy_is_recorded(ruled):
    server, _, _ = ruled
    agent = server.client("submit", "agent")
    answer = agent.post("/confirm", json={"action": "never", "description": "d"})
    assert answer.status_code == 403 and answer.json()["status"] == "denied"
    assert agent.get(f"/confirm/{answer.json()['id']}").json()["resolved_by"] == "policy:never"


def test_nobody_answers_and_the_next_group_is_told_at_half_time(ruled):
    server, _, clock = ruled
    agent = server.client("submit", "agent")
    request = agent.post("/confirm", json={"action": "up", "description": "d", "timeout_seconds": 100}).json()
    clock.pass_by(49)
    server.run(_tick(server))
    assert not server.rows("SELECT 1 FROM events WHERE kind = 'escalated'")
    clock.pass_by(2)
    server.run(_tick(server))
    assert server.rows("SELECT request_id FROM events WHERE kind = 'escalated'") == [(request["id"],)]
    assert agent.get(f"/confirm/{request['id']}").json()["escalated_at"]


async def _tick(server):
    from whet_confirm.upkeep import Upkeep

    await Upkeep(server.service, None).tick()


def test_a_new_policy_holds_at_once_and_a_broken_one_not_at_all(ruled):
    server, path, _ = ruled
    agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
    request = agent.post("/confirm", json={"action": "deploy", "description": "d"}).json()
    alice.post(request["approve_url"])
    before = server.service.policy_file.policy.version
    path.write_text("[[rules]\n")
    server.run(_tick(server))
    assert server.service.policy_file.policy.version == before and server.service.policy_file.error
    assert "whet_confirm_policy_is_broken 1" in agent.get("/metrics").text
    path.write_text('[[rules]]\nname="two"\naction="deploy"\neffect="ask"\nquorum=2\n')
    server.run(_tick(server))
    after = server.service.policy_file.policy.version
    assert after != before and not server.service.policy_file.error
    # The plan changed, so the approval given under the old one is void.
    assert alice.post(request["approve_url"]).json()["approvals"] == 1
    assert server.client("approve", "bob").post(request["approve_url"]).status_code == 200
    assert agent.get(f"/confirm/{request['id']}").json()["policy_version"] == after
    kinds = [row[0] for row in server.rows("SELECT kind FROM events")]
    assert "policy_broken" in kinds and "policy_changed" in kinds and "replanned" in kinds


def test_whitelist_entries_end(server, agent, admin, clock):
    entry = {"action": "deploy", "principal": "agent", "session_key": "s1", "seconds": 60}
    added = admin.post("/whitelist", json=entry).json()
    assert agent.post("/confirm", json=SUBMIT).status_code == 202  # another session
    assert agent.post("/confirm", json=SUBMIT | {"session_key": "s1"}).status_code == 200
    clock.pass_by(61)
    assert agent.post("/confirm", json=SUBMIT | {"session_key": "s1"}).status_code == 202
    assert admin.delete(f"/whitelist/{added['id']}").status_code == 200
    assert admin.delete(f"/whitelist/{added['id']}").status_code == 404
    assert admin.post("/whitelist", json=entry | {"seconds": 90_000}).status_code == 400
    assert admin.post("/whitelist", json={"action": "a", "principal": "b"}).status_code == 400


@each("name", ["$.customer", "$.customer.name", "customer.name", "items[0]", "$", "", " "])
def test_a_redacted_name_that_would_match_no_field_is_refused(name):
    with pytest.raises(ConfigError, match="write the name alone"):
        parse_policy(f'redact = ["ok", "{name}"]\n', Path("policy.toml"))


def test_redacted_names_may_have_wildcards():
    names = ("customer", "*_iban", "api-ke?")
    assert parse_policy(f"redact = {list(names)}\n", Path("policy.toml")).redact == names
