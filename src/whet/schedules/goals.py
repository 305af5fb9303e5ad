"""Pursue a schedule's goal in the session of its run, and continue it after a kill."""

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
    opener: SessionOpener, schedule: Schedule, goal: ScheduleGoal, run: ScheduleRun, extras: SessionExtras
) -> tuple[RunEnd, str, str]:
    """Pursue a run's goal, or continue it. Returns how it ended, a note, and the text to send."""
    runner, database = GoalRunner(opener, show_nothing), opener.services.database
    wish = GoalWish(schedule.prompt, goal.verify, goal.budget_usd, goal.steps, goal.guard, goal.may_change)
    session_id = run.session_id or schedule.session_id
    stored_goal = None
    if session_id:
        stored_goal = await database.read(lambda db: goals.find_last_goal(db, session_id))
    if run.session_id and stored_goal is not None and stored_goal.state not in goals.OPEN:
        # a worker was killed after the goal had ended
        return _to_run_end(await database.read(lambda db: report(db, stored_goal)))
    if stored_goal is not None and stored_goal.state in goals.OPEN:
        row, session = stored_goal, await runner.reopen(stored_goal, extras)
    else:
        session = await runner.open_session(wish, extras, session_id)
        await database.write(lambda db: schedules.set_run_session(db, run.job_id, session.id))
        row = await runner.begin(wish, session)

    def record_start(connection: apsw.Connection) -> None:
        schedules.set_run_session(connection, run.job_id, session.id)
        schedules.count_resume(connection, run.job_id)

    await database.write(record_start)
    ended_row = await runner.pursue(row, session)
    return _to_run_end(await database.read(lambda db: report(db, ended_row)))


def check_goal(goal: ScheduleGoal, session_id: str) -> None:
    """Raise ConfigError if a schedule can't have this goal. `session_id` is the session that the person chose
    for the schedule, or empty."""
    if session_id:
        raise ConfigError("a goal has a session of its own", hint="leave --session out")
    if goal.until_achieved and not goal.verify:
        raise ConfigError("--until-achieved needs a check", hint='--verify "make test"')


def _to_run_end(goal_report: GoalReport) -> tuple[RunEnd, str, str]:
    goal = goal_report.goal
    note = f"goal {goal.state}" + (f": {goal.note}" if goal.note else "")
    return _ENDS[goal.state], note, result_text(goal_report)
