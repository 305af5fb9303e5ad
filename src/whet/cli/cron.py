"""`whet cron`: have the agent work at set times, and see what came of it."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw
import click
import msgspec

from whet.app.goal_words import parse_usd
from whet.cli import output, stored
from whet.cli.main import run_on_loop
from whet.cli.output import Column, emit_json, emit_rows, home_and_json, json_option, styled
from whet.cli.wording import clip, printable
from whet.clock import Clock, SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.schedules import goals, quiet, timing
from whet.schedules.execution import NOTIFY, check, is_chat
from whet.schedules.worker import Finished, ScheduleWorker
from whet.store import jobs, schedules, sessions
from whet.store.database import StateDatabase, has_store, time_of
from whet.store.schedules import Schedule, ScheduleGoal, ScheduleRun
from whet.tools.registry import TOOLSETS

T = TypeVar("T")
_State: TypeAlias = tuple[Schedule, str, ScheduleRun | None]
_NONE_YET = 'There are no schedules yet. One for each workday: whet cron add "0 9 * * 1-5" --prompt "..."'
_NEW = "new"


class _Seconds(click.FloatRange):
    """A limit in seconds; nan lies in every range, and is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
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
@click.option("--workspace", metavar="DIR", help="The folder to work in; this one otherwise.")
@click.option(
    "--to", "target", default="", metavar="FILE|notify|CHAT", help="Where each answer goes besides."
)
@click.option("--toolsets", default="", metavar="A,B", help="Only these groups of tools.")
@click.option("--goal", "is_goal", is_flag=True, help="The prompt is a goal that must be proven.")
@click.option("--verify", default="", metavar="CMD", help="Passes when the goal is reached.")
@click.option("--budget", default="0", metavar="USD", help="The most that each run's goal may cost.")
@click.option("--steps", type=click.IntRange(0), default=0, help="The most model calls of each run's goal.")
@click.option("--may-change", multiple=True, metavar="PATH", help="May change though it judges.")
@click.option("--until-achieved", is_flag=True, help="Pause the schedule once its goal is proven.")
@click.option("--quiet", default="", metavar="22:00-07:00", help="Send a chat nothing then; together after.")
@click.option("--timeout", "timeout_s", type=_SECONDS, metavar="SECONDS", help="A run's limit.")
@home_and_json
def add(home: Home, expression: str | None, at: str | None, as_json: bool, **given: Any) -> None:
    """Add a schedule: a cron EXPRESSION of five fields, or one time with --at.

    Nobody is there when it runs: what would need an approval is denied unless a rule allows it. A worker must
    run: whet worker, or an open chat.
    """
    if bool(expression) == bool(at):
        raise click.UsageError("give a cron expression or --at TIME, one of them")
    clock = SystemClock()
    with _opened(home) as database:
        now = database.read_now(lambda db: time_of(db, clock))
        made, due = _made(home, (expression or "", at or ""), given, clock.new_id(), now)
        database.read_now(lambda db: check(db, made.target))
        if made.session_id:
            found = database.read_now(lambda db: sessions.resolve(db, made.session_id))
            made = msgspec.structs.replace(made, session_id=found)

        def work(db: apsw.Connection) -> Schedule:
            name = made.name or _free_name(db, made.prompt)
            named = msgspec.structs.replace(made, name=name)
            schedules.add(db, named, due, clock)
            return named

        stored = database.write_now(work)
    if as_json:
        return emit_json({"schedule": msgspec.to_builtins(stored) | {"next": due}})
    click.echo(f"{printable(stored.name)}: next {_local(due, stored)}. It needs a worker: whet worker")


@cron.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """List schedules with their next and last run."""

    def work(db: apsw.Connection) -> list[_State]:
        return [_state(db, schedule) for schedule in schedules.every(db)]

    found = _read(home, work) or []
    now = SystemClock().now()
    shape: list[Column[_State]] = [
        Column("name", lambda row: printable(row[0].name), grows=True, least=10),
        Column("when", lambda row: row[0].expression or "once", rank=2),
        Column("next", lambda row: _next(row[0], row[1]), rank=1),
        Column("last", lambda row: output.age(row[2].started, now) if row[2] else "-", rank=3),
        Column("result", lambda row: _result(row[2]) if row[2] else "-"),
        Column("to", lambda row: printable(row[0].target) or "-", grows=True, rank=4),
    ]
    facts = {"schedules": [_object(*row) for row in found]}
    emit_rows(found, shape, facts, none=_NONE_YET, as_json=as_json)


@cron.command("show")
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1), default=10, show_default=True, help="The latest so many runs."
)
@home_and_json
def show(home: Home, name: str, limit: int, as_json: bool) -> None:
    """Show a schedule, its next time and its latest runs."""

    def work(db: apsw.Connection) -> tuple[_State, list[ScheduleRun]]:
        schedule = schedules.find(db, name)
        return _state(db, schedule), schedules.runs(db, schedule.id, limit)

    found = _read(home, work)
    if found is None:
        raise NotFound(f"there is no schedule {name}", hint="`whet cron list` shows them")
    state, runs = found
    if as_json:
        return emit_json(_object(*state) | {"runs": runs})
    click.echo("\n".join(_lines(*state)))
    click.echo("Runs:" if runs else "It has not run yet.")
    for run in runs:
        where = f"  session {run.session_id}" if run.session_id else ""
        note = f"  {printable(run.note)}" if run.note else ""
        click.echo(f"  {_local(run.started, state[0])}  {_result(run)}{where}{note}")


@cron.command("run")
@click.argument("name")
@json_option
@click.pass_context
def run(ctx: click.Context, name: str, as_json: bool) -> None:
    """Run a schedule now and print its answer; its next time stays."""
    home: Home = ctx.obj
    finished = run_on_loop(_run_now(home, name))
    came = finished.run
    if as_json:
        emit_json({"run": came})
    else:
        if came.text:
            click.echo(printable(came.text))
        if sys.stderr.isatty() or came.result != "answered":
            note = f": {printable(came.note)}" if came.note else ""
            click.echo(f"{_result(came)} in session {came.session_id or '-'}{note}", err=True)
    ctx.exit(0 if came.result in ("answered", "budget") else 1)


@cron.command("rm")
@click.argument("name")
@click.pass_obj
def remove(home: Home, name: str) -> None:
    """Remove a schedule; the sessions of its runs stay."""
    found = _change(home, name, lambda db, one, _: schedules.remove(db, one.id))
    click.echo(f"removed {printable(found.name)}; its sessions stay: whet sessions list")


@cron.command("pause")
@click.argument("name")
@click.pass_obj
def pause(home: Home, name: str) -> None:
    """Let no further time come until `whet cron resume`; one that runs goes on."""
    found = _change(home, name, lambda db, one, _: schedules.pause(db, one.id))
    click.echo(f"paused {printable(found.name)}; to go on: whet cron resume {printable(found.name)}")


@cron.command("resume")
@click.argument("name")
@click.pass_obj
def resume(home: Home, name: str) -> None:
    """Let a paused schedule's times come again; those that passed are not made up."""

    def work(db: apsw.Connection, one: Schedule, clock: Clock) -> None:
        now = time_of(db, clock)
        if one.at and one.at <= iso(now):
            raise ConfigError(
                f"its only time, {_local(one.at, one)}, has passed", hint="whet cron add makes a new one"
            )
        check(db, one.target)
        if one.paused:
            due = one.at or iso(timing.next_after(one, now))
            schedules.resume(db, one.id, due, clock)

    found = _change(home, name, work)
    due = _read(home, lambda db: schedules.next_due(db, found.id)) or ""
    click.echo(f"{printable(found.name)}: next {_local(due, found)}")


async def _run_now(home: Home, name: str) -> Finished:
    clock = SystemClock()
    settings = load(home, {}, environ=os.environ).settings
    with _opened(home) as database:

        def work(db: apsw.Connection) -> tuple[Schedule, str]:
            found = schedules.find(db, name)
            if jobs.running_owner(db, schedules.KIND, found.id, clock):
                raise WhetError(f"{found.name} is running now", hint=f"whet cron show {found.name}")
            return found, schedules.run_now(db, found.id, clock)

        found, job_id = database.write_now(work)
        worker = ScheduleWorker(home, database, clock, settings.schedules.catch_up_s, _silent)
        finished = await worker.run_one(job_id)
    if finished is None:
        raise WhetError(f"another worker runs {found.name} now", hint=f"whet cron show {found.name}")
    return finished


def _silent(finished: Finished) -> None:
    """Print nothing: the command does."""


def _made(
    home: Home, when: tuple[str, str], given: dict[str, Any], schedule_id: str, now: datetime
) -> tuple[Schedule, str]:
    """Make a schedule of what was typed, and its first time. Raises ConfigError."""
    expression, at = when
    zone = given["time_zone"] or timing.local_zone()
    timing.zone(zone)
    prompt = _readable(sys.stdin.read() if given["prompt"] == "-" else given["prompt"], "prompt")
    if not prompt.strip():
        raise ConfigError("there is no prompt", hint='--prompt "..." says what to do')
    settings = load(home, {}, environ=os.environ).settings
    workspace = _path(given["workspace"] or settings.tools.workspace or os.getcwd())
    if not workspace.is_dir():
        raise ConfigError(f"{workspace} is not a folder", hint="--workspace DIR names one")
    named: str = given["toolsets"]
    toolsets = tuple(name.strip() for name in named.split(",") if name.strip())
    if unknown := [name for name in toolsets if name not in TOOLSETS]:
        raise ConfigError(f"there is no toolset {unknown[0]}", hint=f"they are: {', '.join(TOOLSETS)}")
    aim = _goal(given)
    schedule = Schedule(
        id=schedule_id,
        name=_readable(" ".join(given["name"].split()), "name"),
        created=iso(now),
        expression=timing.expression(expression) if expression else "",
        at=iso(timing.single_time(at, zone, now)) if at else "",
        time_zone=zone,
        prompt=prompt,
        session_id="" if given["session"] == _NEW else given["session"],
        workspace=str(workspace),
        target=_target(given["target"]),
        toolsets=toolsets,
        timeout_s=given["timeout_s"] or settings.agent.turn_timeout_s,
        goal=aim,
        quiet=quiet.span(given["quiet"]),
    )
    if aim is not None:
        goals.check(aim, schedule.session_id)
    return schedule, schedule.at or iso(timing.next_after(schedule, now))


def _goal(given: dict[str, Any]) -> ScheduleGoal | None:
    """Read what makes a schedule's runs goals; None where nothing does. Raises ConfigError."""
    aim = ScheduleGoal(
        given["verify"],
        parse_usd(given["budget"]),
        given["steps"],
        may_change=given["may_change"],
        until_achieved=given["until_achieved"],
    )
    return aim if given["is_goal"] or aim != ScheduleGoal() else None


def _target(text: str) -> str:
    if text in ("", NOTIFY) or is_chat(text):
        return text
    path = _path(_readable(text, "target"))
    if path.is_dir() or text.endswith(("/", os.sep)):
        raise ConfigError(f"{path} is a folder", hint="name a file in it, e.g. " + str(path / "{date}.md"))
    return str(path)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{text} names the home of nobody here") from error


def _readable(text: str, what: str) -> str:
    """Give a text that was typed or piped in. Raises ConfigError for bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the {what} is no UTF-8 text", hint="iconv turns other encodings into it"
        ) from error
    return text


def _free_name(db: apsw.Connection, prompt: str) -> str:
    words = re.findall(r"[a-z0-9]+", prompt.lower())[:4]
    base = "-".join(words)[:30].strip("-") or "schedule"
    name, number = base, 1
    while schedules.is_taken(db, name):
        number += 1
        name = f"{base}-{number}"
    return name


def _state(db: apsw.Connection, schedule: Schedule) -> _State:
    runs = schedules.runs(db, schedule.id, 1)
    return schedule, schedules.next_due(db, schedule.id), runs[0] if runs else None


def _object(schedule: Schedule, due: str, last: ScheduleRun | None) -> dict[str, Any]:
    return msgspec.to_builtins(schedule) | {"next": due, "last": last}


def _next(schedule: Schedule, due: str) -> str:
    return "paused" if schedule.paused else _local(due, schedule) if due else "-"


def _lines(schedule: Schedule, due: str, last: ScheduleRun | None) -> list[str]:
    when = schedule.expression or f"once, {_local(schedule.at, schedule)}"
    rows = {
        "when": f"{when} ({schedule.time_zone})",
        "next": _next(schedule, due),
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
    return [styled(schedule.name, "bold"), *(f"  {key:8}{printable(text)}" for key, text in rows.items())]


def _result(run: ScheduleRun) -> str:
    text = run.result or "running"
    colour = {"answered": "green", "running": "yellow", "budget": "yellow", "missed": "yellow"}.get(
        text, "red"
    )
    return styled(text, colour)


def _local(moment: str, schedule: Schedule) -> str:
    """Write a stored time in the schedule's zone."""
    if not moment:
        return "-"
    return (
        datetime.fromisoformat(moment)
        .astimezone(timing.zone(schedule.time_zone))
        .strftime("%Y-%m-%d %H:%M %Z")
    )


def _change(home: Home, name: str, work: Callable[[apsw.Connection, Schedule, Clock], None]) -> Schedule:
    clock = SystemClock()

    def change(db: apsw.Connection) -> Schedule:
        found = schedules.find(db, name)
        work(db, found, clock)
        return found

    with _opened(home) as database:
        return database.write_now(change)


def _read(home: Home, work: Callable[[apsw.Connection], T]) -> T | None:
    """Read the store; None where there is none yet."""
    if not has_store(home):
        return None
    with _opened(home) as database:
        return database.read_now(work)


def _opened(home: Home) -> closing[StateDatabase]:
    home.ensure()
    return stored.opened(home)
