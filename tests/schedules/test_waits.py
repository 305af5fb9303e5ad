"""A run that waits for its session, or for the run before it: its prompt is said in the end, once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

import pytest

from tests.schedules.rig import MINUTE_S, says
from tests.support import FixedClock
from whet.clock import Clock, SystemClock
from whet.contract.messages import Message, Usage
from whet.store import jobs, schedules, sessions
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript
from whet_lab.practice.script import Fault


class Owner:
    """Somebody who talks in a session by themselves."""

    def __init__(self, log: Transcript) -> None:
        self.log = log

    @classmethod
    async def come(cls, database: StateDatabase, clock: Clock) -> Owner:
        return cls(await Transcript.create(database, sessions.NewSession(id="held"), clock))

    async def ask(self, text: str) -> None:
        self.turn = await self.log.begin_turn(Message("user", text))

    async def hear(self, text: str) -> None:
        await self.log.append_reply(self.turn, Message("assistant", text), Usage(), "practice")
        await self.log.end_turn(self.turn, "answered", "")


async def test_a_drain_with_patience_waits_for_what_is_due_soon(bench, server):
    server.install([says("hello")])
    bench.add()
    bench.clock.advance(10 * MINUTE_S - 0.05)
    await bench.worker().drain()
    await bench.worker().drain(patience_s=0.04)
    assert bench.told == []
    waiting = asyncio.create_task(bench.worker().drain(patience_s=60))
    asyncio.get_running_loop().call_later(0.01, bench.clock.advance, 0.05)
    await waiting
    assert [finished.run.text for finished in bench.told] == ["hello"]


async def test_a_run_waits_long_for_its_session_and_then_says_its_own_prompt(bench, server):
    server.install([says("after you")])
    owner = await Owner.come(bench.database, SystemClock())
    await owner.ask("mine")
    bench.add(session_id="held")
    bench.clock.advance(10 * MINUTE_S)
    for _ in range(5):
        await bench.worker().drain()
        bench.clock.advance(MINUTE_S)
    assert bench.told == [] and server.count == 0
    await owner.hear("yours")
    await owner.ask("and more of mine")
    await owner.hear("more of yours")
    owner.log.close()
    await bench.worker().drain()
    [finished] = bench.told
    assert (finished.run.result, finished.run.text) == ("answered", "after you")
    assert server.count == 1


def test_a_run_that_waits_for_its_session_comes_to_an_end_when_its_schedule_is_paused(bench, server):
    server.install([says("after you")])
    made = bench.add(session_id="held")

    async def story() -> None:
        owner = await Owner.come(bench.database, SystemClock())
        await owner.ask("mine")
        bench.clock.advance(10 * MINUTE_S)
        await bench.worker().drain()
        bench.database.write_now(lambda db: schedules.pause(db, made.id))
        assert bench.next(made) == ""
        await owner.hear("yours")
        owner.log.close()
        bench.clock.advance(MINUTE_S)
        await bench.worker().drain()

    asyncio.run(story())
    assert [run.result for run in bench.runs(made)] == ["answered"]
    assert bench.after(20 * MINUTE_S) == []


async def test_a_run_that_waits_for_its_session_is_gone_with_its_schedule(bench):
    made = bench.add(session_id="held")
    owner = await Owner.come(bench.database, SystemClock())
    await owner.ask("mine")
    bench.clock.advance(10 * MINUTE_S)
    await bench.worker().drain()
    assert [run.result for run in bench.runs(made)] == [""]
    bench.database.write_now(lambda db: schedules.remove(db, made.id))
    await owner.hear("yours")
    owner.log.close()
    bench.clock.advance(MINUTE_S)
    await bench.worker().drain()
    assert bench.runs(made) == [] and bench.told == []


async def test_a_run_that_was_cut_off_gives_its_own_answer_also_when_the_session_has_gone_on(bench, server):
    made = bench.add(session_id="held")
    bench.clock.advance(10 * MINUTE_S)
    owner = await Owner.come(bench.database, SystemClock())
    job = bench.database.write_now(lambda db: jobs.lease(db, (schedules.KIND,), "gone", 1.0, bench.clock))
    assert job is not None
    firing = schedules.read_firing(job)
    bench.database.write_now(lambda db: schedules.begin_run(db, job, firing, firing.due))
    bench.database.write_now(lambda db: schedules.set_run_session(db, job.id, "held"))
    await owner.ask("say hello")
    key = bench.database.read_now(lambda db: sessions.key_of(db, "held"))
    bench.database.write_now(lambda db: schedules.record_prompt(db, job.id, key))
    await owner.hear("the schedule's")
    await owner.ask("mine")
    await owner.hear("yours")
    owner.log.close()
    bench.clock.advance(MINUTE_S)
    await bench.worker().drain()
    assert [(run.result, run.text) for run in bench.runs(made)] == [("answered", "the schedule's")]
    assert server.count == 0


async def test_whoever_asks_for_a_run_by_hand_is_told_at_once_that_its_session_is_in_use(bench, server):
    owner = await Owner.come(bench.database, SystemClock())
    await owner.ask("mine")
    made = bench.add(session_id="held")
    job_id = bench.database.write_now(lambda db: schedules.run_now(db, made.id, bench.clock))
    finished = await bench.worker().run_one(job_id)
    assert finished is not None and finished.run.result == "failed"
    assert "in use" in finished.run.note
    bench.clock.advance(2 * MINUTE_S)
    await bench.worker().drain()
    assert len(bench.told) == 1 and server.count == 0


class Watched(FixedClock):
    """Counts how often it is looked at."""

    looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return super().now()


@pytest.mark.slow
async def test_a_worker_does_not_spin_while_a_run_waits_for_the_one_before_it(bench, server):
    server.install([says("slow", fault=Fault(stall_after=0))])
    bench.clock = clock = Watched()
    made = bench.add()
    bench.clock.advance(10 * MINUTE_S)
    bench.database.write_now(lambda db: schedules.run_now(db, made.id, bench.clock))
    serving = asyncio.create_task(bench.worker().serve())
    await asyncio.to_thread(server.wait_for_stall)
    before = clock.looks
    await asyncio.wait({serving}, timeout=0.5)
    assert clock.looks - before < 10
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def test_a_target_whose_links_lead_in_a_circle_is_noted(bench, server):
    server.install([says("lost")])
    (bench.work / "a").symlink_to("b")
    (bench.work / "b").symlink_to("a")
    bench.add(target=str(bench.work / "a"))
    [run] = bench.after()
    assert run.result == "answered" and "can't be written" in run.note
