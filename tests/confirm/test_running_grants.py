"""Approvals for a while: what a press may let pass, on every face, and what it never lets pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from tests.confirm.people import Desk, channel, off
from tests.confirm.running import ManualClock, Running, field_of
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from tests.support import each
from whet.contract.errors import ConfigError
from whet_confirm.address_hosts import shared_host
from whet_confirm.commands.confirm import confirm
from whet_confirm.commands.risk import read_risk
from whet_confirm.policy_file import parse_policy

POLICY = """
groups = {ops = ["ann", "bob"]}
rules = [
  {action=["tool:*", "wipe_database"], effect="ask", grants=["session", "hour", "host", "times"], \
    grant_max_s=7200, grant_max_uses=3},
  {action = "two", effect = "ask", quorum = "2 of ops", grants = ["hour"]},
  {action = "once", effect = "ask"},
]
"""
FETCH = {"action": "tool:fetch", "details": {"url": "https://example.org/a"}, "session_key": "s1"}


class Rig:
    """A service with a policy, a clock that a test moves, and an agent."""

    def __init__(self, server: Running, clock: ManualClock, policy: Path) -> None:
        self.server, self.clock, self.policy = server, clock, policy
        self.agent = server.client("submit", "agent")
        self.ann = server.client("approve", "ann")

    def ask(self, **fields: Any) -> dict[str, Any]:
        answer = self.agent.post("/confirm", json={"description": "d", **FETCH, **fields})
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def status(self, **fields: Any) -> str:
        return str(self.ask(**fields)["status"])

    def approve(self, request_id: str, grant: str = "") -> httpx2.Response:
        return self.ann.post(f"/confirm/{request_id}/approve", json={"grant": grant})

    def grant(self, kind: str, **fields: Any) -> int:
        answer = self.approve(self.ask(**fields)["id"], kind)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["grant_id"])

    def offers(self, **fields: Any) -> list[str]:
        asked = self.ask(**fields)
        record = self.ann.get(f"/confirm/{asked['id']}").json()
        return [offer["kind"] for offer in record.get("grants", [])]


@pytest.fixture
def rig(tmp_path):
    policy, clock = tmp_path / "policy.toml", ManualClock()
    policy.write_text(POLICY)
    with Running(tmp_path, rate=1000, policy=policy, clock=clock) as server:
        server.service.risks.reader = read_risk
        yield Rig(server, clock, policy)


def test_an_hour_covers_the_action_of_that_principal_for_an_hour(rig):
    number = rig.grant("hour")
    used = rig.ask(details={"url": "https://other.example/b"}, session_key="s2")
    assert used["status"] == "auto_approved"
    record = rig.ann.get(f"/confirm/{used['id']}").json()
    assert record["resolved_by"] == f"whitelist:{number}"
    assert record["reason"] == f"grant {number} lets it pass, use 1"
    assert rig.status(action="tool:other") == "pending"
    other = rig.server.client("submit", "other").post("/confirm", json={"description": "d", **FETCH})
    assert other.json()["status"] == "pending"
    rig.clock.pass_by(3601)
    assert rig.status() == "pending"


def test_a_session_a_host_and_a_number_of_times_are_limits(rig):
    rig.grant("session")
    assert rig.status() == "auto_approved" and rig.status(session_key="s2") == "pending"
    rig.clock.pass_by(7201)
    rig.grant("host")
    for url, status in (
        ("https://example.org/z?q=1", "auto_approved"),
        ("http://example.org/z", "pending"),
        ("https://example.org.evil.example/", "pending"),
        ("https://example.org@evil.example/", "pending"),
        ("https://evil.example/?u=https://example.org/", "pending"),
    ):
        assert rig.status(details={"url": url}) == status, url
    assert rig.status(details={"url": "https://example.org/", "to": "https://evil.example"}) == "pending"
    rig.clock.pass_by(7201)
    rig.grant("times:2")
    assert [rig.status() for _ in range(3)] == ["auto_approved", "auto_approved", "pending"]


def test_a_host_grant_covers_only_calls_that_differ_behind_the_host(rig):
    url, method = "https://example.org/a", {"method": "GET"}
    rig.grant("host", details={"url": url, "ref": url, "options": [method, 1]})

    def status(**changed: Any) -> str:
        return rig.status(details={"url": url, "ref": url, "options": [method, 1]} | changed)

    assert status(url="https://example.org/b?page=2", ref="https://EXAMPLE.org/") == "auto_approved"
    for address in ("https:evil.example/x", "https:/evil.example", "//evil.example", "evil.example/x"):
        assert status(url=address) == "pending", address
    for address in ("https:/example.org/x", "https://example.org/?u=https%253A%252F%252Fevil.example"):
        assert status(url=address) == "pending", address
    for changed in ({"proxy": "evil.example:80"}, {"to": "ann@evil.example:/x"}, {"https://example.org/": 1}):
        assert status(**changed) == "pending", changed
    for options in ([{"method": "DELETE"}, 1], [method, True], [method], [method, 1, 1], {"method": "GET"}):
        assert status(options=options) == "pending", options
    assert rig.status(details={"url": url}) == "pending"


def test_what_a_rule_or_the_command_does_not_allow_is_not_granted(rig):
    assert rig.offers() == ["session", "hour", "host", "times"]
    assert rig.offers(session_key="", details={"command": "ls"}) == ["hour", "times"]
    assert rig.offers(action="once") == rig.offers(action="two") == rig.offers(action="wipe_database") == []
    assert rig.offers(action="tool:Bash", details={"command": "rm -rf /"}) == []
    for fields, kind in (
        ({"action": "once"}, "hour"),
        ({"action": "two"}, "hour"),
        ({"action": "wipe_database"}, "hour"),
        ({"action": "tool:Bash", "details": {"command": "rm -rf /"}}, "hour"),
        ({}, "times:4"),
        ({}, "times:0"),
        ({}, "times:\u0663"),  # an Arabic 3
        ({}, "times:"),
        ({}, "hour:"),
        ({}, "for ever"),
    ):
        asked = rig.ask(**fields)
        answer = rig.approve(asked["id"], kind)
        assert answer.status_code == 403 and "allows no grant" in answer.text, (fields, kind)
        assert rig.server.stored(asked["id"]).is_pending
    assert rig.ann.get("/whitelist").json()["entries"] == []


def test_a_dangerous_command_is_asked_about_under_a_running_grant(rig):
    rig.grant("hour", action="tool:Bash", details={"command": "ls"})
    assert rig.status(action="tool:Bash", details={"command": "ls -l"}) == "auto_approved"
    assert rig.status(action="tool:Bash", details={"command": "rm -rf /"}) == "pending"


@pytest.mark.slow
def test_a_policy_that_allows_less_ends_a_grant(rig):
    number, other = rig.grant("hour"), rig.grant("times", action="tool:other")
    less = POLICY.replace('"session", "hour", "host", "times"', '"session", "times"', 1)
    for text in (less, POLICY):  # it does not run again when the rule allows it again
        rig.policy.write_text(text)
        version = parse_policy(text, rig.policy).version
        in_force = "SELECT 1 FROM facts WHERE name = 'policy_version' AND value = ?"
        while not rig.server.rows(in_force, version):
            rig.agent.get("/health")
        entries = rig.ann.get("/whitelist").json()["entries"]
        assert [entry["id"] for entry in entries if entry["is_running"]] == [other]
    ended = [e for e in rig.server.service.log.history(after_id=0) if e.kind == "whitelist_removed"]
    why = "the policy does not allow it any more"
    (event,) = ended
    assert (event.principal, json.loads(event.data)) == ("system:policy", {"id": number, "why": why})


def test_a_start_with_a_policy_that_allows_less_ends_a_grant(tmp_path):
    policy = tmp_path / "policy.toml"
    for text in (POLICY, "", POLICY):
        policy.write_text(text)
        with Running(tmp_path, policy=policy) as server:
            entries = server.client("approve", "ann").get("/whitelist").json()["entries"]
            if not entries:
                asked = server.client("submit", "agent").post("/confirm", json={"description": "d", **FETCH})
                path = f"/confirm/{asked.json()['id']}/approve"
                assert server.client("approve", "bob").post(path, json={"grant": "hour"}).status_code == 200
            else:
                assert [entry["is_running"] for entry in entries] == [False]


def test_each_use_is_in_the_log_and_any_approver_stops_it(rig):
    assert rig.approve(rig.ask()["id"]).json().get("grant_id") is None
    rig.grant("times:2", action="tool:many")
    rig.grant("times:1", action="tool:other")
    history = rig.server.service.log.history(after_id=0)
    granted = [json.loads(event.data)["for"] for event in history if event.kind == "granted"]
    assert granted == ["2 more times within 2 hours", "once more within 2 hours"]
    begin, number = history[-1].id, rig.grant("hour")
    for _ in range(2):
        rig.ask()
    bob = rig.server.client("approve", "bob")
    entry = next(row for row in bob.get("/whitelist").json()["entries"] if row["id"] == number)
    assert (entry["id"], entry["kind"], entry["uses"], entry["created_by"]) == (number, "hour", 2, "ann")
    assert "whet_confirm_running_grants 3\n" in bob.get("/metrics").text
    assert rig.agent.delete(f"/whitelist/{number}").status_code == 403
    assert bob.delete(f"/whitelist/{number}").status_code == 200
    assert bob.delete(f"/whitelist/{number}").status_code == 404
    assert rig.status() == "pending"
    events = rig.server.service.log.history(after_id=begin)
    steps = [(event.kind, event.principal) for event in events]
    used = ("decided", f"whitelist:{number}")
    expected = [("decided", "ann"), ("granted", "ann"), used, used, ("whitelist_removed", "bob")]
    assert [step for step in steps if step[0] in ("decided", "granted", "whitelist_removed")] == expected


def test_the_page_offers_shows_and_stops_a_grant(rig):
    page = rig.server.signed_in("carol")
    asked = rig.ask()
    text = page.get(f"/r/{asked['id']}").text
    assert '<option value="hour">approve this and others for 1 hour</option>' in text
    form = {"csrf": field_of(text, "csrf"), "digest": asked["digest"], "verdict": "approve", "grant": "times"}
    assert page.post(f"/r/{asked['id']}/decide", data=form).status_code == 303
    home = page.get("/").text
    assert "Running grants" in home and "0 of 3 times" in home and "/stop" in home
    looker = rig.server.signed_in("dora", "audit")
    assert "Running grants" in looker.get("/").text and "/stop" not in looker.get("/").text
    stop = {"csrf": field_of(home, "csrf")}
    assert page.post("/grants/1/stop", data=stop).status_code == 303
    assert "Running grants" not in page.get("/").text and rig.status() == "pending"


def test_the_command_line_gives_lists_and_stops_a_grant(rig):
    asked, run = rig.ask(), CliRunner(env=rig.server.access("approve", "eve")).invoke
    shown = run(confirm, ["show", asked["id"]]).output
    assert "may pass     others at https://example.org for 2 hours (--for host)" in shown
    done = run(confirm, ["approve", asked["id"], "--digest", asked["digest"], "--for", "times:2"])
    assert "Grant 1 runs. Stop it: whet confirm grants --stop 1" in done.output
    rig.ask()
    listed = run(confirm, ["grants"]).output
    assert "tool:fetch" in listed and "used 1 of 2" in listed
    assert run(confirm, ["grants", "--stop", "1"]).output == "Grant 1 was stopped.\n"
    assert run(confirm, ["grants"]).output.strip() == "Nothing passes for a while."
    assert rig.status() == "pending"


@pytest.mark.slow
async def test_a_chat_gives_and_stops_a_grant_by_buttons(tmp_path):
    desk = Desk(tmp_path, POLICY)
    desk.token("ann")
    with TelegramServer() as server:
        file = "[people.ann]\ntelegram = 7\n" + channel("telegram", chat=-1001, base_url=server.url)
        async with desk.notifying(file, {"TELEGRAM_BOT_TOKEN": TOKEN}):
            details = {"url": "https://example.org/"}
            request = await desk.submit("tool:fetch", details=details, session_key="s")
            await off(server.message)
            rows = server.messages[1]["reply_markup"]["inline_keyboard"]
            labels = [button["text"] for row in rows for button in row]
            assert labels[:5] == ["✓ Approve", "✓ this session", "✓ 1 hour", "✓ this host", "✓ 3 times"]
            assert "others of this action and token may pass: in this session" in server.messages[1]["text"]
            popup = await off(server.answer, server.press(1, "1 hour"))
            assert popup.endswith(" Grant 1 runs.")
            passed = await desk.submit("tool:fetch", details={"url": "https://other.example/"})
            assert passed.status == "auto_approved"
            await off(server.wait, lambda: "Grant 1 runs" in server.messages[1]["text"], "the edited message")
            assert await off(server.answer, server.press(1, "Stop the grant")) == "Grant 1 was stopped."
            assert (await desk.submit("tool:fetch")).status == "pending"
            await off(server.wait, lambda: "Grant 1" not in server.messages[1]["text"], "the ended grant")
            assert "granted" in desk.events(request)
    desk.close()


@each(
    ("details", "host"),
    [
        ({}, ""),
        ({"url": "https://a.example/x"}, "https://a.example"),
        ({"url": "https://A.example:8443/x"}, "https://a.example:8443"),
        ({"a": ["https://a.example/1", "https://a.example/2"], "n": 1}, "https://a.example"),
        ({"a": "https://a.example", "b": {"c": "https://b.example"}}, ""),
        ({"command": "curl https://a.example/x"}, ""),
        ({"url": "https://user@a.example/"}, ""),
        ({"url": "https://a.example\\@b.example/"}, ""),
        ({"url": "ftp://a.example/"}, ""),
        ({"url": "https://a.example/?next=https://b.example/"}, ""),
        ({"url": "https://exаmple.org/"}, ""),  # a letter of another script
        ({"https://b.example": 1, "url": "https://a.example/"}, ""),
        ({"url": "https://[::1]:80/"}, "https://[::1]:80"),
        ({"url": "https://["}, ""),
    ],
)
def test_one_host_is_what_all_addresses_have(details, host):
    assert shared_host(details) == host


@each(
    "line",
    [
        'grants = ["ever"]',
        "grant_max_s = 10",
        "grant_max_s = 90000",
        "grant_max_uses = 0",
        "grant_max_uses = 1001",
    ],
)
def test_a_rule_with_a_wrong_limit_is_refused(line):
    with pytest.raises(ConfigError):
        parse_policy(f'[[rules]]\naction = "*"\neffect = "ask"\n{line}\n', Path("policy.toml"))
