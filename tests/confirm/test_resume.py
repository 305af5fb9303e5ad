"""Requests that outlive their agents: they wait, and the answer continues the agent by its own command."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    with Running(tmp_path / "service", rate=1000) as running:
        monkeypatch.setenv("CONFIRMATION_TOKEN", running.token("submit", "agent"))
        yield running


def call_tool(server: Running, folder: Path, call: str, command: str = "make") -> str:
    """Run the hook as an agent does, without time to wait. Return the decision and its reason."""
    event: dict[str, Any] = {"hook_event_name": "PreToolUse", "session_id": "s-1", "cwd": str(folder)}
    event |= {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call}
    ask = HookAsk(
        f"http://127.0.0.1:{server.port}", timeout_s=0, keep_s=3600, kept=folder / "confirm" / "kept"
    )
    answer = json.loads(run_hook(json.dumps(event), "claude-code", ask))["hookSpecificOutput"]
    return f"{answer['permissionDecision']}: {answer['permissionDecisionReason']}"


def resume(server: Running, folder: Path, *options: str, path: str = "") -> forked.Done:
    environ = {
        "WHET_HOME": str(folder), "WHET_CONFIRM_URL": f"http://127.0.0.1:{server.port}",
        "CONFIRMATION_TOKEN": os.environ["CONFIRMATION_TOKEN"], "PATH": f"{path}:{os.environ['PATH']}",
    }  # fmt: skip
    return forked.run(("confirm", "resume", *options), folder, environ=environ)


@pytest.mark.slow
def test_an_agent_that_ended_is_continued_with_the_answer(server: Running, tmp_path: Path) -> None:
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
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\necho "$(pwd) $2 ${CONFIRMATION_TOKEN:-no token}" > arguments\nexit 3\n')
    program.chmod(0o700)
    done = resume(server, tmp_path, "--wait", "--run", path=str(tmp_path))
    assert done.code == 0 and "claude exited with 3" in done.out
    assert (tmp_path / "arguments").read_text() == f"{tmp_path} s-1 no token\n"
    assert call_tool(server, tmp_path, "c2") == "allow: approved by alice"
    assert resume(server, tmp_path).out == "No request has outlived its agent.\n"
    assert server.rows("SELECT count(*) FROM requests") == [(1,)]


@pytest.mark.slow
def test_an_answer_counts_for_one_call_and_a_denial_for_its_own(server: Running, tmp_path: Path) -> None:
    approver = server.client("approve", "alice")

    def decide(verdict: str) -> None:
        for (request,) in server.rows("SELECT id FROM requests WHERE status = 'pending'"):
            assert approver.post(f"/confirm/{request}/{verdict}", json={"reason": "no"}).status_code == 200

    assert call_tool(server, tmp_path, "c1").startswith("deny")
    decide("approve")
    assert call_tool(server, tmp_path, "c2", "make clean").startswith(
        "deny: not confirmed: nobody has answered"
    )
    assert call_tool(server, tmp_path, "c3").startswith("allow")
    assert call_tool(server, tmp_path, "c4").startswith("deny: not confirmed: nobody has answered")
    decide("deny")
    assert call_tool(server, tmp_path, "c4").startswith("deny: not confirmed: denied by alice: no")
    assert call_tool(server, tmp_path, "c5").startswith("deny: not confirmed: nobody has answered")
    assert server.rows("SELECT count(*) FROM requests") == [(4,)]


@pytest.mark.parametrize("agent", HOOK_AGENTS)
def test_the_setting_and_the_command_of_each_agent(agent: str, tmp_path: Path) -> None:
    assert "--keep 3600" in HookCommand(agent, ("whet",), keep_s=3600).line
    words = KeptCall("r", agent, "s-1", "/srv", "Bash").command(RECORD)
    assert agent == "pi" or (words and sum("s-1" in word for word in words) == 1)
    assert KeptCall("r", agent, "--help", "/srv", "Bash").command(RECORD) == ()
    denied = KeptCall("r", agent, "s-1", "/srv", "Bash").command({"status": "denied", "reason": "{session}"})
    assert agent == "pi" or "The reason: {session}" in denied[-1]


def test_files_of_kept_calls(tmp_path: Path) -> None:
    kept, call = KeptCalls(tmp_path / "kept"), KeptCall("r", "codex", "s", "/srv", "Bash")
    assert list(kept) == []
    kept.add(call)
    assert list(kept) == [call]
    kept.remove(call)
    kept.remove(call)
    assert list(kept) == []
