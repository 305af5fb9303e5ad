"""Editors that go away or send nonsense, and sessions that are open in two places."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, text_block

from tests.editors.rig import Desk, does, editing, pick
from tests.editors.test_files import results
from tests.support import within
from whet_lab.practice.script import Fault, ScriptedReply


class Wire:
    """`whet acp` spoken to by hand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def send(self, number: int, method: str, **params: Any) -> None:
        row = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.stdin.write(json.dumps(row).encode() + b"\n")
        self.stdin.flush()

    def until(self, **wanted: Any) -> dict[str, Any]:
        """Read messages up to one with these fields."""
        while True:
            found = json.loads(within(self.stdout.readline, f"a message with {wanted}"))
            if all(found.get(key) == value for key, value in wanted.items()):
                return found

    def begin(self, folder: Path) -> str:
        """Shake hands and begin a session."""
        self.send(1, "initialize", protocolVersion=1)
        self.until(id=1)
        self.send(2, "session/new", cwd=str(folder), mcpServers=[])
        return self.until(id=2)["result"]["sessionId"]

    def say(self, number: int, session_id: str, text: str) -> None:
        self.send(number, "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])


@contextmanager
def by_hand(desk: Desk, folder: Path) -> Generator[Wire]:
    """Start another `whet acp` in the desk's home."""
    folder.mkdir(exist_ok=True)
    flags = ["--provider", "practice", "--base-url", desk.server.base_url, "--model", "practice"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "acp", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, "WHET_HOME": str(desk.home)},
    )
    wire = Wire(process)
    try:
        yield wire
    finally:
        wire.stdin.close()
        process.wait(30)
        wire.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["input", "output"])
async def test_an_editor_that_dies_while_it_is_asked_decides_nothing_and_the_session_goes_on(
    desk: Desk, way: str
) -> None:
    write = does("write_file", path=f"{way}.txt", content="x")
    desk.server.install([write, ScriptedReply("never")])
    work = desk.work / way
    with by_hand(desk, work) as wire:
        session_id = wire.begin(work)
        wire.say(3, session_id, "write it")
        wire.until(method="session/request_permission")
        (wire.stdin if way == "input" else wire.stdout).close()
        assert wire.process.wait(30) == 0
    await desk.connection.load_session(cwd=str(work), session_id=session_id, mcp_servers=[])
    desk.editor.answer = pick("allow_once")
    desk.server.install([write, ScriptedReply("And on.")])
    assert await desk.ask(session_id, "go on") == "end_turn"
    said = results(desk)
    assert "was not started" in said[0] and f"created {way}.txt" in said[1]
    assert ("write", str(work / f"{way}.txt")) in desk.editor.files


@pytest.mark.slow
async def test_a_session_that_works_elsewhere_is_shown_and_its_prompts_are_refused_until_then(
    desk: Desk,
) -> None:
    other = desk.work / "elsewhere"
    slow = ScriptedReply("slow", fault=Fault(stall_after=0))
    desk.server.install([slow, ScriptedReply("mine"), ScriptedReply("theirs"), ScriptedReply("mine again")])
    async with editing(desk.home, desk.server, other) as (_, connection, _):
        made = await connection.new_session(cwd=str(other), mcp_servers=[])
        at = made.session_id
        prompt = [text_block("hello")]
        turn = asyncio.create_task(connection.prompt(session_id=at, prompt=prompt))
        await asyncio.to_thread(desk.server.wait_for_stall)
        await desk.connection.load_session(cwd=str(other), session_id=at, mcp_servers=[])
        assert desk.editor.said() == "hello"
        with pytest.raises(RequestError) as error:
            await desk.ask(at, "me too")
        assert "\n" not in str(error.value) and "process" in str(error.value)
        desk.server.release()
        await turn
        assert await desk.ask(at, "now") == "end_turn"
        await connection.prompt(session_id=at, prompt=[text_block("and I")])
        assert await desk.ask(at, "and now") == "end_turn"
    rows = desk.server.requests[-1].json_body["messages"]
    said = [str(row["content"]).split("\n")[0] for row in rows if row["role"] in ("user", "assistant")]
    assert said == ["hello", "slow", "now", "mine", "and I", "theirs", "and now"]


async def test_a_closed_session_takes_nothing_more_and_can_be_opened_again(desk: Desk) -> None:
    session_id = await desk.session("auto")
    desk.server.install(
        [ScriptedReply("slow", fault=Fault(stall_after=0)), ScriptedReply("here"), ScriptedReply("again")]
    )
    turn = asyncio.create_task(desk.ask(session_id, "go"))
    await asyncio.to_thread(desk.server.wait_for_stall)
    await desk.connection.close_session(session_id=session_id)
    assert await turn == "cancelled"
    desk.server.release()
    with pytest.raises(RequestError):
        await desk.ask(session_id, "still?")
    await desk.connection.cancel(session_id=session_id)
    desk.editor.updates.clear()
    opened = await desk.connection.resume_session(cwd=str(desk.work), session_id=session_id)
    assert opened.modes.current_mode_id == "ask" and desk.editor.said() == ""
    assert await desk.ask(session_id, "now") == "end_turn"
    assert results(desk) == []
