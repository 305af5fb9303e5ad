"""What the API and the page say of a question: the diff; an edited call runs as edited; a no has words."""

from __future__ import annotations

import json

import pytest

from tests.asked import blind, on_page, waiting
from tests.serve.conftest import Api
from tests.serve.test_native import begin, until
from tests.writes import WRITES, prepare
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_every_question_about_a_write_shows_all_of_it(board: Api) -> None:
    by_api, by_page = on_page(board)
    assert blind(by_api) == [] and blind(by_page) == []


def test_events_say_what_is_asked_about_and_what_was_written(asking_api: Api) -> None:
    prepare(asking_api.workspace)
    call, _ = WRITES["a replacement"]
    asking_api.say(ScriptedReply(tool_calls=(call,)), ScriptedReply("Done."))
    with asking_api.http() as owner:
        session_id = begin(owner)
        started = owner.post(f"/api/sessions/{session_id}/turns", json={"text": "go"}).json()
        fields = waiting(owner, set())
        assert fields["digest"] and fields["opening"] == ""
        assert owner.post(f"/api/approvals/{fields['id']}", json={"answer": "once"}).status_code == 200
        events = until(owner, session_id, started["last_event_id"], "turn_end")
        (asked,) = [event for event in events if event["type"] == "approval_asked"]
        (done,) = [event for event in events if event["type"] == "tool_finished"]
        assert asked["edits"][0]["diff"] and done["edits"][0]["added"]


def test_an_edited_call_runs_after_a_yes_to_it_and_a_no_has_words(asking_api: Api) -> None:
    touch = [PracticeCall("terminal", json.dumps({"command": f"touch {name}"})) for name in ("one", "two")]
    asking_api.say(*(ScriptedReply(tool_calls=(call,)) for call in touch), ScriptedReply("Done."))
    with asking_api.http() as owner:
        session_id = begin(owner)
        started = owner.post(f"/api/sessions/{session_id}/turns", json={"text": "go"}).json()
        first = waiting(owner, set())
        edited = {"answer": "once", "arguments": {"command": "touch other"}}
        assert owner.post(f"/api/approvals/{first['id']}", json=edited).status_code == 200
        mine = waiting(owner, {first["id"]})
        assert "touch other" in mine["subject"] and "you edited it: this is your version" in mine["reasons"]
        assert not (asking_api.workspace / "other").exists()
        yes = owner.post(f"/api/approvals/{mine['id']}", json={"answer": "once"})
        assert yes.status_code == 200
        second = waiting(owner, {first["id"], mine["id"]})
        path = f"/api/approvals/{second['id']}"
        assert owner.post(path, json={"answer": "session", "scope": 9}).status_code == 400
        assert owner.post(path, json={"answer": "no", "reason": "it is Friday"}).status_code == 200
        until(owner, session_id, started["last_event_id"], "turn_end")
    assert (asking_api.workspace / "other").exists() and not (asking_api.workspace / "one").exists()
    assert b"Their words: it is Friday" in asking_api.model.requests[-1].body
