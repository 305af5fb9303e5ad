"""Editors that go away or send nonsense, and sessions that are open in two places."""

from __future__ import annotations

import asyncio

import pytest
from acp import RequestError, text_block

from tests.editors.rig import Desk, does, editing, pick
from tests.editors.test_files import results
from tests.editors.wire import by_hand
from whet_lab.practice.script import Fault, ScriptedReply


@pytest.mark.slow
@pytest.mark.parametrize("way", ["input", "output"])
async def test_an_editor_that_dies_while_it_is_asked_decides_nothing_and_the_session_goes_on(
    desk: Desk, way: str
) -> None:
    write = does("write_file", path=f"{way}.txt", content="x")
    desk.server.install([write, ScriptedReply("never")])
    work = desk.work / way
    with by_hand(desk.home, desk.server, work) as wire:
        session_id = wire.begin(work)
        wire.say(3, session_id, "write it")
        wire.until(method="session/request_permission")
        (wire.stdin if way == "input" else wire.stdout).close()
        assert wire.process.wait(30) == 0
    await desk.connection.load_session(cwd=str(work), session_id=session_id, mcp_servers=[])
    desk.editor.answer = pick("allow_once")
    desk.server.install([write, ScriptedReply("And on.")])
    assert await desk.ask(session_id, "go on") == "end_turn"
    texts = results(desk)
    assert "was not started" in texts[0] and f"created {way}.txt" in texts[1]
    assert ("write", str(work / f"{way}.txt")) in desk.editor.files


@pytest.mark.slow
async def test_a_session_that_works_elsewhere_is_shown_and_its_prompts_are_refused_until_then(
    desk: Desk,
) -> None:
    other = desk.work / "elsewhere"
    slow = ScriptedReply("slow", fault=Fault(stall_after=0))
    desk.server.install([slow, ScriptedReply("mine"), ScriptedReply("theirs"), ScriptedReply("mine again")])
    async with editing(desk.home, desk.server, other) as (_, connection, _):
        session = await connection.new_session(cwd=str(other), mcp_servers=[])
        at = session.session_id
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
    parts = [str(row["content"]).split("\n")[0] for row in rows if row["role"] in ("user", "assistant")]
    assert parts == ["hello", "slow", "now", "mine", "and I", "theirs", "and now"]


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
