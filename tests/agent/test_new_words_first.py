"""A turn that a crash left is gone on with: newer words come before the calls that had not begun."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.rig import Rig, rig
from whet.agent.session import InboxEntry
from whet.contract.events import ToolFinished
from whet.contract.messages import Message, ToolCall, Usage
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ANSWER = ScriptedReply("All done.")
CALLS = (
    ToolCall("c1", "put", '{"what": "first"}'),
    ToolCall("c2", "put", '{"what": "drop the table"}'),
    ToolCall("c3", "look", '{"at": "here"}'),
)


@asynccontextmanager
async def left_open(
    folder: Path, *, started: int = 1, calls: tuple[ToolCall, ...] = CALLS
) -> AsyncGenerator[Rig]:
    """Open a session again whose process died during the first `started` calls of a step."""
    with PracticeServer(script=[ANSWER] * 3) as server:
        async with rig(folder, server=server) as r:
            log = r.session.log
            turn = await log.begin_turn(Message("user", "go"))
            await log.append_reply(turn, Message("assistant", tool_calls=calls), Usage(), "practice")
            for open_call in log.open_calls(turn)[:started]:
                await log.store_call_start(turn, open_call, "rule")
            log.close()
            session_id = r.session.id
        async with rig(folder, server=server, session_id=session_id) as r:
            yield r


def results(r: Rig) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]


async def test_words_are_read_before_calls_that_had_not_begun(tmp_path: Path) -> None:
    async with left_open(tmp_path) as r:
        assert (await r.turn("Stop! Do nothing more")).reason == "answered"
        assert r.trace() == [], "nothing ran"
        first, *rest = results(r)
        assert "its outcome is unknown" in first
        assert all(text.startswith("Not run: ") and "a new message arrived first" in text for text in rest)
        roles = "".join(message.role[0] for message in r.session.log.messages)
        assert roles == "uatttua", "the words come right after the results"
        assert len(r.server.requests) == 1 and b"Stop! Do nothing more" in r.server.requests[0].body
        ended = [(event.call_id, event.error_kind) for event in r.events if isinstance(event, ToolFinished)]
        assert sorted(ended) == [("c1", "interrupted"), ("c2", "cancelled"), ("c3", "cancelled")]


async def test_a_resume_without_words_runs_what_had_not_begun(tmp_path: Path) -> None:
    async with left_open(tmp_path) as r:
        assert (await r.turn(None)).reason == "answered"
        assert r.trace() == ["put drop the table", "look here"]


@pytest.mark.parametrize(("told", "runs"), [("", False), ("helper-1 is done", True)])
async def test_words_of_the_inbox_come_first_a_helpers_not(tmp_path: Path, told: str, runs: bool) -> None:
    async with left_open(tmp_path) as r:
        r.session.inbox.add(InboxEntry(Message("user", "Stop!"), notice=told))
        assert (await r.turn(None)).reason == "answered"
        assert bool(r.trace()) == runs
        assert r.session.log.messages[-2].text == "Stop!"


async def test_a_call_that_may_run_again_is_not_run_again_after_new_words(tmp_path: Path) -> None:
    async with left_open(tmp_path, started=2, calls=(CALLS[2], CALLS[1])) as r:
        assert (await r.turn("Stop!")).reason == "answered"
        assert r.trace() == []
        assert ["its outcome is unknown" in text for text in results(r)] == [True, True]
        assert ["a new message arrived first" in text for text in results(r)] == [True, False]
