"""Requests that outlive their agents: they wait, and the answer continues the agent by its own command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.confirm.running import Running
from whet_confirm.adopt.agents import HookCommand
from whet_confirm.hook import HOOK_AGENTS, HookAsk, run_hook
from whet_confirm.resume import KeptCall, KeptCalls

RECORD = {"status": "approved"}


@pytest.fixture
def server(tmp_path, monkeypatch):
    with Running(tmp_path / "service", rate=1000) as running:
        monkeypatch.setenv("CONFIRMATION_TOKEN", running.token("submit", "agent"))
        yield running


def call_tool(server: Running, folder: Path, call: str, command: str = "make") -> str:
    """Run the hook as an agent does, without time to wait. Return the decision and its reason."""
    event: dict[str, Any] = {"hook_event_name": "PreToolUse", "session_id": "s-1", "cwd": str(folder)}
    event |= {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call}
    ask = HookAsk(server.url, timeout_s=0, keep_s=3600, kept=folder / "confirm" / "kept")
    answer = json.loads(run_hook(json.dumps(event), "claude-code", ask))["hookSpecificOutput"]
    return f"{answer['permissionDecision']}: {answer['permissionDecisionReason']}"


def variables(server: Running, folder: Path, path: str) -> dict[str, str]:
    return {
        "WHET_HOME": str(folder),
        "WHET_CONFIRM_URL": server.url,
        "CONFIRMATION_TOKEN": os.environ["CONFIRMATION_TOKEN"],
        "PATH": f"{path}:{os.environ['PATH']}",
    }


def resume(server: Running, folder: Path, *options: str, path: str = "") -> forked.Done:
    return forked.run(("confirm", "resume", *options), folder, environ=variables(server, folder, path))


@pytest.mark.slow
def test_an_agent_that_ended_is_continued_with_the_answer(server, tmp_path):
    approver = server.client("approve", "alice")
    first = call_tool(server, tmp_path, "c1")
    assert first.startswith("deny: not confirmed: nobody has answered yet") and "still waits" in first
    ((request,),) = server.rows("SELECT id FROM requests WHERE status = 'pending'")
    assert resume(server, tmp_path).out == f"{request}  Bash  pending\n"
    assert approver.post(f"/confirm/{request}/approve").status_code == 200
    command = (
        f"cd {tmp_path} && claude --resume s-1 -p"
        " 'Your call of Bash was approved. Make it again, exactly as before, and go on.'"
    )
    for _ in range(2):
        assert resume(server, tmp_path).out == f"{request}  Bash  approved\n  {command}\n"
    write_agent(tmp_path, 'echo "$(pwd) $2 ${CONFIRMATION_TOKEN:-no token}" > arguments\nexit 3')
    done = resume(server, tmp_path, "--wait", "--run", path=str(tmp_path))
    assert done.code == 1 and "claude exited with 3. Run this again." in done.out
    assert (tmp_path / "arguments").read_text() == f"{tmp_path} s-1 no token\n"
    assert call_tool(server, tmp_path, "c2") == "allow: approved by alice"
    assert resume(server, tmp_path).out == "No request has outlived its agent.\n"
    assert server.rows("SELECT count(*) FROM requests") == [(1,)]


def answer(server: Running, command: str, verdict: str = "approve") -> str:
    """Decide the pending request for a command, and give its id."""
    rows = server.rows("SELECT id, details FROM requests WHERE status = 'pending'")
    (request_id,) = (str(row[0]) for row in rows if json.loads(str(row[1]))["command"] == command)
    assert server.client("approve", "alice").post(f"/confirm/{request_id}/{verdict}").status_code == 200
    return request_id


def write_agent(folder: Path, script: str) -> None:
    program = folder / "claude"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


@pytest.mark.slow
def test_an_agent_that_could_not_be_continued_is_not_forgotten(server, tmp_path):
    call_tool(server, tmp_path, "c1")
    request = answer(server, "make", "deny")
    missing = resume(server, tmp_path, "--run")
    assert missing.code == 1 and "claude could not start: No such file or directory" in missing.err
    write_agent(tmp_path, "exit 1")
    assert resume(server, tmp_path, "--run", path=str(tmp_path)).code == 1
    assert resume(server, tmp_path).out.startswith(f"{request}  Bash  denied\n")
    write_agent(tmp_path, "exit 0")
    assert resume(server, tmp_path, "--run", path=str(tmp_path)).code == 0
    assert resume(server, tmp_path).out == "No request has outlived its agent.\n"


@pytest.mark.slow
def test_an_answer_is_used_while_another_request_waits_and_also_if_it_comes_later(server, tmp_path):
    for name in ("one", "two", "three"):
        call_tool(server, tmp_path, name, name)
    pending = [str(row[0]) for row in server.rows("SELECT id FROM requests ORDER BY id")]
    commands = dict(server.rows("SELECT id, json_extract(details, '$.command') FROM requests"))
    answer(server, str(commands[pending[-1]]))
    os.mkfifo(tmp_path / "continued")
    write_agent(tmp_path, 'echo "$4" > continued')
    following = subprocess.Popen(
        [sys.executable, "-m", "whet", "confirm", "resume", "--wait", "--run"],
        env=os.environ | variables(server, tmp_path, str(tmp_path)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "was approved" in (tmp_path / "continued").read_text()  # two still wait
    another = resume(server, tmp_path, "--run")
    assert another.code == 1 and "another" in another.err
    call_tool(server, tmp_path, "four", "four")  # of an agent that ended only now
    for name in (str(commands[pending[0]]), str(commands[pending[1]]), "four"):
        answer(server, name, "deny")
        assert "was not approved" in (tmp_path / "continued").read_text()
    out, _ = following.communicate(timeout=30)
    assert following.returncode == 0 and out.count("exited with 0") == 4


def test_an_agent_whose_hook_still_waits_is_not_continued(server, tmp_path):
    call_tool(server, tmp_path, "c1")
    request = answer(server, "make")
    kept = KeptCalls(tmp_path / "confirm" / "kept")
    (call,) = kept
    with kept.hold(call):
        assert resume(server, tmp_path, "--run").out == f"{request}  Bash  approved: its agent still runs\n"
    assert f"{request}  Bash  approved\n  cd " in resume(server, tmp_path).out


@pytest.mark.slow
def test_an_answer_counts_for_one_call_and_a_denial_for_its_own(server, tmp_path):
    approver = server.client("approve", "alice")

    def decide(verdict: str) -> None:
        for (request,) in server.rows("SELECT id FROM requests WHERE status = 'pending'"):
            assert approver.post(f"/confirm/{request}/{verdict}", json={"reason": "no"}).status_code == 200

    assert call_tool(server, tmp_path, "c1").startswith("deny")
    decide("approve")
    unanswered = "deny: not confirmed: nobody has answered"
    assert call_tool(server, tmp_path, "c2", "make clean").startswith(unanswered)
    assert call_tool(server, tmp_path, "c3").startswith("allow")
    assert call_tool(server, tmp_path, "c4").startswith("deny: not confirmed: nobody has answered")
    decide("deny")
    assert call_tool(server, tmp_path, "c4").startswith("deny: not confirmed: denied by alice: no")
    assert call_tool(server, tmp_path, "c5").startswith("deny: not confirmed: nobody has answered")
    assert server.rows("SELECT count(*) FROM requests") == [(4,)]


@pytest.mark.parametrize("agent", HOOK_AGENTS)
def test_the_setting_and_the_command_of_each_agent(agent, tmp_path):
    assert "--keep 3600" in HookCommand(agent, ("whet",), keep_s=3600).line
    words = KeptCall("r", agent, "s-1", "/srv", "Bash").command(RECORD)
    assert agent == "pi" or (words and sum("s-1" in word for word in words) == 1)
    assert KeptCall("r", agent, "--help", "/srv", "Bash").command(RECORD) == ()
    denied = KeptCall("r", agent, "s-1", "/srv", "Bash").command({"status": "denied", "reason": "{session}"})
    assert agent == "pi" or "The reason: {session}" in denied[-1]


def test_files_of_kept_calls(tmp_path):
    kept, call = KeptCalls(tmp_path / "kept"), KeptCall("r", "codex", "s", "/srv", "Bash")
    assert list(kept) == []
    kept.add(call)
    assert list(kept) == [call]
    kept.remove(call)
    kept.remove(call)
    assert list(kept) == []
