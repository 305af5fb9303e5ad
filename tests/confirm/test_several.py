"""Several decisions at once: each looked at before, as it is now, and nothing that takes more than a yes."""

from __future__ import annotations

import httpx2
import pytest

from tests.confirm.running import SUBMIT, Running, field_of
from tests.confirm.test_sight import page_of


def asked(server: Running, agent: httpx2.Client, **changes: object) -> dict[str, str]:
    request = agent.post("/confirm", json=SUBMIT | changes).json()
    return {"id": request["id"], "digest": request["digest"]}


def test_only_what_was_looked_at_is_approved_and_each_is_a_decision_of_its_own(server, agent, alice):
    texts, two, unseen, risky = (
        asked(server, agent),
        asked(server, agent, accepts_edits=True),
        asked(server, agent),
        asked(server, agent, action="delete_data"),
    )
    for request in (texts, two, risky):
        alice.get(f"/confirm/{request['id']}")
    items = [texts, two, unseen, risky]
    answer = alice.post("/decisions", json={"verdict": "approve", "items": items, "reason": "fine"})
    outcomes = [(outcome["counted"], outcome["status"]) for outcome in answer.json()["outcomes"]]
    assert outcomes == [(True, "approved"), (True, "approved"), (False, "pending"), (False, "pending")]
    assert server.stored(texts["id"]).reason == "fine"
    changed = asked(server, agent, accepts_edits=True)
    alice.get(f"/confirm/{changed['id']}")
    amended = server.client("approve", "bob").post(
        f"/confirm/{changed['id']}/amend", json={"details": {"a": 1}, "digest": changed["digest"]}
    )
    now = {"id": changed["id"], "digest": amended.json()["digest"]}
    for item in (changed, now):  # the old digest, and the new one that was never looked at
        answer = alice.post("/decisions", json={"verdict": "approve", "items": [item]}).json()
        assert answer["outcomes"][0]["counted"] is False
    alice.get(f"/confirm/{changed['id']}")
    answer = alice.post("/decisions", json={"verdict": "approve", "items": [now]}).json()
    assert answer["outcomes"][0]["counted"]


def test_an_agent_and_more_than_twenty_at_once_decide_nothing(server, agent, alice):
    item = asked(server, agent)
    assert agent.post("/decisions", json={"verdict": "approve", "items": [item]}).status_code == 403
    for body in ({}, {"verdict": "approve", "items": [item] * 21}):
        assert alice.post("/decisions", json=body).status_code == 400
    assert server.stored(item["id"]).is_pending


def test_an_id_or_a_digest_of_another_form_is_named_in_words(server, agent, alice):
    item = asked(server, agent)
    not_an_id = "not a request's id, which has 22 letters and digits"
    not_a_digest = "not a digest, which has 64 digits: 0 to 9, a to f"
    for name, value, problem in (("id", "abc", not_an_id), ("digest", "0" * 63, not_a_digest)):
        body = {"verdict": "approve", "items": [item | {name: value}]}
        answer = alice.post("/decisions", json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, f"items[0].{name}: {problem}")


@pytest.mark.parametrize(("role", "code", "status"), [("approve", 200, "denied"), ("audit", 403, "pending")])
def test_who_may_only_look_decides_nothing_with_a_tick(server, role, code, status):
    """Alice has opened it while she might approve."""
    item = asked(server, server.client("submit", "agent"))
    server.client("approve", "alice").get(f"/confirm/{item['id']}")
    browser = server.signed_in("alice", role)
    form = {"csrf": field_of(browser.get("/several").text, "csrf"), f"r.{item['id']}": item["digest"]}
    assert browser.post("/several", data=form | {"verdict": "deny"}).status_code == code
    assert server.stored(item["id"]).status == status


def test_the_page_lets_tick_what_was_opened_and_shown_whole(server, agent):
    opened, unopened = asked(server, agent), asked(server, agent)
    hiding = asked(server, agent, details={"token": "; rm -rf /srv/shop"})
    with page_of(server) as browser:
        for request in (opened, hiding):
            browser.get(f"/r/{request['id']}")
        page = browser.get("/several").text
        assert f'name="r.{opened["id"]}"' in page
        assert f'name="r.{unopened["id"]}"' not in page and f'name="r.{hiding["id"]}"' not in page
        csrf = field_of(page, "csrf")
        form = {"csrf": csrf, "verdict": "approve"}
        form |= {f"r.{texts['id']}": texts["digest"] for texts in (opened, unopened, hiding)}
        origin = {"origin": str(browser.base_url).rstrip("/")}
        text = browser.post("/several", data=form, headers=origin).text
        assert "look at it first" in text and "was not shown to you" in text
        assert browser.post("/several", data=form | {"csrf": "x"}, headers=origin).status_code == 403
    assert [server.stored(texts["id"]).status for texts in (opened, unopened, hiding)] == [
        "approved",
        "pending",
        "pending",
    ]
