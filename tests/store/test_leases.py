"""A job's work beside its heartbeat: the lease is renewed in time, and the work ends when it is lost."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from tests.store.test_jobs import put, take
from tests.support import beat, cancel_task, let_pass
from whet.store import jobs
from whet.store.leases import HEARTBEAT_S, LEASE_S, LeaseLost, run_with_lease

pytestmark = pytest.mark.usefixtures("still_time")


class Work:
    """A job's work that lasts until it is told to end, and what became of it."""

    def __init__(self, db, clock) -> None:
        self.db, self.clock = db, clock
        put(db, clock)
        self.job = take(db, clock)
        self.events: list[str] = []
        self.go = asyncio.Event()
        self.running = asyncio.ensure_future(run_with_lease(db, clock, self.job, self._work(), self._stop))

    async def _work(self) -> str:
        self.events.append("begun")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.events.append("ended")
            raise
        return "done"

    async def _stop(self) -> None:
        self.events.append("stopped")

    def stored(self) -> jobs.Job:
        return self.db.read_now(lambda c: jobs.get(c, self.job.id))

    async def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await beat(self.db, seconds)


async def test_a_lease_is_renewed_while_its_work_goes_on(db, clock):
    work = Work(db, clock)
    first = work.stored().lease_until
    await work.passes(HEARTBEAT_S / 2)
    assert work.stored().lease_until == first, "not before its time"
    for _ in range(8):
        before = work.stored().lease_until
        await work.passes(HEARTBEAT_S)
        assert work.stored().lease_until > before
        assert take(db, clock, "w2") is None
    let_pass(LEASE_S)
    work.go.set()
    assert (await work.running, work.events) == ("done", ["begun"])
    assert HEARTBEAT_S * 3 <= LEASE_S, "two beats may be missed"


async def test_a_lost_lease_ends_the_work_first(db, clock):
    work = Work(db, clock)
    await work.passes(LEASE_S / 2)
    clock.advance(LEASE_S)
    assert take(db, clock, "w2").id == work.job.id
    await work.passes(HEARTBEAT_S)
    with pytest.raises(LeaseLost):
        await work.running
    assert (work.events, work.stored().owner) == (["begun", "ended"], "w2")


async def test_a_stopped_worker_ends_the_work_then_puts_the_job_back(db, clock):
    work = Work(db, clock)
    await work.passes(1)
    await cancel_task(work.running)
    assert work.events == ["begun", "ended", "stopped"]


def test_what_the_work_raises_is_raised_and_nothing_is_put_back(db, clock):
    async def main():
        work = Work(db, clock)
        work.go.wait = fail
        with pytest.raises(ZeroDivisionError):
            await work.running
        return work.events

    async def fail() -> Literal[True]:
        raise ZeroDivisionError

    assert asyncio.run(main()) == ["begun"]
