"""Run due schedules: lease a schedule's job, queue its next time, run it, and store its result.

Several workers may run at once. Each job is leased by one of them; if that one dies, another continues the
run. A run whose session is busy waits for it. A worker that is stopped ends its runs as stopped; the next
times of their schedules stay queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import apsw
import msgspec

from whet.agent.interruption import finish_shielded
from whet.clock import Clock, iso
from whet.config.paths import Home
from whet.contract.errors import StoreBusy, StoreError
from whet.schedules import quiet, timing
from whet.schedules.execution import RunResult, is_chat, queue_text, run_schedule
from whet.store import claims, digests, goals, jobs, schedules
from whet.store.database import StateDatabase, read_time
from whet.store.leases import LEASE_S, LeaseLost, run_with_lease
from whet.store.schedules import Schedule, ScheduleRun

T = TypeVar("T")
log: logging.Logger = logging.getLogger("whet.schedules")
KINDS = (schedules.KIND, digests.KIND)
LANES = 3
_POLL_S = 15.0
_BLOCKED_S = 2.0
_BUSY_S = 60.0
_MAX_BUSY_S = 3600.0
_MAX_BEGUN = 3


class FinishedRun(msgspec.Struct, frozen=True):
    """A finished run, and its schedule."""

    schedule: Schedule
    run: ScheduleRun


class _LeasedRun(msgspec.Struct, frozen=True):
    """A run that this worker has leased. `is_new`: no worker has begun it before."""

    job: jobs.Job
    schedule: Schedule
    run: ScheduleRun
    is_new: bool


async def run_together(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run coroutines concurrently. The first failure cancels the others and is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class ScheduleWorker:
    """Runs the schedules of one home. Calls `notify` with each finished run."""

    def __init__(
        self,
        home: Home,
        database: StateDatabase,
        clock: Clock,
        catch_up_s: float,
        notify: Callable[[FinishedRun], None],
    ) -> None:
        self._home = home
        self._database = database
        self._clock = clock
        self._catch_up_s = catch_up_s
        self._notify = notify

    async def serve(self) -> None:
        """Run due jobs, a few at a time, until cancelled."""
        await run_together(*(self._serve_lane() for _ in range(LANES)))

    async def drain(self, patience_s: float = 0.0) -> None:
        """Run all jobs that are due now, a few at a time; wait at most `patience_s` for those due soon."""
        until_s = self._clock.monotonic_s() + patience_s
        while True:
            await run_together(*(self._drain_lane() for _ in range(LANES)))
            left_s = await self._database.read(lambda db: jobs.seconds_until_due(db, KINDS, self._clock))
            if left_s is None:
                return
            wait_s = left_s if left_s > 0 else _BLOCKED_S
            if self._clock.monotonic_s() + wait_s > until_s:
                return
            await asyncio.sleep(wait_s)

    async def run_one(self, job_id: str = "") -> FinishedRun | None:
        """Run one due job, or the job `job_id`, to its end. Returns None if no job is due.

        Raises CancelledError, with the run marked as stopped, and StoreError.
        """
        while (leased := await self._take(job_id)) is not None:
            stop = partial(self._stop, leased)
            try:
                outcome = await run_with_lease(
                    self._database, self._clock, leased.job, self._run(leased), stop
                )
            except LeaseLost:
                log.info("the run %s was taken over by another worker", leased.run.job_id)
                continue
            except StoreBusy as error:
                # A person waits for a run that was requested by id, so the failure is reported at once.
                if not job_id and await self._postpone(leased, error):
                    continue
                outcome = RunResult("failed", error.message)
            if (finished := await self._finish(leased, outcome)) is not None:
                return finished
        return None

    async def _serve_lane(self) -> None:
        while True:
            wait_s = _POLL_S
            try:
                await self._drain_lane()
                wait_s = await self._wait_s()
            except StoreError as error:
                log.warning("schedules wait: %s", error.message)
            await asyncio.sleep(wait_s)

    async def _drain_lane(self) -> None:
        while await self._database.read(lambda db: jobs.is_due(db, KINDS, self._clock)):
            if await self.run_one() is None:
                return

    async def _wait_s(self) -> float:
        """Return the seconds until a job may be due. Another process may add one at any moment."""
        left_s = await self._database.read(lambda db: jobs.seconds_until_due(db, KINDS, self._clock))
        if left_s is None:
            return _POLL_S
        # A job that is due but was not leased waits for another run of its schedule, which may take long.
        return min(max(left_s, 0.05), _POLL_S) if left_s > 0 else _BLOCKED_S

    async def _take(self, job_id: str) -> _LeasedRun | None:
        """Lease a due job, begin its run and queue the schedule's next time, in one transaction. Returns None
        if no job is due; a digest that is due is sent meanwhile."""
        owner = claims.owner_name(self._clock.new_id())

        def work(connection: apsw.Connection) -> _LeasedRun | bool:
            schedules.correct_clock_change(connection, self._clock, _iso_after)
            job = jobs.lease(connection, KINDS, owner, LEASE_S, self._clock, job_id)
            if job is None:
                return False
            if job.kind == digests.KIND:
                self._send_digest(connection, job)
                return True
            firing = schedules.read_firing(job)
            schedule = schedules.get(connection, firing.schedule_id)
            if schedule is None:  # the schedule was removed meanwhile
                jobs.complete(connection, job, self._clock)
                return True
            now = read_time(connection, self._clock)
            run, is_new = schedules.begin_run(connection, job, firing, iso(now))
            if is_new and not firing.by_hand and schedule.expression and not schedule.paused:
                after = max(now, datetime.fromisoformat(firing.due))
                schedules.set_next_run(connection, schedule.id, _iso_after(schedule, after), self._clock)
            return _LeasedRun(job, schedule, run, is_new)

        while (leased := await self._write(work)) is True:
            pass
        return leased or None

    async def _run(self, leased: _LeasedRun) -> RunResult:
        run, schedule = leased.run, leased.schedule
        note = ""
        if leased.is_new and not run.by_hand:
            due, now = datetime.fromisoformat(run.due), datetime.fromisoformat(run.started)
            window = await asyncio.to_thread(timing.judge, schedule, due, now, self._catch_up_s)
            if not window.may_run:
                more = f" and {window.missed_count} after it" if window.missed_count else ""
                return RunResult("missed", f"nothing ran at {run.due}{more}, and it is too late to make up")
            if timing.is_late(due, now):
                more = f", and for {window.missed_count} later ones" if window.missed_count else ""
                note = f"made up for {run.due}{more}"
        if run.begun >= _MAX_BEGUN:
            return RunResult("failed", f"it was begun {run.begun} times and never came to an end")
        outcome = await run_schedule(self._home, schedule, run)
        return outcome if outcome.note or not note else msgspec.structs.replace(outcome, note=note)

    async def _stop(self, leased: _LeasedRun) -> None:
        await finish_shielded(self._finish(leased, RunResult("stopped", "its worker was stopped")))

    async def _finish(self, leased: _LeasedRun, outcome: RunResult) -> FinishedRun | None:
        """Store the run's result, queue its answer and notify. Returns None if another worker has taken the
        run."""

        def work(connection: apsw.Connection) -> ScheduleRun | None:
            if not schedules.finish(connection, leased.job, outcome.row, self._clock):
                return None
            if outcome.result != "stopped":
                self._queue_answer(connection, leased, outcome)
            if leased.schedule.goal is not None and leased.schedule.goal.until_achieved:
                self._pause_after_goal(connection, leased)
            return schedules.get_run(connection, leased.job.id)

        run = await self._write(work)
        if run is None:
            return None
        log.info("schedule %s: %s %s", leased.schedule.name, run.result, run.note)
        finished = FinishedRun(leased.schedule, msgspec.structs.replace(run, text=outcome.text))
        self._notify(finished)
        return finished

    def _queue_answer(self, connection: apsw.Connection, leased: _LeasedRun, outcome: RunResult) -> None:
        """Queue a run's answer for its chat, or hold it until the quiet hours end."""
        schedule = leased.schedule
        until = quiet.find_end(schedule.quiet, schedule.time_zone, read_time(connection, self._clock))
        if until is not None and is_chat(schedule.target):
            digests.hold_answer(connection, leased.run.job_id, schedule.target, iso(until), self._clock)
            return
        text = outcome.text or f"{schedule.name}: {outcome.result}. {outcome.note}"
        queue_text(connection, schedule.target, text, self._clock.unix_ms())

    def _send_digest(self, connection: apsw.Connection, job: jobs.Job) -> None:
        """Queue one message with the answers held for a chat."""
        if answers := digests.take_answers(connection, job.subject):
            queue_text(connection, job.subject, quiet.format_digest(answers), self._clock.unix_ms())
        jobs.complete(connection, job, self._clock)

    def _pause_after_goal(self, connection: apsw.Connection, leased: _LeasedRun) -> None:
        """Pause the schedule if its goal is proven."""
        run = schedules.get_run(connection, leased.run.job_id)
        if run is None or not run.session_id:
            return
        goal = goals.find_last_goal(connection, run.session_id)
        if goal is not None and goal.state == "achieved":
            schedules.pause(connection, leased.schedule.id)

    async def _postpone(self, leased: _LeasedRun, error: StoreBusy) -> bool:
        """Postpone a run until its session is free. Returns False if it has already waited too long."""

        def work(connection: apsw.Connection) -> bool:
            now = read_time(connection, self._clock)
            if (now - datetime.fromisoformat(leased.run.started)).total_seconds() > _MAX_BUSY_S:
                return False
            until = iso(now + timedelta(seconds=_BUSY_S))
            schedules.postpone_run(connection, leased.job, error.message, until)
            return True

        return await self._write(work)

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._database.append(work)


def _iso_after(schedule: Schedule, moment: datetime) -> str:
    return iso(timing.next_after(schedule, moment))
