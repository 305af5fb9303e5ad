"""The second factor: RFC 6238's codes, used once, slowed down, on the API, the page and from a chat."""

from __future__ import annotations

from base64 import b32decode
from typing import Any

import pytest

from tests.confirm.running import SUBMIT, ManualClock, Running, field_of
from whet_confirm import factors
from whet_confirm.commands.confirm import explain_failure
from whet_confirm.factors import STEP_S, code_at
from whet_confirm.ledger import Tx
from whet_confirm.notify.notice_text import build_notice
from whet_confirm.tickets import Failed

POLICY = '[[rules]]\nname = "twice"\naction = "deploy"\neffect = "ask"\nsecond_factor = true\n'
pytestmark = pytest.mark.service(policy=POLICY)


@pytest.mark.parametrize(
    ("at_s", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_are_those_of_the_rfc(at_s, code):
    assert code_at(b"12345678901234567890", at_s // STEP_S) == code


class Guarded:
    """A service whose rule wants a second factor, with a clock in hand, an agent and alice's app."""

    def __init__(self, server: Running, clock: ManualClock) -> None:
        self.server, self.clock = server, clock
        self.agent, self.alice = server.client("submit", "agent"), server.client("approve", "alice")
        typed = self.change(lambda tx: factors.enrol(tx, "alice", by="test")).secret.replace(" ", "")
        self.secret = b32decode(typed + "=" * (-len(typed) % 8))

    def change(self, work: Any) -> Any:
        service = self.server.service
        return service.database.write_now(lambda db: work(Tx(db, service.timeline.now_s(), service.key)))

    def code(self, steps: int = 0) -> str:
        return code_at(self.secret, int(self.server.service.timeline.now_s()) // STEP_S + steps)

    def wrong(self) -> str:
        near = {self.code(steps) for steps in (-1, 0, 1)}
        return next(text for text in ("000000", "111111", "222222", "333333") if text not in near)

    def ask(self) -> dict[str, Any]:
        return self.agent.post("/confirm", json=SUBMIT).json()

    def approve(self, request: dict[str, Any], code: str = "") -> Any:
        return self.alice.post(request["approve_url"], json={"code": code} if code else {})


@pytest.fixture
def guarded(server, clock):
    return Guarded(server, clock)


def test_an_approval_takes_a_code_and_a_code_is_for_one_decision(guarded):
    request, other = guarded.ask(), guarded.ask()
    without = guarded.approve(request)
    assert without.status_code == 403 and without.json()["reason"] == "code"
    assert guarded.approve(request, guarded.wrong()).status_code == 403
    code = guarded.code()
    assert guarded.approve(request, f"{code[:3]} {code[3:]}").status_code == 200
    replay = guarded.approve(other, code)
    assert replay.status_code == 403 and "used before" in replay.json()["error"]
    assert guarded.agent.get(f"/confirm/{other['id']}").json()["status"] == "pending"
    guarded.clock.pass_by(STEP_S)
    assert guarded.approve(other, code).status_code == 403  # the step before is still near, and used up
    assert guarded.approve(other, guarded.code()).status_code == 200
    kinds = [row[0] for row in guarded.server.rows("SELECT data FROM events WHERE kind = 'factor_failed'")]
    assert len(kinds) == 3 and "used before" in kinds[1]


def test_a_clock_that_is_a_step_off_is_near_enough_and_two_are_not(guarded):
    for steps, status in ((-2, 403), (2, 403), (-1, 200), (1, 200)):
        assert guarded.approve(guarded.ask(), guarded.code(steps)).status_code == status, steps


def test_denying_takes_no_code(guarded):
    request = guarded.ask()
    assert guarded.alice.post(request["deny_url"]).status_code == 200


def test_wrong_codes_make_their_person_wait_longer_and_longer_also_for_a_right_one(guarded):
    request = guarded.ask()
    assert [guarded.approve(request, guarded.wrong()).status_code for _ in range(5)] == [403] * 4 + [429]
    held = guarded.approve(request, guarded.code())
    assert held.status_code == 429 and held.headers["retry-after"] == "60"
    guarded.clock.pass_by(59.5)
    held = guarded.approve(request, guarded.code())
    assert held.status_code == 429 and held.headers["retry-after"] == "1"
    guarded.clock.pass_by(0.5)
    assert guarded.approve(request, guarded.wrong()).headers["retry-after"] == "120"
    guarded.clock.pass_by(120)
    assert guarded.approve(request, guarded.code()).status_code == 200
    pauses = [factors.pause_s(failures) for failures in (0, 4, 5, 6, 10, 11, 5000)]
    assert pauses == [0, 0, 60, 120, 1920, 3600, 3600]


def test_who_has_no_second_factor_or_lost_it_is_told_how_to_get_one(guarded):
    bob = guarded.server.client("approve", "bob")
    request = guarded.ask()
    refused = bob.post(request["approve_url"], json={"code": "123456"})
    assert refused.status_code == 403 and "token enrol --name bob" in refused.json()["error"]
    guarded.change(lambda tx: factors.remove(tx, "alice", by="test"))
    assert guarded.approve(request, guarded.code()).status_code == 403


def test_the_secret_is_sealed_and_another_key_opens_nothing(guarded):
    (sealed,) = guarded.server.rows("SELECT sealed FROM second_factors")[0]
    assert guarded.secret not in sealed
    moved = bytes(sealed[:-1]) + bytes([sealed[-1] ^ 1])
    guarded.change(lambda tx: tx.connection.execute("UPDATE second_factors SET sealed = ?", (moved,)))
    assert guarded.approve(guarded.ask(), guarded.code()).status_code == 403


@pytest.mark.slow
def test_the_page_asks_for_the_code_and_a_chat_has_no_button(guarded):
    submitted, server = guarded.ask(), guarded.server
    browser = server.signed_in("alice")
    page = browser.get(f"/r/{submitted['id']}").text
    form = {"csrf": field_of(page, "csrf"), "digest": submitted["digest"], "verdict": "approve", "reason": ""}
    path = f"/r/{submitted['id']}/decide"
    asked = browser.post(path, data=form)
    assert asked.status_code == 200 and 'name="code"' in asked.text
    wrong = browser.post(path, data=form | {"sure": "yes", "code": guarded.wrong()})
    assert wrong.status_code == 403 and "This code is wrong" in wrong.text and 'name="code"' in wrong.text
    assert browser.post(path, data=form | {"sure": "yes"}).status_code == 403
    assert browser.post(path, data=form | {"sure": "yes", "code": guarded.code()}).status_code == 303
    request = server.service.get(submitted["id"])
    assert request is not None and request.status == "approved"
    assert not build_notice(request, link="").may_approve


@pytest.mark.service(is_open=True)
def test_open_mode_can_not_meet_a_rule_that_wants_a_second_factor(server):
    anybody = server.client()
    request = anybody.post("/confirm", json=SUBMIT).json()
    assert anybody.post(request["approve_url"], json={"code": "123456"}).status_code == 403


@pytest.mark.service(policy=POLICY.replace("second_factor", "require_passkey"))
def test_who_lacks_a_passkey_is_not_told_to_type_a_code(agent, alice):
    request = agent.post("/confirm", json=SUBMIT).json()
    refused = alice.post(request["approve_url"], json={})
    assert (refused.status_code, refused.json()["reason"]) == (403, "passkey")
    failure = explain_failure(
        Failed(refused.json()["error"], status=refused.status_code, body=refused.json())
    )
    assert "passkey" in failure.hint and "--code" not in failure.hint
