"""A cancel that comes while a write is on its way: what is stored by then was told, and is ended."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.agent.rig import Rig, calls, rig
from tests.support import let_pass
from whet.agent.loop import run_turn
from whet.contract.errors import NotFound
from whet.contract.events import Event, StepFinished, TextDelta, ToolProgress, ToolStarted
from whet.contract.messages import Message
from whet.contract.tools import ToolContext
from whet.tools.signature import tool
from whet_lab.practice.script import ScriptedReply

ANSWER = ScriptedReply("All done.")


class SlowDisk:
    """Writes wait from `hold` until `release`."""

    def __init__(self, r: Rig) -> None:
        self._database = r.database
        self._go_on = threading.Event()

    def hold(self) -> None:
        """Return when every further write waits."""
        held = threading.Event()
        self._database.submit(lambda _: (held.set(), self._go_on.wait(60)))
        assert held.wait(60)

    def release(self) -> None:
        self._go_on.set()


async def write_is_on_its_way(r: Rig) -> None:
    """Return when the session has begun a write that is not there yet."""
    async with asyncio.timeout(60):
        while True:
            waiting = asyncio.ensure_future(r.session.log.drain())
            await asyncio.sleep(0)
            if not waiting.done():
                waiting.cancel()
                return
            await asyncio.sleep(0)


async def cancelled(turn: asyncio.Task[object], disk: SlowDisk, times: int = 2) -> None:
    """Cancel the turn while its write waits, then let that go on."""
    for _ in range(times):
        turn.cancel()
        await asyncio.sleep(0)
    assert not turn.done()
    disk.release()
    with pytest.raises(asyncio.CancelledError):
        await turn


@pytest.mark.parametrize("times", [1, 2])
async def test_a_reply_that_is_stored_after_the_cancel_is_told(tmp_path: Path, times: int) -> None:
    async with rig(tmp_path, [ANSWER, ANSWER]) as r:
        disk, said = SlowDisk(r), asyncio.Event()

        def emit(event: Event) -> None:
            r.events.append(event)
            if isinstance(event, TextDelta):
                disk.hold()
                said.set()

        turn = asyncio.ensure_future(run_turn(r.session, Message("user", "go"), emit))
        await said.wait()
        await write_is_on_its_way(r)
        await cancelled(turn, disk, times)
        assert [message.text for message in r.session.log.messages] == ["go", "All done."]
        assert len(r.seen(StepFinished)) == 1
        assert (await r.turn("again")).reason == "answered"


async def test_a_turn_that_is_stored_after_the_cancel_is_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, [ANSWER]) as r:
        disk = SlowDisk(r)
        disk.hold()
        turn = asyncio.ensure_future(r.turn("go"))
        await write_is_on_its_way(r)
        await cancelled(turn, disk)
        assert [message.text for message in r.session.log.messages] == ["go"]
        assert r.session.log.live.open_turn is None
        with pytest.raises(NotFound):
            await r.turn(None)
        assert (await r.turn("again")).reason == "answered"


async def test_a_result_that_is_stored_after_the_cancel_is_the_calls_only_one(tmp_path: Path) -> None:
    @tool(toolset="file", effects={"write"})
    async def leave(ctx: ToolContext) -> str:
        """Say that it is done, and be done."""
        ctx.output("done")
        return "left"

    async with rig(tmp_path, [calls(("leave", "{}")), ANSWER], more_tools=[leave]) as r:
        disk, done = SlowDisk(r), asyncio.Event()

        def emit(event: Event) -> None:
            if isinstance(event, ToolProgress):
                disk.hold()
                done.set()

        turn = asyncio.ensure_future(run_turn(r.session, Message("user", "go"), emit))
        await done.wait()
        await write_is_on_its_way(r)
        await cancelled(turn, disk)
        assert [message.text for message in r.session.log.messages[2:]] == ["left"]
        assert (await r.turn("again")).reason == "answered"


async def test_a_start_after_the_cancel_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    @tool(toolset="file", effects={"read"}, repeatable=True)
    async def stare(ctx: ToolContext) -> str:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with rig(tmp_path, [calls(("stare", "{}")), ANSWER], more_tools=[stare]) as r:
        disk = SlowDisk(r)
        turn = asyncio.ensure_future(r.turn("go"))
        await begun.wait()
        disk.hold()
        let_pass(1)
        await write_is_on_its_way(r)
        await cancelled(turn, disk)
        assert [message.role for message in r.session.log.messages] == ["user", "assistant", "tool"]
        assert not r.seen(ToolStarted), "nobody would hear of its end"
        assert (await r.turn("again")).reason == "answered"
        assert not caplog.records
