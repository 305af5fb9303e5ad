"""`whet agents`, and the commands of whet inside the chat."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.app.opened import ask, practice_model
from tests.cli.running import Tty, chatting, flags, run
from whet.app.build import App
from whet.config.paths import find_home
from whet.config.schema import Settings
from whet.contract.protocols import ApprovalRequest, NobodyPresent
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
    question = PracticeCall("clarify", json.dumps({"question": "Which colour?"}))
    write = PracticeCall("write_file", json.dumps({"path": "a.txt", "content": "a\n"}))
    script = [
        ScriptedReply("", tool_calls=(write,)),
        ScriptedReply("Done."),
        ScriptedReply("", tool_calls=(question,)),
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
async def test_a_turn_in_another_program_is_shown_with_how_to_stop_it_there(folder: Path) -> None:
    outcomes: list[tuple[int, str, str]] = []

    class LookingPerson(NobodyPresent):
        async def approve(self, request: ApprovalRequest) -> None:
            for words in ("show", "stop"):
                outcomes.append(await asyncio.to_thread(run, ["agents", words, request.session_id], folder))

    write = PracticeCall("write_file", json.dumps({"path": "a.txt", "content": "a\n"}))
    with PracticeServer(script=[ScriptedReply("", tool_calls=(write,)), ScriptedReply("Done.")]) as server:
        settings = Settings(model=practice_model(server.base_url))
        app = await App.start(find_home(), settings, {}, LookingPerson(), folder, source="api")
        async with aclosing(app):
            await ask(await app.new_session(), "write it")
    (_, shown, _), (code, _, refusal) = outcomes
    assert "answer it at its api" in shown and "whet agents stop" not in shown
    assert code == 1 and "runs in another program (api)" in refusal


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
