"""A lane runs foreign code in order on its own thread, and survives all it does."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from tests.support import cancel_task
from whet.lanes import LaneTimeout, PluginLane, ToolPool, attempt, call_in_loop


async def test_calls_run_in_order_on_one_thread_off_the_loop() -> None:
    lane, order, threads = PluginLane("x"), list[int](), set[str]()

    def work(number: int) -> None:
        order.append(number)
        threads.add(threading.current_thread().name)

    for number in range(5):
        lane.submit(lambda number=number: work(number))
    await lane.run(lambda: work(5), 30)
    assert order == [0, 1, 2, 3, 4, 5] and threads == {"x"}
    lane.close()
    with pytest.raises(LaneTimeout):
        await lane.run(lambda: None, 30)


async def test_a_late_call_closes_the_lane_until_it_returns_and_what_waited_behind_it_never_runs() -> None:
    lane, release, ran = PluginLane("x"), threading.Event(), list[str]()
    lane.submit(lambda: release.wait(20))
    with pytest.raises(LaneTimeout):
        await lane.run(lambda: ran.append("late"), 0.05)
    assert lane.stuck
    with pytest.raises(LaneTimeout):
        await lane.run(lambda: ran.append("refused"), 30)
    release.set()
    async with asyncio.timeout(30):
        while lane.stuck:
            await asyncio.sleep(0)
    await lane.run(lambda: ran.append("again"), 30)
    assert ran == ["again"]
    lane.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), StopIteration(), asyncio.CancelledError()])
async def test_whatever_is_raised_is_an_outcome(error: BaseException) -> None:
    def work() -> None:
        raise error

    lane = PluginLane("x")
    assert (await lane.run(work, 30)).error is error
    assert (await lane.run(lambda: 7, 30)).value == 7
    lane.close()
    assert attempt(work).error is error


def test_a_hanging_call_does_not_keep_the_process_alive() -> None:
    code = (
        "import asyncio, threading\n"
        "from whet.lanes import PluginLane, LaneTimeout\n"
        "async def main():\n"
        "    try: await PluginLane('x').run(threading.Event().wait, 0.05)\n"
        "    except LaneTimeout: print('on')\n"
        "asyncio.run(main())\n"
    )

    async def main() -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        return out

    assert asyncio.run(main()) == b"on\n"


async def test_a_lane_is_idle_once_all_that_was_given_to_it_has_run_also_behind_a_cancelled_call() -> None:
    lane, begun, release = PluginLane("x"), threading.Event(), threading.Event()
    assert lane.idle

    def work() -> None:
        begun.set()
        release.wait(20)

    first = lane.submit(work)
    assert begun.wait(20)
    assert lane.submit(lambda: None).cancel() and not lane.idle
    release.set()
    first.result(20)
    assert lane.idle
    lane.close()
    assert not lane.idle


def test_a_loop_is_told_from_any_thread_until_it_is_closed() -> None:
    heard = list[str]()

    async def main() -> asyncio.AbstractEventLoop:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        assert await asyncio.to_thread(
            call_in_loop, loop, lambda word: (heard.append(word), event.set()), "here"
        )
        await event.wait()
        return loop

    loop = asyncio.run(main())
    assert heard == ["here"] and not call_in_loop(loop, heard.append, "gone")


async def test_who_is_cancelled_while_he_waits_takes_back_a_call_that_has_not_begun() -> None:
    lane, begun, release, ran = PluginLane("x"), threading.Event(), threading.Event(), list[str]()
    first = lane.submit(lambda: (begun.set(), release.wait(20)))
    waiting = asyncio.create_task(lane.run(lambda: ran.append("cancelled"), 30))
    assert await asyncio.to_thread(begun.wait, 20)
    await asyncio.sleep(0)
    await cancel_task(waiting)
    release.set()
    first.result(20)
    await lane.run(lambda: ran.append("next"), 30)
    assert ran == ["next"]
    lane.close()


async def test_a_pool_runs_tools_beside_each_other_and_a_closed_one_drops_what_has_not_begun() -> None:
    pool, release, both, ran = ToolPool(workers=2), threading.Event(), threading.Barrier(3), list[str]()
    pool.close()  # nothing was run yet

    def tool(word: str, *, end: str) -> str:
        both.wait(20)
        release.wait(20)
        return word + end

    running = [asyncio.create_task(pool.run(tool, word, end="!")) for word in ("a", "b")]
    queued = asyncio.create_task(pool.run(ran.append, "late"))
    await asyncio.to_thread(both.wait, 20)
    pool.close()
    release.set()
    assert await asyncio.gather(*running) == ["a!", "b!"]
    with pytest.raises(asyncio.CancelledError):
        await queued
    assert ran == []
    with pytest.raises(RuntimeError):
        await pool.run(ran.append, "closed")
