"""What the API and the page say of a question: the diff; an edited call runs as edited; a no has words."""

from __future__ import annotations

import json

import pytest

from tests.serve.conftest import Api
from tests.serve.test_native import begin, until
from tests.writes import WRITES, prepare
from whet.practice.ask import PracticeCall
from whet.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


def _waiting(owner: object) -> dict[str, object]:
    while True:
        found = owner.get("/api/approvals").json()["approvals"]  # type: ignore[attr-defined]
        if found:
            return found[0]


def test_every_question_about_a_write_carries_its_diff(asking_api: Api) -> None:
    prepare(asking_api.workspace)
    asking_api.say(*(ScriptedReply(tool_calls=(one,)) for one, _ in WRITES), ScriptedReply("Done."))
    with asking_api.http() as owner:
        session_id = begin(owner)
        started = owner.post(f"/api/sessions/{session_id}/turns", json={"text": "go"}).json()
        seen: set[object] = set()
        for _, lines in WRITES:
            one = _waiting(owner)
            while one["id"] in seen:
                one = _waiting(owner)
            seen.add(one["id"])
            shown = [row["text"] for row in one["body"]]  # type: ignore[attr-defined]
            assert all(line in shown for line in lines) and one["digest"] and one["opening"] == ""
            assert owner.post(f"/api/approvals/{one['id']}", json={"answer": "once"}).status_code == 200
        events = until(owner, session_id, started["last_event_id"], "turn_end")
        asked = [event for event in events if event["type"] == "approval_asked"]
        assert len(asked) == len(WRITES) and all(event["edits"][0]["diff"] for event in asked)
        done = [event for event in events if event["type"] == "tool_finished"]
        assert all(event["edits"][0]["added"] for event in done)


def test_an_edited_call_runs_and_a_no_has_words(asking_api: Api) -> None:
    touch = [PracticeCall("terminal", json.dumps({"command": f"touch {name}"})) for name in ("one", "two")]
    asking_api.say(*(ScriptedReply(tool_calls=(call,)) for call in touch), ScriptedReply("Done."))
    with asking_api.http() as owner:
        session_id = begin(owner)
        started = owner.post(f"/api/sessions/{session_id}/turns", json={"text": "go"}).json()
        first = _waiting(owner)
        edited = {"answer": "once", "arguments": {"command": "touch other"}}
        assert owner.post(f"/api/approvals/{first['id']}", json=edited).status_code == 200
        second = _waiting(owner)
        while second["id"] == first["id"]:
            second = _waiting(owner)
        path = f"/api/approvals/{second['id']}"
        assert owner.post(path, json={"answer": "session", "scope": 9}).status_code == 400
        assert owner.post(path, json={"answer": "no", "reason": "it is Friday"}).status_code == 200
        until(owner, session_id, started["last_event_id"], "turn_end")
    assert (asking_api.workspace / "other").exists() and not (asking_api.workspace / "one").exists()
    assert b"Their words: it is Friday" in asking_api.model.requests[-1].body
