"""A call to a helper that a kill cut off gets what the helper had come to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import ToolContext
from whet.practice.script import Fault, ScriptedReply
from whet.practice.server import PracticeServer


async def nobody(_question: str, _choices: object) -> None:
    return None


@pytest.mark.parametrize("is_done", [True, False])
def test_what_the_helper_said_is_the_calls_result_and_nothing_runs_twice(
    tmp_path: Path, home: Path, is_done: bool
) -> None:
    dug = ScriptedReply(text="Dug 7 holes.") if is_done else ScriptedReply(text="", fault=Fault(status=400))
    work = [
        dug,
        ScriptedReply(text="Handed on."),
    ]

    async def main(server: PracticeServer) -> list[str]:
        model = ModelSettings(provider="practice", model="practice-echo", base_url=server.base_url)
        app = await App.start(Home(home), Settings(model=model), {}, NobodyPresent(), tmp_path)
        session = await app.new_session()
        turn = await session.log.begin_turn(session.user_message("hand it on"))
        asked = ToolCall("call-1", "delegate_task", '{"task": "dig", "context": "here"}')
        reply = Message(role="assistant", content="", tool_calls=(asked,))
        await session.log.append_reply(turn, reply, Usage(), "m")
        [open_call] = session.log.open_calls(turn)
        await session.log.call_started(turn, open_call, "rule")
        context = ToolContext(session.id, turn.id, open_call.call.id, tmp_path, lambda _text: None, nobody)
        await app.sessions.delegate(context, "dig", "here")  # it is done, and its result was not stored
        try:
            await run_turn(session, None, lambda _event: None)
            return [message.text for message in session.log.messages if message.role == "tool"]
        finally:
            await app.aclose()

    with PracticeServer(script=work) as server:
        [result] = asyncio.run(main(server))
        assert len(server.requests) == 2
    assert ("Dug 7 holes.\n\n[helper session" in result) is is_done
    assert is_done or "it was not run again" in result
