"""A schedule's run that is a goal: pursued until it is proven, in the run's session, also after a kill.

This module does not know when the run is due, nor where its answer goes.
"""

from __future__ import annotations

import apsw

from whet.app.conversations.session_parts import SessionExtras
from whet.app.conversations.sessions import SessionOpener
from whet.contract.errors import ConfigError
from whet.contract.events import show_nothing
from whet.goals.pursuit import GoalRunner, report
from whet.goals.text import GoalReport, GoalWish, result_text
from whet.store import goals, schedules
from whet.store.schedules import RunEnd, Schedule, ScheduleGoal, ScheduleRun

_ENDS: dict[goals.GoalState, RunEnd] = {
    "achieved": "answered",
    "unproven": "answered",
    "budget": "budget",
    "stuck": "failed",
    "paused": "failed",
    "cancelled": "stopped",
    "running": "stopped",
}


async def pursue(
    opener: SessionOpener, schedule: Schedule, aim: ScheduleGoal, run: ScheduleRun, extras: SessionExtras
) -> tuple[RunEnd, str, str]:
    """Pursue a run's goal, or continue it. Returns how it ended, a note, and the text to send."""
    runner = GoalRunner(opener, show_nothing)
    wish = GoalWish(schedule.prompt, aim.verify, aim.budget_usd, aim.steps, aim.guard, aim.may_change)
    session_id = run.session_id or schedule.session_id
    stored_goal = (
        await opener.services.database.read(lambda db: goals.find_last_goal(db, session_id))
        if session_id
        else None
    )
    if run.session_id and stored_goal is not None and stored_goal.state not in goals.OPEN:
        # the goal ended in a worker that was killed
        return _run_end(await opener.services.database.read(lambda db: report(db, stored_goal)))
    if stored_goal is not None and stored_goal.state in goals.OPEN:
        row, session = stored_goal, await runner.reopen(stored_goal, extras)
    else:
        session = await runner.open_session(wish, extras, session_id)
        await opener.services.database.write(lambda db: schedules.set_run_session(db, run.job_id, session.id))
        row = await runner.begin(wish, session)

    def record_start(connection: apsw.Connection) -> None:
        schedules.set_run_session(connection, run.job_id, session.id)
        schedules.count_resume(connection, run.job_id)

    await opener.services.database.write(record_start)
    ended = await runner.pursue(row, session)
    return _run_end(await opener.services.database.read(lambda db: report(db, ended)))


def check(aim: ScheduleGoal, session_id: str) -> None:
    """Raise ConfigError if the goal can't be pursued at set times."""
    if session_id:
        raise ConfigError("a goal has a session of its own", hint="leave --session out")
    if aim.until_achieved and not aim.verify:
        raise ConfigError("--until-achieved needs a check", hint='--verify "make test"')


def _run_end(done: GoalReport) -> tuple[RunEnd, str, str]:
    goal = done.goal
    return (
        _ENDS[goal.state],
        f"goal {goal.state}" + (f": {goal.note}" if goal.note else ""),
        result_text(done),
    )
