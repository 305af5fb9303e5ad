"""`whet cron`: schedule prompts for set times, and show the results of their runs."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import apsw
import click
import msgspec

from whet.cli import stored
from whet.cli.launch import text_option
from whet.cli.main import run_on_loop
from whet.clock import Clock, SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.goals.text import parse_usd
from whet.schedules import timing
from whet.schedules.adding import add_schedule
from whet.schedules.execution import check_target
from whet.schedules.worker import FinishedRun, ScheduleWorker
from whet.store import jobs, schedules
from whet.store.database import StateDatabase, has_store, read_time
from whet.store.schedules import Schedule, ScheduleGoal, ScheduleRun, ScheduleWish
from whet.terminal import output
from whet.terminal.output import (
    Column,
    emit_json,
    emit_rows,
    home_and_json,
    json_option,
    number_option,
    style_text,
)
from whet.terminal.wording import clip, printable

T = TypeVar("T")
_State: TypeAlias = tuple[Schedule, str, ScheduleRun | None]
_NONE_YET = 'There are no schedules yet. One for each workday: whet cron add "0 9 * * 1-5" --prompt "..."'
_NEW = "new"


class _Seconds(click.FloatRange):
    """A limit in seconds. Rejects nan, which click's range check accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the option's text."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return number


_SECONDS = _Seconds(1, 1e7)


cron: click.Group = click.Group("cron", help="Have the agent work at set times.")


@cron.command(
    "add",
    epilog='Examples: whet cron add "0 9 * * 1-5" --prompt "Sum up what changed" --to daily/{date}.md'
    '  ·  whet cron add --at 18:30 --prompt "Is the build green?" --to notify',
)
@click.argument("expression", required=False)
@click.option("--at", "at", metavar="TIME", help="Once: 2026-12-24T09:00, 18:30, or +2h.")
@click.option("--prompt", required=True, help="What to say to the agent; - reads standard input.")
@click.option("--name", default="", help="A name for it; made from the prompt otherwise.")
@click.option("--tz", "time_zone", default="", metavar="ZONE", help="The time zone, e.g. Europe/Berlin.")
@click.option(
    "--session", default=_NEW, metavar="new|ID", help="A new session each time, or always this one."
)
@text_option("--workspace", metavar="DIR", help="The folder to work in; this one otherwise.")
@click.option(
    "--to", "target", default="", metavar="FILE|notify|CHAT", help="Where each answer is also sent."
)
@text_option("--toolsets", default="", metavar="A,B", help="Only these groups of tools.")
@click.option("--goal", "is_goal", is_flag=True, help="The prompt is a goal that must be proven.")
@text_option("--verify", default="", metavar="CMD", help="Passes when the goal is reached.")
@text_option("--budget", default="0", metavar="USD", help="The most that each run's goal may cost.")
@click.option("--steps", type=click.IntRange(0), default=0, help="The most model calls of each run's goal.")
@click.option(
    "--may-change", multiple=True, metavar="PATH", help="May change, although it is part of the check."
)
@click.option("--until-achieved", is_flag=True, help="Pause the schedule once its goal is proven.")
@click.option(
    "--quiet", default="", metavar="22:00-07:00", help="Send chats nothing then, and everything afterwards."
)
@click.option("--timeout", "timeout_s", type=_SECONDS, metavar="SECONDS", help="Each turn's limit.")
@home_and_json
def add(home: Home, expression: str | None, at: str | None, as_json: bool, **options: Any) -> None:
    """Add a schedule: a cron EXPRESSION of five fields, or one time with --at.

    No one is there when it runs: calls that need an approval are denied unless a rule allows them. A
    worker must run: whet worker, or an open chat.
    """
    if bool(expression) == bool(at):
        raise click.UsageError("give a cron expression or --at TIME, one of them")
    clock = SystemClock()
    settings = load(home, {}, environ=os.environ).settings
    wish = ScheduleWish(
        sys.stdin.read() if options["prompt"] == "-" else options["prompt"],
        expression or "",
        at or "",
        workspace=options["workspace"] or settings.tools.workspace or os.getcwd(),
        session="" if options["session"] == _NEW else options["session"],
        toolsets=tuple(name.strip() for name in options["toolsets"].split(",") if name.strip()),
        timeout_s=options["timeout_s"] or 0.0,
        goal=_read_goal(options),
        **{name: options[name] for name in ("name", "time_zone", "target", "quiet")},
    )
    with _open_store(home) as database:
        stored, due = database.write_now(lambda db: add_schedule(db, settings, wish, clock))
    if as_json:
        return emit_json({"schedule": msgspec.to_builtins(stored) | {"next": due}})
    click.echo(f"{printable(stored.name)}: next {_format_time(due, stored)}. It needs a worker: whet worker")


@cron.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """List schedules with their next and last run."""

    def read_states(db: apsw.Connection) -> list[_State]:
        return [_read_state(db, schedule) for schedule in schedules.list_schedules(db)]

    states = _read(home, read_states) or []
    now = SystemClock().now()
    columns: list[Column[_State]] = [
        Column("name", lambda row: printable(row[0].name), grows=True, least=10),
        Column("when", lambda row: row[0].expression or "once", rank=2),
        Column("next", lambda row: _format_next(row[0], row[1]), rank=1),
        Column("last", lambda row: output.age(row[2].started, now) if row[2] else "-", rank=3),
        Column("result", lambda row: _format_result(row[2], marks_note=True) if row[2] else "-"),
        Column("to", lambda row: printable(row[0].target) or "-", grows=True, rank=4),
    ]
    facts = {"schedules": [_as_object(*row) for row in states]}
    emit_rows(states, columns, facts, none=_NONE_YET, as_json=as_json)


@cron.command("show")
@click.argument("name")
@number_option("--limit", least=1, default=10, help="The latest so many runs.")
@home_and_json
def show(home: Home, name: str, limit: int, as_json: bool) -> None:
    """Show a schedule, its next time and its latest runs."""

    def read_runs(db: apsw.Connection) -> tuple[_State, list[ScheduleRun]]:
        schedule = schedules.find(db, name)
        return _read_state(db, schedule), schedules.list_runs(db, schedule.id, limit)

    state_and_runs = _read(home, read_runs)
    if state_and_runs is None:
        raise NotFound(f"there is no schedule {name}", hint="`whet cron list` shows them")
    state, runs = state_and_runs
    if as_json:
        return emit_json(_as_object(*state) | {"runs": runs})
    click.echo("\n".join(_describe(*state)))
    click.echo("Runs:" if runs else "It has not run yet.")
    for run in runs:
        where = f"  session {run.session_id}" if run.session_id else ""
        note = f"  {printable(run.note)}" if run.note else ""
        click.echo(f"  {_format_time(run.started, state[0])}  {_format_result(run)}{where}{note}")


@cron.command("run")
@click.argument("name")
@json_option
@click.pass_context
def run(ctx: click.Context, name: str, as_json: bool) -> None:
    """Run a schedule now and print its answer; its next time stays the same."""
    home: Home = ctx.obj
    finished = run_on_loop(_run_now(home, name))
    row = finished.run
    if as_json:
        emit_json({"run": row})
    else:
        if row.text:
            click.echo(printable(row.text))
        if sys.stderr.isatty() or row.result != "answered" or row.note:
            note = f": {printable(row.note)}" if row.note else ""
            click.echo(f"{_format_result(row)} in session {row.session_id or '-'}{note}", err=True)
    ctx.exit(0 if row.result in ("answered", "budget") else 1)


@cron.command("rm")
@click.argument("name")
@click.pass_obj
def remove(home: Home, name: str) -> None:
    """Remove a schedule; the sessions of its runs stay."""
    schedule = _change(home, name, lambda db, row, _: schedules.remove(db, row.id))
    click.echo(f"removed {printable(schedule.name)}; its sessions stay: whet sessions list")


@cron.command("pause")
@click.argument("name")
@click.pass_obj
def pause(home: Home, name: str) -> None:
    """Stop further runs until `whet cron resume`; a current run continues."""
    schedule = _change(home, name, lambda db, row, _: schedules.pause(db, row.id))
    click.echo(f"paused {printable(schedule.name)}; to go on: whet cron resume {printable(schedule.name)}")


@cron.command("resume")
@click.argument("name")
@click.pass_obj
def resume(home: Home, name: str) -> None:
    """Resume a paused schedule; the times that passed are not made up."""

    def resume_row(db: apsw.Connection, row: Schedule, clock: Clock) -> None:
        now = read_time(db, clock)
        if row.at and row.at <= iso(now):
            raise ConfigError(
                f"its only time, {_format_time(row.at, row)}, has passed",
                hint="whet cron add makes a new one",
            )
        check_target(db, row.target)
        if row.paused:
            due = row.at or iso(timing.next_after(row, now))
            schedules.resume(db, row.id, due, clock)

    schedule = _change(home, name, resume_row)
    due = _read(home, lambda db: schedules.find_next_due(db, schedule.id)) or ""
    click.echo(f"{printable(schedule.name)}: next {_format_time(due, schedule)}")


async def _run_now(home: Home, name: str) -> FinishedRun:
    clock = SystemClock()
    settings = load(home, {}, environ=os.environ).settings
    with _open_store(home) as database:

        def queue_run(db: apsw.Connection) -> tuple[Schedule, str]:
            row = schedules.find(db, name)
            if jobs.find_running_owner(db, schedules.KIND, row.id, clock):
                raise WhetError(f"{row.name} is running now", hint=f"whet cron show {row.name}")
            return row, schedules.run_now(db, row.id, clock)

        schedule, job_id = database.write_now(queue_run)
        worker = ScheduleWorker(home, database, clock, settings.schedules.catch_up_s, _ignore_run)
        finished = await worker.run_one(job_id)
    if finished is None:
        raise WhetError(f"another worker runs {schedule.name} now", hint=f"whet cron show {schedule.name}")
    return finished


def _ignore_run(finished: FinishedRun) -> None:
    """Do nothing: the command itself prints the run."""


def _read_goal(options: dict[str, Any]) -> ScheduleGoal | None:
    """Return the goal settings of a schedule's runs, or None if no option asks for a goal. Raises
    ConfigError."""
    goal = ScheduleGoal(
        options["verify"],
        parse_usd(options["budget"]),
        options["steps"],
        may_change=options["may_change"],
        until_achieved=options["until_achieved"],
    )
    return goal if options["is_goal"] or goal != ScheduleGoal() else None


def _read_state(db: apsw.Connection, schedule: Schedule) -> _State:
    runs = schedules.list_runs(db, schedule.id, 1)
    return schedule, schedules.find_next_due(db, schedule.id), runs[0] if runs else None


def _as_object(schedule: Schedule, due: str, last: ScheduleRun | None) -> dict[str, Any]:
    return msgspec.to_builtins(schedule) | {"next": due, "last": last}


def _format_next(schedule: Schedule, due: str) -> str:
    return "paused" if schedule.paused else _format_time(due, schedule)


def _describe(schedule: Schedule, due: str, last: ScheduleRun | None) -> list[str]:
    when = schedule.expression or f"once, {_format_time(schedule.at, schedule)}"
    rows = {
        "when": f"{when} ({schedule.time_zone})",
        "next": _format_next(schedule, due),
        "says": clip(" ".join(printable(schedule.prompt).split()), max(output.terminal_width() - 10, 20)),
        "session": schedule.session_id or "a new one each time",
        "folder": schedule.workspace,
        "to": schedule.target or "its session only",
        "tools": ", ".join(schedule.toolsets) or "as configured",
        "limit": f"{schedule.timeout_s:g} s",
    }
    if schedule.goal is not None:
        until = ", until it is achieved" if schedule.goal.until_achieved else ""
        rows["goal"] = (schedule.goal.verify or "ends with claims that calls bear out") + until
    if schedule.quiet:
        rows["quiet"] = schedule.quiet
    return [style_text(schedule.name, "bold"), *(f"  {key:8}{printable(text)}" for key, text in rows.items())]


def _format_result(run: ScheduleRun, *, marks_note: bool = False) -> str:
    """Format how a run ended. With `marks_note`, add whether `whet cron show` has a note about it."""
    text = run.result or "running"
    colour = {"answered": "green", "running": "yellow", "budget": "yellow", "missed": "yellow"}.get(
        text, "red"
    )
    if marks_note and run.note and text == "answered":
        text, colour = "answered, see show", "yellow"
    return style_text(text, colour)


def _format_time(moment: str, schedule: Schedule) -> str:
    """Format a stored time in the schedule's zone, or "-" if there is none."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone(timing.find_zone(schedule.time_zone))
    return local.strftime("%Y-%m-%d %H:%M %Z")


def _change(home: Home, name: str, change: Callable[[apsw.Connection, Schedule, Clock], None]) -> Schedule:
    """Call `change` with the schedule of this name in a transaction, and return the schedule as it was."""
    clock = SystemClock()

    def find_and_change(db: apsw.Connection) -> Schedule:
        schedule = schedules.find(db, name)
        change(db, schedule, clock)
        return schedule

    with _open_store(home) as database:
        return database.write_now(find_and_change)


def _read(home: Home, query: Callable[[apsw.Connection], T]) -> T | None:
    """Return the result of `query`, or None if there is no store yet."""
    if not has_store(home):
        return None
    with _open_store(home) as database:
        return database.read_now(query)


def _open_store(home: Home) -> closing[StateDatabase]:
    home.ensure()
    return stored.open_database(home)
