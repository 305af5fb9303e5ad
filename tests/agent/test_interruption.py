"""A turn's time limit: it stands still while anybody is asked, in the turn or in one that it started."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.rig import calls, rig
from tests.support import let_pass
from whet.agent.interruption import TurnClock, finish_or_undo, finish_shielded
from whet.agent.session import TurnLimits
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import Tool, ToolContext
from whet.tools.signature import tool
from whet_lab.practice.script import ScriptedReply


async def go_by(seconds: float) -> None:
    """Let time pass, and every limit that ends by then end."""
    let_pass(seconds)
    for _ in range(5):
        await asyncio.sleep(0)


async def ends_after(clock: TurnClock, left_s: float) -> None:
    """Check that a clock that runs has this much left, to the second."""
    await go_by(left_s - 1)
    reached = clock.left_s
    assert reached is not None and 0 < reached <= 1
    await go_by(1.5)
    raise AssertionError("the limit has passed")


async def test_a_turn_ends_when_its_time_is_used_up() -> None:
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as clock:
            await ends_after(clock, 8)


async def test_time_in_which_a_person_is_asked_does_not_count() -> None:
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as clock:
            await go_by(5)
            for _ in range(2):
                with clock.paused():
                    await go_by(100)
            await ends_after(clock, 3)


async def test_with_two_questions_at_once_the_clock_goes_on_at_the_last_answer() -> None:
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as clock:
            with ExitStack() as last:
                with ExitStack() as first:
                    first.enter_context(clock.paused())
                    await go_by(20)
                    last.enter_context(clock.paused())
                    await go_by(20)
                await go_by(20)
            await ends_after(clock, 8)


async def test_a_question_of_a_part_stops_the_clocks_up_to_the_root() -> None:
    with pytest.raises(TimeoutError):
        async with (
            TurnClock(8) as root,
            TurnClock(20, root.paused) as helper,
            TurnClock(30, helper.paused) as deepest,
        ):
            with deepest.paused():
                await go_by(100)
            await ends_after(root, 8)


async def test_two_parts_that_ask_at_once_hold_their_root_to_the_last_answer() -> None:
    with pytest.raises(TimeoutError):
        async with (
            TurnClock(8) as root,
            TurnClock(20, root.paused) as clock,
            TurnClock(20, root.paused) as other,
        ):
            with ExitStack() as last:
                with clock.paused():
                    last.enter_context(other.paused())
                    await go_by(15)
                await go_by(15)  # one goes on meanwhile: its person has answered
            await ends_after(root, 8)


async def test_a_question_of_the_root_leaves_the_clock_of_its_part_running() -> None:
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as root, TurnClock(8, root.paused):
            with root.paused():
                await go_by(9)


async def test_asking_does_not_bring_back_time_that_has_run_out() -> None:
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as clock:
            let_pass(8)
            with clock.paused():
                await go_by(1)
                raise AssertionError("the limit has passed")


async def test_a_turn_that_ends_while_somebody_is_asked_stays_ended() -> None:
    """A helper's own limit is cut off by its parent's; what is left of the pause changes nothing."""
    with pytest.raises(TimeoutError):
        async with TurnClock(8) as clock:
            with pytest.raises(asyncio.CancelledError), clock.paused():
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                await asyncio.sleep(0)
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            await ends_after(clock, 8)


async def test_a_turn_without_a_limit_can_be_asked_in_and_has_none_afterwards() -> None:
    async with TurnClock(None) as clock:
        with clock.paused(), clock.paused():
            await go_by(1e6)
        await go_by(1e6)
        assert clock.left_s is None


class Slow(NobodyPresent):
    """A person who takes longer than the turn may."""

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        await go_by(100)
        return choices[0]


def asking() -> Tool:
    @tool(toolset="file", effects={"read"}, timeout_s=None)
    async def wonder(ctx: ToolContext) -> str:
        """Ask."""
        return f"it is {await ctx.ask('Which?', ('blue', 'red'))}"

    return wonder


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_slow_answer_to_the_models_question_ends_no_turn(tmp_path: Path, steps: int) -> None:
    script = [calls(*[("wonder", "{}")] * steps), ScriptedReply("Done.")]
    limits = TurnLimits(steps=9, turn_s=60)
    async with rig(tmp_path, script, limits=limits, person=Slow(), more_tools=[asking()]) as r:
        end = await r.turn("go")
        assert (end.reason, end.text) == ("answered", "Done."), end.error
        assert [m.text for m in r.session.log.messages if m.role == "tool"] == ["it is blue"] * steps


async def test_a_slow_approval_ends_no_turn(tmp_path: Path) -> None:
    limits = TurnLimits(steps=9, turn_s=60)
    script = [calls(("put", '{"what": "a"}')), ScriptedReply("Done.")]
    async with rig(tmp_path, script, limits=limits) as r:
        r.gate.takes = lambda: go_by(100)
        assert (await r.turn("go")).reason == "answered"
        assert r.trace() == ["put a"]


async def test_a_question_that_outlasts_its_turn_ends_nothing_later() -> None:
    clock = TurnClock(8)
    with ExitStack() as question:
        async with clock:
            question.enter_context(clock.paused())
        await go_by(100)
    await go_by(100)
    assert clock.left_s is None


async def test_how_long_a_person_was_asked_is_counted_once() -> None:
    now_s = 10.0
    clock = TurnClock(None, now_s=lambda: now_s)
    async with clock:
        with clock.paused():
            now_s += 5
            with clock.paused():
                now_s += 2
            assert clock.paused_s == 7.0
        now_s += 30
        assert clock.paused_s == 7.0


@pytest.mark.parametrize(("ends", "undone"), [("given", ["it"]), ("cancelled", []), ("failed", [])])
async def test_what_was_given_to_a_task_that_was_cancelled_is_undone(ends: str, undone: list[str]) -> None:
    taken_back: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        if ends == "given":
            return "it"
        raise asyncio.CancelledError if ends == "cancelled" else ValueError("broken")

    async def take_back(what: str) -> None:
        await asyncio.sleep(0)
        taken_back.append(what)

    task = asyncio.ensure_future(finish_or_undo(work(), take_back))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken_back == undone


async def test_an_error_of_work_that_is_lost_to_a_cancellation_is_not_reported() -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: reports.append(facts["message"]))
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()
        raise ValueError("broken")

    task = asyncio.ensure_future(finish_shielded(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    del task
    gc.collect()
    assert reports == []
