"""`whet goal`: start, list, show, stop or resume goals, on which the agent works until they are proven."""

from __future__ import annotations

import sys
from contextlib import aclosing

import click

from whet.cli import stored
from whet.cli.launch import ChatOptions, load_settings, model_flags, model_options, start_app, text_option
from whet.cli.main import run_on_loop
from whet.clock import SystemClock, iso
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.contract.events import Event, TextDelta, ToolFinished, TurnEnd, show_nothing
from whet.contract.protocols import NobodyPresent
from whet.contract.texts import call_subject
from whet.goals.pursuit import GoalRunner, report
from whet.goals.text import GoalReport, GoalWish, claim_lines, parse_usd, progress_text
from whet.log import mask
from whet.store import goals
from whet.store.database import has_store
from whet.terminal import wording
from whet.terminal.bell import ring_for
from whet.terminal.output import (
    Column,
    age,
    cost,
    emit,
    emit_rows,
    fit,
    home_and_json,
    terminal_width,
)
from whet.terminal.person import LinePerson

goal: click.Group = click.Group("goal", help="Start, list, show, stop or resume goals that must be proven.")


@goal.command("start")
@click.argument("text")
@text_option("--verify", default="", metavar="CMD", help="Passes when the goal is reached; Whet runs it.")
@text_option("--guard", multiple=True, metavar="PATH", help="Must stay as it is, as the verifier's files.")
@text_option(
    "--may-change", multiple=True, metavar="PATH", help="May change, although it is part of the check."
)
@text_option("--budget", default="0", metavar="USD", help="The most that it may cost.")
@click.option("--steps", type=click.IntRange(1), help="The most model calls; by default unlimited.")
@model_options
@home_and_json
def start(home: Home, text: str, as_json: bool, **options: object) -> None:
    """Pursue TEXT until CMD passes. Without CMD, until calls met the checks of TEXT."""
    wish = GoalWish(
        text,
        str(options.pop("verify")),
        parse_usd(str(options.pop("budget"))),
        int(str(options.pop("steps") or 0)),
        tuple(str(path) for path in _as_tuple(options.pop("guard"))),
        tuple(str(path) for path in _as_tuple(options.pop("may_change"))),
    )
    _pursue(ChatOptions(home, flags=model_flags(options)), wish, as_json=as_json)


@goal.command("resume")
@click.argument("goal_id", default="")
@model_options
@home_and_json
def resume(home: Home, goal_id: str, as_json: bool, **options: object) -> None:
    """Resume a goal that was paused or interrupted."""
    stored.require_store(home)
    row = stored.read(home, lambda db: goals.get(db, goal_id))
    if row.state not in goals.OPEN:
        raise WhetError(f"this goal has ended: {row.state}", hint="whet goal start begins another")
    _pursue(ChatOptions(home, flags=model_flags(options)), row, as_json=as_json)


@goal.command("list")
@home_and_json
def list_goals(home: Home, as_json: bool) -> None:
    """List goals, newest first."""
    rows = stored.read(home, goals.list_goals) if has_store(home) else []
    now = SystemClock().now()
    columns: list[Column[goals.GoalRow]] = [
        Column("id", lambda row: row.id[:10], rank=1),
        Column("state", lambda row: row.state),
        Column("rounds", lambda row: str(row.round), right=True, rank=3),
        Column("begun", lambda row: age(row.begun, now), rank=2),
        Column("goal", lambda row: row.text, grows=True),
    ]
    emit_rows(rows, columns, rows, none='No goals yet. Begin one: whet goal start "..."', as_json=as_json)


@goal.command("show")
@click.argument("goal_id", default="")
@home_and_json
def show(home: Home, goal_id: str, as_json: bool) -> None:
    """Show a goal, the actual effects of its calls, and the verifier's last output."""
    stored.require_store(home)
    goal_report = stored.read(home, lambda db: report(db, goals.get(db, goal_id)))
    emit(goal_report, "\n".join(report_lines(goal_report, full=True)), as_json=as_json)


@goal.command("stop")
@click.argument("goal_id", default="")
@home_and_json
def stop(home: Home, goal_id: str, as_json: bool) -> None:
    """Cancel an open goal; a turn that runs elsewhere is its last one."""
    stored.require_store(home)
    row, at = stored.read(home, lambda db: goals.get(db, goal_id)), iso(SystemClock().now())
    if not stored.write(home, lambda db: goals.end_goal(db, row.id, "cancelled", "stopped by hand", at)):
        raise WhetError(f"this goal has ended: {row.state}")
    goal_report = stored.read(home, lambda db: report(db, goals.get(db, row.id)))
    emit(goal_report, "\n".join(report_lines(goal_report)), as_json=as_json)


def report_lines(goal_report: GoalReport, *, full: bool = False) -> list[str]:
    """Return the lines that describe a goal's result to a person."""
    goal = goal_report.goal
    head = f"{goal.state}: {goal.text}" if full else f"goal {goal.state}"
    spent = f", {cost(goal_report.spent_usd)}" if goal_report.spent_usd else ""
    texts = [wording.printable(head) + (f" ({wording.printable(goal.note)})" if goal.note else "")]
    texts.append(progress_text(goal_report) + spent)
    if goal_report.receipt.parts:
        texts.append(wording.receipt(goal_report.receipt, terminal_width()))
    texts += [mask(wording.printable(line)) for line in claim_lines(goal_report)]
    if full:
        texts += [f"  {mask(fit(row))}" for row in goal_report.receipt.rows]
        texts += [f"  | {mask(wording.printable(line))}" for line in goal.said.splitlines()[-12:]]
    elif goal.verify and goal.state != "achieved":
        first, *others = goal.said.strip().splitlines() or [""]
        texts += [f"  | {mask(wording.printable(line))}" for line in (first, *others[-2:]) if line]
    return texts


def _pursue(options: ChatOptions, target: GoalWish | goals.GoalRow, *, as_json: bool) -> None:
    settings = load_settings(options, None)
    is_present = not as_json and sys.stdin.isatty() and sys.stderr.isatty()

    async def run() -> GoalReport:
        person = NobodyPresent()
        if is_present:
            person = ring_for(LinePerson(theme=settings.ui.theme), settings.notify)
        async with aclosing(await start_app(options, settings, person)) as app:
            runner = GoalRunner(app.sessions, show_nothing if as_json else _show)
            if isinstance(target, GoalWish):
                row, session = await runner.start(target)
            else:
                row, session = target, await runner.reopen(target)
            if not as_json:
                click.echo(f"goal {row.id} in session {session.id}", err=True)
            ended = await runner.pursue(row, session)
            await app.leave_reviews()
            return await app.database.read(lambda db: report(db, ended))

    try:
        goal_report = run_on_loop(run())
    except KeyboardInterrupt:
        raise click.Abort from None
    emit(goal_report, "\n".join(report_lines(goal_report)), as_json=as_json)
    if goal_report.goal.state != "achieved":
        raise click.exceptions.Exit(1)


def _show(event: Event) -> None:
    if isinstance(event, TextDelta):
        click.echo(wording.printable(event.text), nl=False)
    elif isinstance(event, TurnEnd):
        click.echo(nl=bool(event.text))
    elif isinstance(event, ToolFinished):
        mark = "+" if event.ok else "x"
        subject = call_subject(event.arguments)
        line = wording.call_line(
            event.name, subject, terminal_width(), mark=mark, tail=wording.outcome(event)
        )
        click.echo(line, err=True)
    elif line := wording.aside(event):
        click.echo(f"\n{line}", err=True)


def _as_tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
