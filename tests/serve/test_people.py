"""Each person of one `whet serve` controls and sees only the background processes of their own sessions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2

from tests.serve.conftest import Api
from tests.serve.test_native import begin, turn
from whet.app import planning
from whet.serve.tokens import TokenRole
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply


class Agent:
    """One person's client, which makes the model call tools in a session and reads their results."""

    def __init__(self, api: Api, http: httpx2.Client) -> None:
        self._api = api
        self._http = http
        self.session_id = begin(http)

    def call(self, name: str, **arguments: Any) -> str:
        count = len(self._results())
        self._api.say(
            ScriptedReply(tool_calls=(PracticeCall(name, json.dumps(arguments), f"c{count}"),)),
            ScriptedReply("Done."),
        )
        turn(self._http, self.session_id, f"do {count}")
        return self._results()[count]

    def process(self, action: str, process_id: str = "", **arguments: Any) -> str:
        return self.call("process", action=action, id=process_id, **arguments)

    def _results(self) -> list[str]:
        rows = self._http.get(f"/api/sessions/{self.session_id}/messages?after=0").json()["messages"]
        return [str(row["content"]) for row in rows if row["role"] == "tool"]

    def start(self, command: str) -> str:
        match = re.search(r"as (p\d+)", self.call("terminal", command=command, background=True))
        assert match is not None
        return match[1]


def check_apart(owner: Agent, other: Agent, folder: Path) -> None:
    """Start a shell as one person, and try everything with it as another."""
    job = owner.start("echo SECRET; bash")
    assert job not in other.process("list")
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("poll", {}),
        ("wait", {"timeout_s": 0.1}),
        ("write", {"text": "touch by-other"}),
        ("kill", {}),
    ]
    for action, arguments in attempts:
        answer = other.process(action, job, **arguments)
        assert f"no background process '{job}'; known: " in answer and answer.count(job) == 1, (
            action,
            answer,
        )
    assert f"{job} running" in owner.process("list")
    owner.process("write", job, text="touch by-owner; exit", newline=True)
    output = owner.process("wait", job, timeout_s=30)
    assert "SECRET" in output and "exit 0" in output
    assert (folder / "by-owner").exists() and not (folder / "by-other").exists()
    (folder / "by-owner").unlink()


def test_a_tokens_sessions_have_no_background_processes_of_others(api: Api, http: httpx2.Client) -> None:
    roles: tuple[TokenRole, ...] = ("guest", "chat")
    for role in roles:
        with api.http(api.new_token(f"apart-{role}", role)) as client:
            check_apart(Agent(api, http), Agent(api, client), api.workspace)
            check_apart(Agent(api, client), Agent(api, http), api.workspace)


def test_a_later_session_of_a_person_has_the_jobs_of_the_earlier_one(api: Api) -> None:
    with api.http(api.new_token("twice", "guest")) as client:
        job = Agent(api, client).start("echo hello; sleep 60")
        later = Agent(api, client)
        assert f"{job} running" in later.process("list")
        assert f"{job} exit" in later.process("kill", job)


def test_a_token_has_no_jobs_of_a_revoked_one_of_its_name(api: Api) -> None:
    with api.http(api.new_token("again", "chat")) as client:
        job = Agent(api, client).start("sleep 60")
    api.revoke("again")
    with api.http(api.new_token("again", "chat")) as client:
        later = Agent(api, client)
        assert later.process("list") == "no background processes"
        assert f"no background process '{job}'" in later.process("kill", job)


def test_plan_mode_names_no_commands_of_others(api: Api, http: httpx2.Client) -> None:
    owner = Agent(api, http)
    job = owner.start("sleep 60")
    with api.http(api.new_token("planner", "guest")) as client:
        other = Agent(api, client)
        lines = [
            api.call(planning.list_running(api.app.services, agent.session_id)) for agent in (owner, other)
        ]
    assert [line.partition(" ")[0] for line in lines[0]] == [job] and lines[1] == []
    owner.process("kill", job)
