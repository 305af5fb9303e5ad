"""What steps changed and the way back, over real HTTP: points, diffs, own edits, whose they are."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.serve.conftest import Api
from tests.serve.test_native import begin, turn
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply


@pytest.fixture
def begun(api: Api, http: httpx2.Client, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A session whose first turn set a line of a file of its own, in two steps; the file."""
    file = api.workspace / f"{request.node.name[:40]}.txt"
    file.write_text("one\ntwo\nthree\n")

    def run(text: str) -> ScriptedReply:
        return ScriptedReply(tool_calls=(PracticeCall("terminal", f'{{"command": "{text}"}}'),))

    api.say(run(f"sed -i s/two/TWO/ {file.name}"), run(f"chmod 600 {file.name}"), ScriptedReply("Changed."))
    session_id = begin(http)
    turn(http, session_id, "change it")
    assert "TWO" in file.read_text()
    return session_id, file


def test_a_turn_is_listed_taken_back_and_brought_again(http: httpx2.Client, begun: tuple[str, Path]) -> None:
    session_id, file = begun
    text = f"/api/sessions/{session_id}"
    points = http.get(f"{text}/rewind").json()
    assert [(one["turn"], one["step"], one["kind"], one["paths"]) for one in points["steps"]] == [
        (1, 1, "step", 1),
        (1, 2, "step", 1),
    ]
    assert points["finished"] is False and points["left_out"] == []
    (changed,) = http.get(f"{text}/diff", params={"turn": 1}).json()["files"]
    assert (changed["path"], changed["what"], changed["added"], changed["removed"]) == (
        file.name,
        "changed",
        1,
        1,
    )
    assert "\n-two\n+TWO\n" in changed["diff"] and "mode 644 → 600" in changed["note"]
    assert http.get(f"{text}/diff").json()["files"] == [changed]
    assert http.get(f"{text}/diff", params={"turn": 7}).json() == {"files": []}

    plan = http.post(f"{text}/rewind", json={"to": "1", "dry_run": True}).json()
    assert plan["dry_run"] and plan["conversation"] and "TWO" in file.read_text()
    step = http.post(f"{text}/rewind", json={"to": "1.2", "parts": "files"}).json()
    assert step["restored"] == [{"path": file.name, "merged": False, "exists": True}]
    assert file.stat().st_mode & 0o777 == 0o644 and "TWO" in file.read_text()
    assert http.post(f"{text}/rewind", json={"to": "undo"}).status_code == 200
    assert file.stat().st_mode & 0o777 == 0o600

    done = http.post(f"{text}/rewind", json={"to": "1"}).json()
    assert done["said"] == "change it" and done["conversation"] and not done["conflicts"]
    assert file.read_text() == "one\ntwo\nthree\n" and file.stat().st_mode & 0o777 == 0o644
    undone = http.post(f"{text}/rewind", json={"to": "undo"}).json()
    assert undone["restored"] and "TWO" in file.read_text()
    messages = http.get(f"{text}/messages").json()["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["change it"]


def test_a_persons_edits_are_asked_kept_or_replaced(http: httpx2.Client, begun: tuple[str, Path]) -> None:
    session_id, file = begun
    rewind = f"/api/sessions/{session_id}/rewind"
    file.write_text("one\nMINE\nthree\n")
    asked = http.post(rewind, json={"to": "1", "parts": "files"})
    assert asked.status_code == 409 and asked.json()["error"]["code"] == "own_edits"
    assert file.name in asked.json()["error"]["message"] and asked.headers["x-should-retry"] == "false"
    assert file.read_text() == "one\nMINE\nthree\n"
    assert [step["kind"] for step in http.get(rewind).json()["steps"]] == ["step", "step"]

    plan = http.post(rewind, json={"to": "1", "parts": "files", "dry_run": True}).json()
    assert [(conflict["path"], conflict["can_force"]) for conflict in plan["conflicts"]] == [
        (file.name, True)
    ]
    kept = http.post(rewind, json={"to": "1", "parts": "files", "own_edits": "keep"}).json()
    assert kept["conflicts"] and file.read_text() == "one\nMINE\nthree\n"

    replaced = http.post(rewind, json={"to": "1", "parts": "files", "own_edits": "replace"}).json()
    assert [path["path"] for path in replaced["restored"]] == [file.name]
    assert file.read_text() == "one\ntwo\nthree\n"
    http.post(rewind, json={"to": "undo"})
    assert file.read_text() == "one\nMINE\nthree\n"


def test_lines_of_the_persons_own_apart_are_kept(http: httpx2.Client, begun: tuple[str, Path]) -> None:
    session_id, file = begun
    rewind = f"/api/sessions/{session_id}/rewind"
    file.write_text("one\nTWO\nthree\nfour\nfive\n")
    merged = http.post(rewind, json={"to": "1", "parts": "files"}).json()
    assert merged["restored"] == [{"path": file.name, "merged": True, "exists": True}]
    assert file.read_text() == "one\ntwo\nthree\nfour\nfive\n"


def test_what_is_no_point_is_refused_before_any_change(http: httpx2.Client, begun: tuple[str, Path]) -> None:
    session_id, _ = begun
    rewind = f"/api/sessions/{session_id}/rewind"
    for body, status, code in (
        ({"to": "9"}, 404, "not_found"),
        ({"to": "1.9"}, 404, "not_found"),
        ({"to": "undo"}, 404, "not_found"),
        ({"to": "1.2.3"}, 400, "invalid_value"),
        ({"to": ""}, 400, "invalid_value"),
        ({"to": "1", "parts": "some"}, 400, "invalid_type"),
        ({"to": "1", "own_edits": "lose"}, 400, "invalid_type"),
        ({"to": "1", "force": True}, 400, "invalid_type"),
        ({}, 400, "invalid_type"),
    ):
        answer = http.post(rewind, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (body, answer.text)
    assert http.get(f"/api/sessions/{session_id}/diff", params={"turn": "x"}).status_code == 400
    for path in ("rewind", "diff"):
        assert http.get(f"/api/sessions/none/{path}").status_code == 404


def test_only_who_sees_a_session_rewinds_it_and_only_the_owner_replaces_edits(
    api: Api, http: httpx2.Client, begun: tuple[str, Path]
) -> None:
    theirs, _ = begun
    with api.http(api.new_token("stranger")) as stranger:
        for path in ("rewind", "diff"):
            assert stranger.get(f"/api/sessions/{theirs}/{path}").status_code == 404
        assert stranger.post(f"/api/sessions/{theirs}/rewind", json={"to": "1"}).status_code == 404
        api.say(ScriptedReply("Hello."))
        own = begin(stranger)
        turn(stranger, own, "hello")
        done = stranger.post(f"/api/sessions/{own}/rewind", json={"to": "1"}).json()
        assert done["conversation"] and done["said"] == "hello"
        refused = stranger.post(f"/api/sessions/{own}/rewind", json={"to": "undo", "own_edits": "replace"})
        assert refused.status_code == 403


def test_nothing_is_taken_back_while_a_turn_runs(api: Api, http: httpx2.Client) -> None:
    api.say(ScriptedReply("One."), ScriptedReply("Half", pieces=2, fault=Fault(stall_after=1)))
    session_id = begin(http)
    turn(http, session_id, "one")
    path = f"/api/sessions/{session_id}"
    assert http.post(f"{path}/turns", json={"text": "two"}).status_code == 202
    api.model.wait_for_stall()
    busy = http.post(f"{path}/rewind", json={"to": "1"})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "session_busy")
    assert http.post(f"{path}/cancel").json() == {"cancelled": True}


def test_secrets_are_masked_in_what_is_shown(api: Api, http: httpx2.Client) -> None:
    secret = "sk-ant-" + "a1B2c3D4" * 6
    call = PracticeCall("terminal", f'{{"command": "echo key={secret} > kept-secret.txt"}}')
    api.say(ScriptedReply(tool_calls=(call,)), ScriptedReply("Written."))
    session_id = begin(http)
    turn(http, session_id, f"write {secret}")
    shown = http.get(f"/api/sessions/{session_id}/diff").text
    assert "+key=" in shown and secret not in shown
    done = http.post(f"/api/sessions/{session_id}/rewind", json={"to": "1"})
    assert done.json()["said"].startswith("write ") and secret not in done.text
