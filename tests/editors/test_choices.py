"""What a person chooses and is told in the editor: forms, modes, models, usage, titles, cancels."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import ConfigOptionUpdate, CurrentModeUpdate, SessionInfoUpdate, ToolCallStart, UsageUpdate

from tests.editors.rig import Desk, does, pick
from tests.editors.test_files import results
from whet_lab.practice.script import Fault, ScriptedReply

pytestmark = pytest.mark.unconfined


def chosen(config_options: list[Any]) -> dict[str, str]:
    """The current value of each option."""
    return {config_option.id: config_option.current_value for config_option in config_options}


@pytest.mark.parametrize("filled", ["Blue, please.", None])
async def test_an_open_question_is_a_form_in_the_editor(desk: Desk, filled: str | None) -> None:
    desk.server.install([does("clarify", question="Which colour?"), ScriptedReply("I see.")])
    desk.editor.filled = lambda mode: filled
    assert await desk.ask(await desk.session(), "paint it") == "end_turn"
    [(message, mode)] = desk.editor.forms
    assert message == "The assistant asks: Which colour?"
    assert [one.tool_call_id for one in desk.editor.of(ToolCallStart)] == [mode.tool_call_id]
    assert results(desk) == [filled or results(desk)[0]]
    assert filled or "Nobody is here to answer" in results(desk)[0]


@pytest.mark.parametrize(("picked", "said"), [("red", "red"), ("mauve", "Nobody is here")])
async def test_choices_are_a_list_in_the_form_and_nothing_else_counts(
    desk: Desk, picked: str, said: str
) -> None:
    desk.server.install([does("clarify", question="Which?", choices=["red", "blue"]), ScriptedReply("ok")])
    desk.editor.filled = lambda mode: picked
    await desk.ask(await desk.session(), "paint it")
    [(_, mode)] = desk.editor.forms
    assert mode.requested_schema.properties["answer"].enum == ["red", "blue"]
    assert results(desk)[0].startswith(said)


async def test_mode_and_model_are_options_and_say_so_when_they_change(desk: Desk) -> None:
    session = await desk.connection.new_session(cwd=str(desk.work), mcp_servers=[])
    at = session.session_id
    assert chosen(session.config_options) == {"mode": "ask", "model": "practice"}
    changed = await desk.connection.set_config_option(config_id="mode", session_id=at, value="deny")
    assert chosen(changed.config_options)["mode"] == "deny"
    await desk.editor.until(lambda: bool(desk.editor.of(CurrentModeUpdate, at)))
    desk.server.install([does("write_file", path="no.txt", content="x"), ScriptedReply("Then not.")])
    await desk.ask(at, "write")
    assert desk.editor.asked == [] and "said no" in results(desk)[0]
    await desk.connection.set_session_mode(session_id=at, mode_id="auto")
    told = desk.editor.of(ConfigOptionUpdate, at)[-1]
    assert chosen(told.config_options)["mode"] == "auto"
    for config_id, value in (("mode", "root"), ("model", "nobody's"), ("colour", "red")):
        with pytest.raises(RequestError):
            await desk.connection.set_config_option(config_id=config_id, session_id=at, value=value)


@pytest.mark.slow
async def test_a_model_is_chosen_for_one_session_by_option_and_by_command(desk: Desk) -> None:
    session = await desk.connection.new_session(cwd=str(desk.work), mcp_servers=[])

    # The list comes from the server: with the session, or a little later as an update.
    def others() -> list[str]:
        told = desk.editor.of(ConfigOptionUpdate, session.session_id)
        latest = told[-1].config_options if told else session.config_options
        [model] = [one for one in latest if one.id == "model"]
        return [option.value for option in model.options if option.value != "practice"]

    await desk.editor.until(lambda: bool(others()))
    other = others()[0]
    set_to = await desk.connection.set_config_option(
        config_id="model", session_id=session.session_id, value=other
    )
    assert chosen(set_to.config_options)["model"] == other
    desk.server.install([ScriptedReply("hello"), ScriptedReply("hello"), ScriptedReply("hello")])
    await desk.ask(session.session_id, "hello")
    assert desk.server.requests[-1].json_body["model"] == other
    loaded = await desk.connection.load_session(
        cwd=str(desk.work), session_id=session.session_id, mcp_servers=[]
    )
    assert chosen(loaded.config_options)["model"] == other
    await desk.ask(await desk.session(), "hello")
    assert desk.server.requests[-1].json_body["model"] == "practice"
    await desk.ask(session.session_id, "/model practice")
    told = desk.editor.of(ConfigOptionUpdate, session.session_id)[-1]
    assert chosen(told.config_options)["model"] == "practice"
    await desk.ask(session.session_id, "hello")
    assert desk.server.requests[-1].json_body["model"] == "practice"


async def test_usage_and_title_are_told(desk: Desk) -> None:
    desk.server.install([ScriptedReply("hello")])
    session_id = await desk.session()
    await desk.ask(session_id, "Say hello to everybody")
    [usage] = desk.editor.of(UsageUpdate, session_id)
    assert 0 < usage.used < usage.size
    [info] = desk.editor.of(SessionInfoUpdate, session_id)
    assert info.title == "Say hello to everybody"


@pytest.mark.slow
async def test_two_prompts_at_once_are_answered_in_order_and_a_cancel_ends_both(desk: Desk) -> None:
    session_id = await desk.session()
    slow = ScriptedReply("first", fault=Fault(stall_after=0), when="one")
    desk.server.install([slow, ScriptedReply("second", when="two")])
    task = asyncio.create_task(desk.ask(session_id, "one"))
    await asyncio.to_thread(desk.server.wait_for_stall)
    two = asyncio.create_task(desk.ask(session_id, "two"))
    desk.server.release()
    assert (await task, await two) == ("end_turn", "end_turn")
    assert desk.editor.text(session_id=session_id) == "firstsecond"
    desk.server.reset()
    desk.server.install([ScriptedReply("slow", fault=Fault(stall_after=0)), ScriptedReply("never")])
    task = asyncio.create_task(desk.ask(session_id, "one"))
    await asyncio.to_thread(desk.server.wait_for_stall)
    two = asyncio.create_task(desk.ask(session_id, "/context"))
    await asyncio.sleep(0)  # it is on its way before the cancel
    await desk.connection.cancel(session_id=session_id)
    assert (await task, await two) == ("cancelled", "cancelled")
    desk.server.release()


async def test_a_cancel_ends_a_question_in_a_form(desk: Desk) -> None:
    desk.server.install([does("clarify", question="Which?"), ScriptedReply("never")])
    session_id = await desk.session()
    desk.editor.hold.clear()
    turn = asyncio.create_task(desk.ask(session_id, "ask me"))
    await desk.editor.until(lambda: bool(desk.editor.forms))
    await desk.connection.cancel(session_id=session_id)
    assert await turn == "cancelled"
    desk.editor.hold.set()


async def test_a_cancel_ends_a_command_that_runs_with_its_children(desk: Desk) -> None:
    length = f"600.{os.getpid()}"  # a confined command's process ids are its own: it is known by its words
    command = f"(sleep {length} & printf be%s gun; wait)"
    desk.server.install([does("terminal", command=command), ScriptedReply("never")])
    session_id = await desk.session("auto")
    desk.editor.answer = pick("allow_once")
    turn = asyncio.create_task(desk.ask(session_id, "sleep"))
    await desk.editor.until(lambda: "begun" in str(desk.editor.updates))
    await desk.connection.cancel(session_id=session_id)
    assert await turn == "cancelled"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _words(pid) == ["sleep", length]]


def _words(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []
