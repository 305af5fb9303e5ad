"""Queue goals for a worker, for interfaces that can't wait for their end: chat platforms and the API.

A goal is stored as a schedule that is due once, immediately. One worker leases it; if that worker is killed,
another continues. The result is queued for its chat in the transaction that ends the run.
"""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import msgspec

from whet.app.learning.reviews import start_detached_worker
from whet.app.services import Services
from whet.clock import iso
from whet.contract.errors import ConfigError, NotFound
from whet.goals.pursuit import report
from whet.goals.text import GoalReport, GoalWish
from whet.store import goals, schedules
from whet.store.database import read_time
from whet.store.schedules import Schedule, ScheduleGoal

log: logging.Logger = logging.getLogger("whet.goals")


async def queue_goal(
    services: Services, wish: GoalWish, target: str = "", workspace: Path | None = None
) -> Schedule:
    """Store a goal for the next free worker, and start a worker. `target` is the chat that receives the
    result, as channel:chat. Raises ConfigError."""
    if not wish.text.strip():
        raise ConfigError("a goal needs a text")
    job_id = services.clock.new_id()
    schedule = Schedule(
        id=job_id,
        name=f"goal-{job_id[-8:]}",
        created="",
        expression="",
        at="",
        time_zone="UTC",
        prompt=wish.text,
        workspace=str(workspace or services.workspace),
        target=target,
        timeout_s=services.settings.agent.turn_timeout_s,
        goal=ScheduleGoal(wish.verify, wish.budget_usd, wish.steps, wish.guard, wish.may_change),
    )

    def store(connection: apsw.Connection) -> Schedule:
        now = iso(read_time(connection, services.clock))
        dated = msgspec.structs.replace(schedule, created=now, at=now)
        schedules.add(connection, dated, now, services.clock)
        return dated

    stored = await services.database.write(store)
    if services.settings.schedules.worker == "auto":
        try:
            start_detached_worker(services.home)
        except OSError as error:
            log.warning("no worker could be started for a goal: %s", error)
    return stored


async def find_goal(services: Services, name: str) -> tuple[str, GoalReport | None]:
    """Return the id of a goal's job (`name` if it has none), and its report or None until a worker has begun.

    `name` is the id of the goal or of its job. An empty `name` means the goal queued last if it still waits,
    else the goal that began last. Raises NotFound, also if the job ended before its goal began.
    """

    def read(connection: apsw.Connection) -> tuple[str, GoalReport | None]:
        job = schedules.get(connection, name) if name else schedules.last_goal(connection)
        if job is None:
            return name, report(connection, goals.get(connection, name))
        runs = schedules.list_runs(connection, job.id, 1)
        run = runs[0] if runs else None
        goal = goals.find_last_goal(connection, run.session_id) if run and run.session_id else None
        has_ended = run is not None and bool(run.finished)
        if not name and (goal is not None or has_ended):
            return name, report(connection, goals.get(connection, name))
        if goal is not None:
            return job.id, report(connection, goal)
        if run is not None and has_ended:
            raise NotFound(f"{job.name} ended before it began: {run.note or run.result}")
        return job.id, None

    return await services.database.read(read)


async def stop_goal(services: Services, name: str) -> GoalReport | None:
    """Cancel a goal and return its report. A goal that still waits for a worker is removed, and None
    returned. Raises NotFound."""
    job_id, goal_report = await find_goal(services, name)
    if goal_report is None:
        await services.database.write(lambda db: schedules.remove(db, job_id))
        return None
    at, goal = iso(services.clock.now()), goal_report.goal
    ended = await services.database.write(
        lambda db: goals.end_goal(db, goal.id, "cancelled", "stopped by hand", at)
    )
    if not ended:
        raise NotFound(f"this goal has ended: {goal.state}")
    return (await find_goal(services, goal.id))[1]
