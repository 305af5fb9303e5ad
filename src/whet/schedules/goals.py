"""A schedule's run that is a goal: pursued until it is proven, in the run's session, also after a kill.

It does not know when it is due, nor where its answer goes.
"""

from __future__ import annotations

import apsw

from whet.app.build import App
from whet.app.goal_words import told
from whet.app.goals import GoalReport, GoalRunner, GoalWish, report
from whet.app.session_parts import SessionExtras
from whet.contract.errors import ConfigError
from whet.contract.events import Event
from whet.store import goals, schedules
from whet.store.goals import GoalState
from whet.store.schedules import RunEnd, Schedule, ScheduleGoal, ScheduleRun

_ENDS: dict[GoalState, RunEnd] = {
    "achieved": "answered",
    "budget": "budget",
    "stuck": "failed",
    "paused": "failed",
    "cancelled": "stopped",
    "running": "stopped",
}


async def pursue(
    app: App, schedule: Schedule, aim: ScheduleGoal, run: ScheduleRun, extras: SessionExtras
) -> tuple[RunEnd, str, str]:
    """Pursue a run's goal, or go on with it; gives how it ended, a note and the text to send."""
    runner = GoalRunner(app, _ignore)
    wish = GoalWish(schedule.prompt, aim.verify, aim.budget_usd, aim.steps, aim.guard, aim.may_change)
    session_id = run.session_id or schedule.session_id
    found = await app.database.read(lambda db: goals.of_session(db, session_id)) if session_id else None
    if run.session_id and found is not None and found.state not in goals.OPEN:
        return _came(await app.database.read(lambda db: report(db, found)))  # a killed worker ended it
    if found is not None and found.state in goals.OPEN:
        row, session = found, await runner.reopen(found, extras)
    else:
        session = await runner.session(wish, extras, session_id)
        await app.database.write(lambda db: schedules.enter(db, run.job_id, session.id))
        row = await runner.begin(wish, session)

    def entered(connection: apsw.Connection) -> None:
        schedules.enter(connection, run.job_id, session.id)
        schedules.count_begun(connection, run.job_id)

    await app.database.write(entered)
    ended = await runner.pursue(row, session)
    return _came(await app.database.read(lambda db: report(db, ended)))


def check(aim: ScheduleGoal, session_id: str) -> None:
    """Raise ConfigError for a goal that can't be pursued at set times."""
    if session_id:
        raise ConfigError("a goal has a session of its own", hint="leave --session out")
    if aim.until_achieved and not aim.verify:
        raise ConfigError("--until-achieved needs a check", hint='--verify "make test"')


def _came(done: GoalReport) -> tuple[RunEnd, str, str]:
    goal = done.goal
    return _ENDS[goal.state], f"goal {goal.state}" + (f": {goal.note}" if goal.note else ""), told(done)


def _ignore(event: Event) -> None:
    """Show nothing: nobody is there."""
