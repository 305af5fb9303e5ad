"""Where an engine's calls are made: on a lane of its own, and a quick one's at once while that is idle."""

from __future__ import annotations

import asyncio
import threading

import pytest

from whet.context.engine_runner import Deadlines, EngineRunner
from whet.context.engines import NO_ENGINE, NoEngine
from whet.contract.context_engine import EngineOffer


async def seat_of(*, is_quick: bool) -> EngineRunner:
    seat = await EngineRunner.create(
        EngineOffer("x", "", fresh=NoEngine, is_quick=is_quick), Deadlines(), foreground=True
    )
    assert isinstance(seat, EngineRunner)
    return seat


async def where(seat: EngineRunner, deadline_s: float = 0.0) -> str:
    outcome = await seat.run("a hook", lambda: threading.current_thread().name, deadline_s)
    return outcome.value or ""


def test_no_engine_gives_the_list_as_it_is() -> None:
    rows = [{"role": "user", "content": "go"}]
    assert NoEngine().compress(rows) is rows and not NoEngine().should_compress(10**9)
    assert NO_ENGINE.is_quick, "it needs no thread"


async def test_a_quick_engine_needs_a_thread_for_what_has_a_deadline_only() -> None:
    here = threading.current_thread().name
    quick, other = await seat_of(is_quick=True), await seat_of(is_quick=False)
    assert await where(quick) == here and await where(quick, 5) == "engine-x"
    assert await where(other) == "engine-x"
    await quick.close()
    await other.close()


async def test_calls_of_a_quick_engine_never_run_at_the_same_time() -> None:
    seat, release = await seat_of(is_quick=True), threading.Event()
    compaction = asyncio.create_task(seat.run("compress", lambda: release.wait(20), 20))
    await asyncio.sleep(0)  # it is on the lane
    later = asyncio.create_task(where(seat))
    await asyncio.sleep(0)
    assert not later.done()
    release.set()
    assert await later == "engine-x"
    await compaction
    await seat.close()


@pytest.mark.parametrize(
    ("said", "threshold"),
    [
        *[(1, 1), (1.9, 1), (0, 0), (-1, 0), (True, 0), ("9", 0), (float("nan"), 0), (float("inf"), 0)],
        *[((1 << 53) - 1, (1 << 53) - 1), (1 << 53, 0)],
    ],
)
async def test_a_threshold_that_is_no_number_of_tokens_is_none(said: object, threshold: int) -> None:
    seat = await seat_of(is_quick=True)
    seat.engine.threshold_tokens = said  # type: ignore[assignment]
    assert seat.threshold == 0, "nobody has asked it yet"
    await seat.run("a hook", list)
    assert seat.threshold == threshold
    await seat.close()


async def test_a_hook_that_fails_is_noted_and_the_next_one_follows() -> None:
    def fail() -> None:
        raise ValueError("no disk")

    seat = await seat_of(is_quick=True)
    done: list[int] = []
    assert await seat.run_hooks([("one", lambda: done.append(1)), ("two", lambda: done.append(2))])
    assert not await seat.run_hooks([("three", fail), ("four", lambda: done.append(4))])
    seat.note("y" * 401)
    assert seat.notices.pop() == f"context engine {'y' * 400}"
    assert done == [1, 2, 4] and seat.notices == ["context engine x failed in three: ValueError: no disk"]
    await seat.close()


def test_what_can_not_be_made_says_why() -> None:
    async def taken(offer: EngineOffer) -> EngineRunner | str:
        return await EngineRunner.create(offer, Deadlines(), foreground=False)

    def fail() -> NoEngine:
        raise ValueError("no disk")

    nothing = asyncio.run(taken(EngineOffer("x", "")))
    assert nothing == "TypeError: x offers no way to make an engine"
    assert asyncio.run(taken(EngineOffer("x", "", fresh=fail))) == "ValueError: no disk"
    number = EngineOffer("x", "", fresh=lambda: 3)  # type: ignore[arg-type,return-value]
    assert asyncio.run(taken(number)) == "TypeError: fresh gave int, no engine"
