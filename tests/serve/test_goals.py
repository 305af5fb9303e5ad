"""Goals over the API: the owner's, handed to a worker, looked at, stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.serve.conftest import Api
from whet.schedules.worker import ScheduleWorker
from whet.store.database import StateDatabase
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply


@pytest.fixture
def waiting(api: Api) -> Iterator[Api]:
    model = {"provider": "practice", "base_url": api.model.base_url, "model": "practice", "max_retries": 0}
    settings = {
        "model": model,
        "approval": {"mode": "auto", "allow": ["terminal"]},
        "sandbox": {"mode": "off"},
    }
    api.home.config.write_text(json.dumps(settings))
    yield api
    api.home.config.unlink()


def _work(api: Api) -> None:
    with closing(StateDatabase.open(api.home.database, api.app.clock)) as database:
        asyncio.run(ScheduleWorker(api.home, database, api.app.clock, 3600, lambda done: None).drain())


def test_a_goal_is_handed_over_pursued_and_told(waiting: Api) -> None:
    make = PracticeCall("terminal", json.dumps({"command": "echo yes > reached.txt"}))
    waiting.say(ScriptedReply(tool_calls=(make,)), ScriptedReply("done"))
    with waiting.http() as http:
        answer = http.post("/api/goals", json={"text": "make it", "verify": "test -f reached.txt"})
        assert answer.status_code == 202, answer.text
        number = answer.json()["id"]
        assert http.get(f"/api/goals/{number}").json() == {"id": number, "state": "waiting"}
        _work(waiting)
        body = http.get(f"/api/goals/{number}").json()
        assert body["state"] == "achieved" and body["goal"]["verify"] == "test -f reached.txt"
        assert [file["path"] for file in body["receipt"]["files"]] == ["reached.txt"]
        assert http.get("/api/goals").json()["goals"][0]["id"] == body["goal"]["id"]
        assert http.post(f"/api/goals/{number}/stop").status_code == 404, "it has ended"


def test_a_goal_that_waits_can_be_dropped_and_is_nobody_elses(waiting: Api) -> None:
    with waiting.http() as http, waiting.http(waiting.new_token("guest")) as guest:
        number = http.post("/api/goals", json={"text": "never"}).json()["id"]
        assert guest.get("/api/goals").status_code == 403
        assert guest.post("/api/goals", json={"text": "mine"}).status_code == 403
        assert http.post(f"/api/goals/{number}/stop").json() == {"id": number, "state": "waiting"}
        assert http.get(f"/api/goals/{number}").status_code == 404
        assert http.post("/api/goals", json={"text": " "}).status_code == 400
        for wrong in ({"steps": -1}, {"budget_usd": -0.5}, {"budget_usd": 1e9}):
            assert http.post("/api/goals", json={"text": "x", **wrong}).status_code == 400


def test_a_goal_that_could_not_begin_is_not_said_to_wait(waiting: Api) -> None:
    with waiting.http() as http:
        number = http.post("/api/goals", json={"text": "make it"}).json()["id"]
        waiting.home.config.write_text(json.dumps({"model": {"provider": "nobody"}}))
        _work(waiting)
        answer = http.get(f"/api/goals/{number}")
        assert answer.status_code == 404 and "ended before it began" in answer.text, answer.text
