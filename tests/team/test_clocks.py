"""Time is the database's: machines whose clocks differ by an hour share reviews and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.support import FixedClock, list_jobs
from whet.clock import SystemClock, iso
from whet.store import jobs, schedules
from whet.store.team import TeamDatabase

LEASE_S = 120.0
HOURLY = schedules.Schedule("abc1", "Reports", "2026", "0 * * * *", "", "UTC", "say hi")


class OwnClock(FixedClock):
    """One of several clocks: its ids are nobody else's."""

    def new_id(self) -> str:
        return SystemClock().new_id()


class Machine:
    """A worker's machine: its clock, and its own connection to the team's database."""

    def __init__(self, url: str, hours_off: float) -> None:
        self.clock = OwnClock()
        self.clock.moment = datetime.now(UTC) + timedelta(hours=hours_off)
        self.database = TeamDatabase.open_url(url)

    def close(self) -> None:
        self.database.close()

    def do(self, work, *values):
        return self.database.write_now(lambda db: work(db, *values))

    def put(self, kind: str, **fields: str) -> str:
        return self.do(jobs.enqueue, jobs.NewJob(kind, "{}", **fields), self.clock)

    def take(self, kind: str) -> jobs.Job | None:
        return self.do(jobs.lease, (kind,), f"host 1 - {id(self)}", LEASE_S, self.clock)

    def is_due(self, kind: str) -> bool:
        return self.database.read_now(lambda db: jobs.is_due(db, (kind,), self.clock))


@pytest.fixture
def right(url: str) -> Iterator[Machine]:
    with closing(Machine(url, 0)) as machine:
        yield machine


@pytest.fixture(params=[-1.0, 1.0], ids=["behind", "ahead"])
def wrong(url: str, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with closing(Machine(url, request.param)) as machine:
        yield machine


@pytest.mark.parametrize("kind", ["review", schedules.KIND])
def test_a_running_job_is_left_to_its_worker(right: Machine, wrong: Machine, kind: str) -> None:
    for machine, other in ((right, wrong), (wrong, right)):
        machine.put(kind)
        job = machine.take(kind)
        assert job is not None
        assert not other.is_due(kind) and other.take(kind) is None
        assert machine.do(jobs.heartbeat, job, LEASE_S, machine.clock)
        assert other.take(kind) is None
        assert machine.do(jobs.complete, job, machine.clock)


def test_a_lease_that_ran_out_is_taken_over_by_any_of_them(right: Machine, wrong: Machine) -> None:
    for machine, other in ((right, wrong), (wrong, right)):
        machine.put("review")
        job = machine.take("review")
        assert job is not None
        assert machine.do(jobs.heartbeat, job, -1.0, machine.clock)
        assert other.is_due("review")
        again = other.take("review")
        assert again is not None and (again.id, again.attempts) == (job.id, 2)
        assert not machine.do(jobs.complete, job, machine.clock)
        assert other.do(jobs.complete, again, other.clock)


def test_what_waits_is_due_at_the_same_moment_for_all(right: Machine, wrong: Machine) -> None:
    soon = iso(datetime.now(UTC) + timedelta(minutes=30))
    for machine, other in ((right, wrong), (wrong, right)):
        machine.put("later", run_after=soon)
        assert not machine.is_due("later") and not other.is_due("later")
        machine.put("now")
        done = other.take("now")
        assert done is not None and other.do(partial(jobs.fail, retry_in_s=1800.0), done, "x", other.clock)
        assert not machine.is_due("now") and not other.is_due("now")


def test_schedules_come_at_their_time_and_by_hand_at_once(right: Machine, wrong: Machine) -> None:
    due = iso(datetime.now(UTC) + timedelta(minutes=30))
    wrong.do(schedules.add, HOURLY, due, wrong.clock)
    for one in (right, wrong):
        one.do(schedules.correct_clock_change, one.clock, lambda schedule, now: "moved")
        assert one.database.read_now(lambda db: schedules.find_next_due(db, HOURLY.id)) == due
        assert not one.is_due(schedules.KIND)
    for one, other in ((right, wrong), (wrong, right)):
        by_hand = one.do(schedules.run_now, HOURLY.id, one.clock)
        job = other.take(schedules.KIND)
        assert job is not None and job.id == by_hand
        assert other.do(schedules.finish, job, ("answered", "", ""), other.clock)
    texts = [job.created for job in right.do(list_jobs)]
    assert all(abs(datetime.fromisoformat(at) - datetime.now(UTC)) < timedelta(minutes=20) for at in texts)
