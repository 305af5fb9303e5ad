"""What each call on a request comes to: the kind, the line for a person, and what the log has of it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.confirm.people import Desk
from tests.confirm.running import ManualClock
from whet_confirm import decide
from whet_confirm.records import Caller, ConfirmRequest, RequestOutcome, Verdict

RULES = """
groups = {ops = ["ann", "ben"]}
rules = [
  {name = "two", action = "two", effect = "ask", quorum = "2 of ops", deny_threshold = 2},
  {name = "named", action = "named", effect = "ask", approvers = ["ann"]},
  {name = "web", action = "web", effect = "ask", web_only = true},
  {name = "slow", action = "slow", effect = "ask", min_review_s = 30},
]
"""


class People(Desk):
    """The service with a clock for tests, an agent and three people who may decide."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RULES)
        self.clock = ManualClock()
        self.clock.wall_s = 2_000_000_000.0
        self.service.timeline = self.clock.timeline()
        self.agent = self.who(self.token("agent", "submit"))
        self.other = self.who(self.token("other", "submit"))
        self.ann, self.ben, self.cat = (self.who(self.token(name)) for name in ("ann", "ben", "cat"))

    async def vote(
        self, request: ConfirmRequest, who: Caller, verdict: Verdict = "approve", **more: Any
    ) -> tuple[str, str]:
        given = {"digest": request.digest, **more}
        return said(await self.service.decide(decide.DecisionInput(request.id, verdict, **given), who))

    def noted(self, request: ConfirmRequest, kind: str) -> list[Any]:
        events = self.service.log.history(request_id=request.id)
        return [json.loads(event.data) for event in events if event.kind == kind]


def said(outcome: RequestOutcome) -> tuple[str, str]:
    return outcome.kind, outcome.message


@pytest.fixture
def people(tmp_path):
    with closing(People(tmp_path)) as people:
        yield people


GONE = ("not_found", "there is no such request")


async def test_one_yes_or_no_settles_what_needs_no_more(people):
    one = await people.submit("plain")
    assert await people.vote(one, people.ann, digest="0" * 64) == (
        "changed",
        "the request is not what you looked at: load it again",
    )
    assert people.noted(one, "digest_mismatch") == [{"given": "0" * 64}]
    assert await people.vote(one, people.ann, digest="") == ("decided", "approved")
    for who in (people.ann, people.ben):
        assert await people.vote(one, who) == ("already_decided", "already approved by ann")
    two = await people.submit("plain")
    assert await people.vote(two, people.ben, "deny", reason="so") == ("decided", "denied")
    stored = people.service.get(two.id)
    assert stored is not None
    assert (stored.status, stored.resolved_by, stored.reason) == ("denied", "ben", "so")
    late = await people.submit("plain")
    people.clock.pass_by(late.timeout_seconds)
    assert await people.vote(late, people.ann) == ("late", "too late: it ran out before anybody decided")
    assert await people.vote(msgspec.structs.replace(one, id="r" * 22), people.ann) == GONE


async def test_rules_say_who_counts_how_many_and_where(people):
    two = await people.submit("two")
    others = "rule 'two' lets others decide this: 2 of ops"
    assert await people.vote(two, people.cat) == ("not_allowed", others)
    assert people.noted(two, "refused") == [{"why": "not_allowed"}]
    first, second = (f"it takes 2 of ops; missing: {count} of ops to approve" for count in (1, 2))
    assert await people.vote(two, people.ann) == ("voted", f"counted; {first}, 2 to deny")
    assert await people.vote(two, people.ann) == ("voted", f"already counted; {first}, 2 to deny")
    assert await people.vote(two, people.ann, "deny") == ("voted", f"counted; {second}, 1 to deny")
    assert await people.vote(two, people.ben) == ("voted", f"counted; {first}, 1 to deny")
    assert await people.vote(two, people.ann) == ("decided", "approved")
    stored = people.service.get(two.id)
    assert stored is not None and {*stored.resolved_by.split(", ")} == {"ann", "ben"}
    denied = await people.submit("two")
    await people.vote(denied, people.ann, "deny")
    assert await people.vote(denied, people.ben, "deny") == ("decided", "denied")
    named = await people.submit("named")
    others = "rule 'named' lets others decide this: 1 of anyone"
    assert await people.vote(named, people.ben) == ("not_allowed", others)
    assert await people.vote(named, people.ann) == ("decided", "approved")
    web = await people.submit("web")
    there = "rule 'web' wants this approved on the web page"
    assert await people.vote(web, people.ann) == ("not_allowed", there)
    assert await people.vote(web, people.ann, via_web=True) == ("decided", "approved")
    web = await people.submit("web")
    assert await people.vote(web, people.ann, "deny") == ("decided", "denied")


async def test_a_new_policy_holds_for_what_is_pending(people):

    def write(old: str, new: str) -> None:
        assert old in RULES
        (people.folder / "policy.toml").write_text(RULES.replace(old, new))
        assert people.service.policy_file.reload()

    two = await people.submit("two")
    counted = "counted; it takes 2 of {0}; missing: 1 of {0} to approve, 2 to deny"
    assert await people.vote(two, people.ann) == ("voted", counted.format("ops"))
    write('name = "named"', 'name = "renamed"')  # another rule: the votes stay
    assert await people.vote(two, people.ben) == ("decided", "approved")
    assert people.noted(two, "replanned") == []
    write("", "")
    other = await people.submit("two")
    await people.vote(other, people.ann)
    write('quorum = "2 of ops"', "quorum = 2")
    assert await people.vote(other, people.cat) == ("voted", counted.format("anyone"))
    version = people.service.policy_file.policy.version
    assert [one["policy_version"] for one in people.noted(other, "replanned")] == [version]
    write('action = "two", effect = "ask"', 'action = "two", effect = "deny"')
    refused = ("already_decided", "the policy was changed: rule 'two' says deny")
    assert await people.vote(other, people.ann) == refused
    stored = people.service.get(other.id)
    assert stored is not None and (stored.status, stored.resolved_by) == ("denied", "policy:two")
    write('action = "named", effect = "ask"', 'action = "named", effect = "allow"')
    named = await people.submit("plain")
    write("rules = [", 'rules = [{action = "plain", effect = "allow"},')
    assert await people.vote(named, people.cat) == ("decided", "approved")


async def test_a_review_takes_its_time_from_the_first_look(people):
    slow = await people.submit("slow")
    assert await people.vote(slow, people.ann) == ("too_early", "look at it for 30 s first; 30 s to go")
    people.clock.pass_by(10)
    outcome = await people.decide(slow, people.ann, "approve")
    assert said(outcome) == ("too_early", "look at it for 30 s first; 20 s to go")
    assert outcome.retry_after_s == pytest.approx(20)
    assert await people.vote(slow, people.ben) == ("too_early", "look at it for 30 s first; 30 s to go")
    people.clock.pass_by(20)
    assert await people.vote(slow, people.ann) == ("decided", "approved")
    quick = await people.submit("slow")
    assert await people.vote(quick, people.ann, "deny") == ("decided", "denied")


async def test_together_with_others_one_is_decided_that_was_looked_at(people):
    one = await people.submit("plain")
    unseen = ("too_early", "look at it first: you have not opened it as it is now")
    assert await people.vote(one, people.ann, is_one_of_many=True) == unseen
    await people.service.mark_viewed(one, people.ben)
    assert await people.vote(one, people.ann, is_one_of_many=True) == unseen
    await people.service.mark_viewed(one, people.ann)
    assert await people.vote(one, people.ann, is_one_of_many=True) == ("decided", "approved")
    risky = await people.submit("wipe_database")
    await people.service.mark_viewed(risky, people.ann)
    alone = ("not_allowed", "this one is decided by itself, not together with others")
    assert await people.vote(risky, people.ann, is_one_of_many=True) == alone


async def test_only_its_submitter_or_an_admin_takes_a_request_back(people):
    one = await people.submit("plain")
    for who in (people.other, people.ann):
        assert said(await people.service.cancel(one.id, who)) == GONE
    assert said(await people.service.cancel(one.id, people.agent, "so")) == ("decided", "cancelled")
    refused = ("already_decided", "already cancelled by agent")
    assert said(await people.service.cancel(one.id, people.agent)) == refused
    root = people.who(people.token("root", "admin"))
    two = await people.submit("plain")
    assert said(await people.service.cancel(two.id, root)) == ("decided", "cancelled")


async def test_an_approval_is_used_up_once_and_its_run_reported_once(people):
    service, agent = people.service, people.agent
    one = await people.submit("plain")
    pending = ("already_decided", "it is pending, not approved")
    assert said(await service.consume(one.id, agent, one.digest)) == pending
    refused = ("already_decided", "report comes after consume")
    assert said(await service.report(one.id, agent, "executed")) == refused
    await people.vote(one, people.ann)
    assert said(await service.consume(one.id, people.other, one.digest)) == GONE
    refused = ("changed", "this digest is not what was approved")
    assert said(await service.consume(one.id, agent, "0" * 64)) == refused
    used = ("decided", "the approval is used up now: run the action once")
    assert said(await service.consume(one.id, agent, one.digest, "k1")) == used
    again = ("decided", "this key has used it up before")
    assert said(await service.consume(one.id, agent, one.digest, "k1")) == again
    for key in ("k2", ""):
        assert said(await service.consume(one.id, agent, one.digest, key)) == (
            "already_decided",
            "the approval was used before",
        )
    assert people.noted(one, "consume_refused") == [
        {"why": "digest", "given": "0" * 64},
        {"why": "used up"},
        {"why": "used up"},
    ]
    assert said(await service.report(one.id, people.other, "executed")) == GONE
    assert said(await service.report(one.id, agent, "failed", "so")) == ("decided", "failed")
    refused = ("already_decided", "reported before: failed")
    assert said(await service.report(one.id, agent, "executed")) == refused
    (noted,) = people.noted(one, "executed")
    assert (noted["result"], noted["note"]) == ("failed", "so")
    old = await people.submit("plain")
    await people.vote(old, people.ann)
    people.clock.pass_by(service.policy_file.policy.approval_valid_s + 1)
    too_old = ("late", "the approval is too old to be used: ask again")
    assert said(await service.consume(old.id, agent, old.digest)) == too_old
    fresh = await people.submit("plain")
    await people.vote(fresh, people.ann)
    people.clock.pass_by(service.policy_file.policy.approval_valid_s)
    assert said(await service.consume(fresh.id, agent, fresh.digest)) == used


async def test_what_runs_out_is_written_down_as_many_as_are_asked_for(people):
    requests = [await people.submit("plain") for _ in range(3)]
    assert await people.service.change(lambda tx: decide.expire(tx, 2)) == 0
    people.clock.pass_by(requests[0].timeout_seconds)
    assert await people.service.change(lambda tx: decide.expire(tx, 2)) == 2
    assert await people.service.change(lambda tx: decide.expire(tx, 2)) == 1
    more = [await people.submit("plain") for _ in range(3)]
    assert await people.service.change(lambda tx: decide.expire_all(tx, 2)) == 2
    assert await people.service.change(lambda tx: decide.expire_all(tx, 2)) == 1
    ended = [people.service.get(one.id) for one in (*requests, *more)]
    assert {(one.status, one.resolved_by) for one in ended if one} == {("expired", "system:timeout")}
    reasons = [one.reason for one in ended if one]
    assert reasons == [""] * 3 + ["the service's clock was corrected"] * 3
