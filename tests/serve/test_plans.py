"""Plans and helpers over the API: begun, changed and approved; who works for whom."""

from __future__ import annotations

import json

import httpx2

from tests.serve.conftest import Api
from tests.serve.test_native import begin, turn
from whet.contract.brought_text import drop_marks
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply


def test_a_plan_is_begun_changed_and_approved(api: Api, http: httpx2.Client) -> None:
    items = [{"id": "a", "content": "look", "status": "in_progress"}, {"id": "b", "content": "write"}]
    api.say(
        ScriptedReply(tool_calls=(PracticeCall("todo", json.dumps({"items": items}), "c1"),)),
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"touch made"}', "c2"),)),
        ScriptedReply("Two steps."),
    )
    session_id = begin(http)
    plan = f"/api/sessions/{session_id}/plan"
    assert http.get(plan).json() == {"planning": False, "steps": []}
    assert http.post(plan, json={"planning": True}).json() == {"planning": True, "steps": []}
    results = [event for _, event in turn(http, session_id, "plan it") if event["type"] == "tool_finished"]
    assert len(results) == 2 and "plan" in json.dumps(results[1]), "it only reads"
    shown = http.get(plan).json()
    assert shown["planning"] and [(step["text"], step["status"]) for step in shown["steps"]] == [
        ("look", "in_progress"),
        ("write", "pending"),
    ]
    changed = http.post(plan, json={"steps": ["1. look twice", "- write", " "]}).json()
    assert [step["text"] for step in changed["steps"]] == ["look twice", "write"] and changed["planning"]
    assert http.post(plan, json={"steps": ["", " "]}).status_code == 400
    approved = http.post(plan, json={"approve": True}).json()
    assert not approved["planning"] and approved["text"].startswith("The plan is approved. Carry it out.")
    assert drop_marks(approved["text"]).endswith(":\n<plan>1. look twice\n2. write</plan>")
    approved = http.post(plan, json={"steps": ["look once"], "approve": True}).json()
    assert drop_marks(approved["text"]).endswith("<plan>1. look once</plan>")
    ended = http.post(plan, json={"planning": False}).json()
    assert not ended["planning"] and "text" not in ended


def test_what_is_no_change_of_a_plan_is_refused(http: httpx2.Client) -> None:
    plan = f"/api/sessions/{begin(http)}/plan"
    for body in ({"steps": "one"}, {"planning": 1}, {"go": True}):
        assert http.post(plan, json=body).status_code == 400
    assert http.get("/api/sessions/nobody/plan").status_code == 404


def test_helpers_are_listed_in_the_order_in_which_they_were_asked_for(api: Api, http: httpx2.Client) -> None:
    calls = [PracticeCall("delegate_task", json.dumps({"task": f"task {n}"}), f"c{n}") for n in (1, 2)]
    api.say(
        ScriptedReply(tool_calls=tuple(calls)),
        ScriptedReply("one is done", when="task 1"),
        ScriptedReply("two is done", when="task 2"),
        ScriptedReply("Both are."),
    )
    session_id = begin(http)
    helpers = f"/api/sessions/{session_id}/helpers"
    assert http.get(helpers).json() == {"helpers": []}
    turn(http, session_id, "have it done")
    found = http.get(helpers).json()["helpers"]
    assert [(one["task"], one["state"], one["background"]) for one in found] == [
        ("task 1", "answered", False),
        ("task 2", "answered", False),
    ]
    assert http.get(f"/api/sessions/{found[0]['session']}").json()["id"] == found[0]["session"]
