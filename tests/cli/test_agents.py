"""`whet agents`, and the commands of whet inside the chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Tty, chatting, flags, run
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


def agents(folder: Path) -> list[dict[str, str]]:
    return json.loads(run(["agents", "--json"], folder)[1])["agents"]


def test_a_new_home_has_no_agents(folder: Path) -> None:
    assert agents(folder) == []
    code, out, _ = run(["agents"], folder)
    assert code == 0 and "no session was active" in out


@pytest.mark.slow
def test_a_session_is_seen_from_elsewhere_while_it_waits_and_can_be_stopped(folder: Path) -> None:
    ask = PracticeCall("clarify", json.dumps({"question": "Which colour?"}))
    write = PracticeCall("write_file", json.dumps({"path": "a.txt", "content": "a\n"}))
    script = [
        ScriptedReply("", tool_calls=(write,)),
        ScriptedReply("Done."),
        ScriptedReply("", tool_calls=(ask,)),
    ]
    with chatting(folder, script) as (_, tty):
        tty.type("write it\r", "Enter alone is no:")
        [row] = agents(folder)
        assert (row["state"], row["detail"], row["title"]) == (
            "waiting",
            "a decision on write_file",
            "write it",
        )
        code, shown, _ = run(["agents", "show", row["id"]], folder)
        assert code == 0 and "waiting: a decision on write_file" in shown
        assert "answer it at its terminal" in shown
        tty.type("1", "Done.", "2 steps")
        assert [row["state"] for row in agents(folder)] == ["done"]
        assert run(["agents", "stop", row["id"]], folder)[0] == 1
        tty.type(
            "now ask\r", "Which colour?", "Type your answer, then Enter. Enter alone and Esc give no answer"
        )
        assert [row["detail"] for row in agents(folder)] == ["an answer to its question"]
        assert run(["agents", "stop", row["id"]], folder)[0] == 0
        tty.wait_for("cancelled")
        assert [row["state"] for row in agents(folder)] == ["stopped"]
        assert tty.leave("/quit\r") == 0


@pytest.mark.slow
def test_a_turn_whose_process_was_killed_is_cut_off(folder: Path) -> None:
    write = PracticeCall("write_file", json.dumps({"path": "a.txt", "content": "a\n"}))
    with PracticeServer(script=[ScriptedReply("", tool_calls=(write,))]) as server:
        with Tty(["chat", *flags(server)], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("write it\r", "Enter alone is no:")
        assert [row["state"] for row in agents(folder)] == ["cut off"]


@pytest.mark.slow
def test_commands_of_whet_run_inside_the_chat(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("Written.")]) as (server, tty):
        tty.type("/mcp\r", "no MCP servers")
        tty.type("/hooks\r", "no hooks")
        tty.type("/theme light\r", "ui.theme = light")
        tty.type("/config\r", "ui.theme")
        tty.type("/config ui.keys vi\r", "from the next start")
        tty.type("/agents\r", "  new ")
        tty.type("/theme pink\r", "there is no theme 'pink'")
        tty.type("/init\r", "Written.")
        assert "AGENTS.md" in server.requests[-1].body.decode()
        assert tty.leave("/quit\r") == 0
    assert "light" in run(["config", "get", "ui.theme"], folder)[1]
