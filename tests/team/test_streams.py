"""Turns asked for at one process, run by another, watched, steered, cancelled and answered at a third."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.late import Late
from tests.support import wait_until
from tests.team.processes import Served, environment, served, worker
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

pytestmark = pytest.mark.slow
TEXT = "one two three four five six seven eight nine ten"


class Team:
    """Two processes that serve, and workers as they are asked for."""

    def __init__(self, stack: ExitStack, given: dict[str, str], folder: Path, model: PracticeServer) -> None:
        self._stack, self.given, self._folder = stack, given, folder
        self.model = model
        self.first: Served = stack.enter_context(served(given, folder))
        self.second: Served = stack.enter_context(served(given, folder))
        self.workers = [self.work()]

    def work(self) -> Any:
        return self._stack.enter_context(worker(self.given, self._folder))


@pytest.fixture
def team(url: str, tmp_path: Path) -> Iterator[Callable[..., Team]]:
    with ExitStack() as stack:

        def start(*replies: ScriptedReply, mode: str = "auto") -> Team:
            model = stack.enter_context(PracticeServer(script=[*replies]))
            given = environment(url, tmp_path / "home", model, "practice")
            return Team(stack, given | {"WHET_APPROVAL_MODE": mode}, tmp_path, model)

        yield start


def until_end(events: Iterator[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for event in events:
        found.append(event)
        if event[1]["type"] == "turn_end":
            return found
    raise AssertionError(f"the stream ended without the turn's end: {found}")


def types(found: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [event["type"] for _, event in found]


def held(tmp_path: Path) -> Path:
    """A pipe that a command reads: it runs until something is written."""
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    return pipe


def reading(pipe: Path) -> ScriptedReply:
    return terminal_reply(f"touch {pipe}.begun; cat {pipe}; echo over")


def test_a_client_that_comes_back_to_another_process_misses_nothing(team):
    both = team(ScriptedReply(TEXT, pieces=40))
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="count")["last_event_id"]
    with both.second.events(id_, began) as events:
        found = until_end(events)
    assert "".join(event["text"] for _, event in found if event["type"] == "text_delta") == TEXT
    assert found[-1][1]["reason"] == "answered" and found[-1][1]["text"] == TEXT
    for at in range(len(found) - 1):
        side = (both.first, both.second)[at % 2]
        with side.events(id_, found[at][0]) as events:
            assert until_end(events) == found[at + 1 :]


def test_a_stream_of_chat_completions_is_answered_by_a_worker(team):
    both = team(ScriptedReply(TEXT, pieces=40), ScriptedReply("again"))
    token = both.first.http.headers["authorization"].removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{both.first.url}/v1", api_key=token, max_retries=0) as client:
        with client.chat.completions.create(
            model="whet", messages=[{"role": "user", "content": "count"}], stream=True
        ) as stream:
            text = "".join(piece.choices[0].delta.content or "" for piece in stream if piece.choices)
        whole = client.chat.completions.create(
            model="whet",
            messages=[
                {"role": "user", "content": "count"},
                {"role": "assistant", "content": TEXT},
                {"role": "user", "content": "once more"},
            ],
        )
    assert text == TEXT and whole.choices[0].message.content == "again"


def test_what_is_said_at_one_process_steers_the_turn_of_another(team, tmp_path):
    pipe = held(tmp_path)
    more = [terminal_reply(f"echo {number}") for number in range(80)]  # until the worker has heard of it
    both = team(ScriptedReply("done", when="and hurry"), reading(pipe), *more)
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="wait")["last_event_id"]
    wait_until(Path(f"{pipe}.begun").exists, 60)
    assert both.second.post(f"/api/sessions/{id_}/steer", text="and hurry") == {"steered": True}
    pipe.write_text("go\n")
    with both.second.events(id_, began) as events:
        found = until_end(events)
    assert [event["text"] for _, event in found if event["type"] == "steered"] == ["and hurry"]
    messages = both.second.http.get(f"/api/sessions/{id_}/messages").json()["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        *["assistant", "tool"] * ((len(messages) - 3) // 2),
        "user",
        "assistant",
    ]


def test_a_cancel_at_one_process_ends_the_turn_of_another(team, tmp_path):
    pipe = held(tmp_path)
    both = team(reading(pipe), ScriptedReply("done"))
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="wait")["last_event_id"]
    both.first.post(f"/api/sessions/{id_}/turns", text="never begun", busy="queue")
    wait_until(Path(f"{pipe}.begun").exists, 60)
    busy = both.second.http.post(f"/api/sessions/{id_}/turns", json={"text": "now"})
    assert busy.status_code == 409
    assert both.second.post(f"/api/sessions/{id_}/cancel") == {"cancelled": True}
    with both.second.events(id_, began) as events:
        ends = [until_end(events)[-1][1], until_end(events)[-1][1]]
    assert [end["reason"] for end in ends] == ["cancelled", "cancelled"]
    assert both.second.post(f"/api/sessions/{id_}/cancel") == {"cancelled": False}
    messages = both.second.http.get(f"/api/sessions/{id_}/messages").json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]


def test_a_question_is_answered_once_wherever_it_is_seen(team, tmp_path):
    both = team(terminal_reply(f"rm -rf {tmp_path}/gone"), ScriptedReply("done"), mode="ask")
    (tmp_path / "gone").mkdir()
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="tidy up")["last_event_id"]
    asked: list[dict[str, Any]] = []

    def is_asked() -> bool:
        asked[:] = both.second.http.get("/api/approvals").json()["approvals"]
        return bool(asked)

    wait_until(is_asked, 60)
    path = f"/api/approvals/{asked[0]['id']}"
    assert both.second.http.post(path, json={"answer": "perhaps"}).status_code == 400
    assert both.second.post(path, answer="once")["answer"] == "once"
    assert both.first.http.post(path, json={"answer": "no"}).status_code == 404
    with both.first.events(id_, began) as events:
        found = until_end(events)
    decided = [event for _, event in found if event["type"] == "approval_decided"]
    assert [(fields["verdict"], fields["decided_by"]) for fields in decided] == [("allow", "person")]
    assert not (tmp_path / "gone").exists()
    assert both.first.http.get("/api/approvals").json()["approvals"] == []


def test_a_listener_hears_of_a_killed_worker_and_of_the_end_that_another_gives(team, tmp_path):
    pipe = held(tmp_path)
    both = team(reading(pipe), ScriptedReply("done"))
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="wait")["last_event_id"]
    wait_until(Path(f"{pipe}.begun").exists, 60)
    both.workers[0].kill()
    both.work()
    with both.second.events(id_, began) as events:
        found = until_end(events)
    assert "gap" in types(found) and found[-1][1]["reason"] == "answered"
    assert types(found).count("turn_end") == 1


@pytest.mark.parametrize(("role", "ran"), [("guest", False), ("owner", True)])
def test_a_guests_commands_are_refused_where_nothing_confines_them(team, tmp_path, role, ran):
    """The workers of these tests confine nothing: sandbox.mode is off."""
    both = team(terminal_reply(f"touch {tmp_path}/ran"), ScriptedReply("done"))
    secret = subprocess.run(
        [sys.executable, "-P", "-m", "whet", "serve", "token", "create", "visitor", "--role", role],
        env=both.given,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.strip()
    both.first.http.headers["authorization"] = f"Bearer {secret}"
    id_ = both.first.session()
    began = both.first.post(f"/api/sessions/{id_}/turns", text="run it")["last_event_id"]
    with both.first.events(id_, began) as events:
        found = until_end(events)
    denied = [event["reason"] for _, event in found if event.get("verdict") == "deny"]
    assert (tmp_path / "ran").exists() == ran
    assert len(denied) == (not ran) and all("sandbox.mode" in reason for reason in denied)
