"""`whet goal`: work that ends only when it is proven; start, list, show, stop, resume."""

from __future__ import annotations

import sys
from contextlib import aclosing

import click
import msgspec

from whet.app.goal_words import parse_usd, shown_by, taken
from whet.app.goals import GoalReport, GoalRunner, GoalWish, report
from whet.cli import stored, wording
from whet.cli.launch import ChatOptions, load_settings, model_flags, model_options, start_app
from whet.cli.main import run_on_loop
from whet.cli.output import Column, age, cost, emit, emit_json, emit_rows, fit, home_and_json, terminal_width
from whet.cli.person import LinePerson
from whet.clock import SystemClock, iso
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.contract.events import Event, TextDelta, ToolFinished, TurnEnd
from whet.contract.protocols import NobodyPresent
from whet.log import mask
from whet.store import goals
from whet.store.goals import GoalRow

goal: click.Group = click.Group("goal", help="Start, list, show, stop or resume goals that must be proven.")


@goal.command("start")
@click.argument("text")
@click.option("--verify", default="", metavar="CMD", help="Passes when the goal is reached; Whet runs it.")
@click.option("--guard", multiple=True, metavar="PATH", help="Must stay as it is, as the verifier's files.")
@click.option("--may-change", multiple=True, metavar="PATH", help="May change though it judges.")
@click.option("--budget", default="0", metavar="USD", help="The most that it may cost.")
@click.option("--steps", type=click.IntRange(0), default=0, help="The most model calls.")
@model_options
@home_and_json
def start(home: Home, text: str, as_json: bool, **given: object) -> None:
    """Pursue TEXT until CMD passes, or without one until `finish` is borne out by calls."""
    wish = GoalWish(
        text,
        str(given.pop("verify")),
        parse_usd(str(given.pop("budget"))),
        int(str(given.pop("steps"))),
        tuple(str(path) for path in _listed(given.pop("guard"))),
        tuple(str(path) for path in _listed(given.pop("may_change"))),
    )
    _pursue(ChatOptions(home, flags=model_flags(given)), wish, as_json=as_json)


@goal.command("resume")
@click.argument("goal_id", default="")
@model_options
@home_and_json
def resume(home: Home, goal_id: str, as_json: bool, **given: object) -> None:
    """Go on with a goal that was paused or cut off."""
    stored.must_exist(home)
    found = stored.read(home, lambda db: goals.get(db, goal_id))
    if found.state not in goals.OPEN:
        raise WhetError(f"this goal has ended: {found.state}", hint="whet goal start begins another")
    _pursue(ChatOptions(home, flags=model_flags(given)), found, as_json=as_json)


@goal.command("list")
@home_and_json
def list_goals(home: Home, as_json: bool) -> None:
    """List goals, newest first."""
    stored.must_exist(home)
    found, now = stored.read(home, goals.listed), SystemClock().now()
    shape: list[Column[GoalRow]] = [
        Column("id", lambda one: one.id[:10], rank=1),
        Column("state", lambda one: one.state),
        Column("rounds", lambda one: str(one.round), right=True, rank=3),
        Column("begun", lambda one: age(one.begun, now), rank=2),
        Column("goal", lambda one: one.text, grows=True),
    ]
    emit_rows(found, shape, found, none="there are no goals", as_json=as_json)


@goal.command("show")
@click.argument("goal_id", default="")
@home_and_json
def show(home: Home, goal_id: str, as_json: bool) -> None:
    """Show a goal, what its calls really did, and what the verifier said last."""
    stored.must_exist(home)
    found = stored.read(home, lambda db: report(db, goals.get(db, goal_id)))
    emit(found, "\n".join(lines(found, whole=True)), as_json=as_json)


@goal.command("stop")
@click.argument("goal_id", default="")
@home_and_json
def stop(home: Home, goal_id: str, as_json: bool) -> None:
    """End an open goal as cancelled; a turn that runs elsewhere is its last one."""
    stored.must_exist(home)
    found, at = stored.read(home, lambda db: goals.get(db, goal_id)), iso(SystemClock().now())
    if not stored.write(home, lambda db: goals.end(db, found.id, "cancelled", "stopped by hand", at)):
        raise WhetError(f"this goal has ended: {found.state}")
    done = stored.read(home, lambda db: report(db, goals.get(db, found.id)))
    emit(done, "\n".join(lines(done)), as_json=as_json)


def lines(found: GoalReport, *, whole: bool = False) -> list[str]:
    """Give what came of a goal, as a person reads it."""
    goal = found.goal
    head = f"{goal.state}: {goal.text}" if whole else f"goal {goal.state}"
    spent = f", {cost(found.spent_usd)}" if found.spent_usd else ""
    said = [wording.printable(head) + (f" ({wording.printable(goal.note)})" if goal.note else "")]
    said.append(taken(found) + spent)
    if found.receipt.parts:
        said.append(wording.receipt(found.receipt, terminal_width()))
    said += [mask(wording.printable(line)) for line in shown_by(found)]
    if whole:
        said += [f"  {mask(fit(row))}" for row in found.receipt.rows]
        said += [f"  | {mask(wording.printable(line))}" for line in goal.said.splitlines()[-12:]]
    return said


def _pursue(options: ChatOptions, what: GoalWish | GoalRow, *, as_json: bool) -> None:
    settings = load_settings(options, None)
    there = not as_json and sys.stdin.isatty() and sys.stderr.isatty()

    async def run() -> GoalReport:
        async with aclosing(
            await start_app(options, settings, LinePerson() if there else NobodyPresent())
        ) as app:
            runner = GoalRunner(app, _silent if as_json else _show)
            if isinstance(what, GoalWish):
                row, session = await runner.start(what)
            else:
                row, session = what, await runner.reopen(what)
            if not as_json:
                click.echo(f"goal {row.id} in session {session.id}", err=True)
            ended = await runner.pursue(row, session)
            await app.reviews.leave()
            return await app.database.read(lambda db: report(db, ended))

    try:
        done = run_on_loop(run())
    except KeyboardInterrupt:
        raise click.Abort from None
    emit_json(msgspec.to_builtins(done)) if as_json else click.echo("\n".join(lines(done)))
    if done.goal.state != "achieved":
        raise click.exceptions.Exit(1)


def _silent(event: Event) -> None:
    del event


def _show(event: Event) -> None:
    if isinstance(event, TextDelta):
        click.echo(wording.printable(event.text), nl=False)
    elif isinstance(event, TurnEnd):
        click.echo(nl=bool(event.text))
    elif isinstance(event, ToolFinished):
        mark = "+" if event.ok else "x"
        about = wording.subject(event.arguments)
        line = wording.call_line(event.name, about, terminal_width(), mark=mark, tail=wording.outcome(event))
        click.echo(line, err=True)
    elif line := wording.aside(event):
        click.echo(f"\n{line}", err=True)


def _listed(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
