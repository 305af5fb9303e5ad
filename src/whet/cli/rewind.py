"""`whet rewind` and `whet diff`: list the file changes of steps, and undo them."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from whet.cli import stored
from whet.cli.interactive import rewind_report
from whet.cli.main import run_on_loop
from whet.cli.sessions import complete_session
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.lanes import ToolPool
from whet.rewind.answers import RewindPoints, diff_answer, points_answer, rewind_answer
from whet.rewind.recordings import Recordings
from whet.rewind.rewinding import Outcome, Rewinding, parse_target
from whet.store.rewinds import Parts
from whet.store.sessions import SessionRow
from whet.store.transcript import Transcript
from whet.terminal.output import emit_json, home_and_json, print_long, style_text
from whet.terminal.wording import exact

T = TypeVar("T")
_MAX_TURN_DIGITS = 3  # so many digits are a turn without its colon, and no beginning of an id


@click.command("rewind")
@click.argument("target", metavar="[SESSION][:TURN[.STEP]]", default="", shell_complete=complete_session)
@click.option("--files", "parts", flag_value="files", help="Only the files.")
@click.option("--conversation", "parts", flag_value="conversation", help="Only the conversation.")
@click.option(
    "--both", "parts", flag_value="both", default=True, help="Files and conversation (the default)."
)
@click.option("--undo", is_flag=True, help="Undo the last rewind of the session.")
@click.option("--force", "--theirs", "force", is_flag=True, help="Also restore files that others changed.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@home_and_json
def rewind(home: Home, target: str, parts: Parts, **flags: bool) -> None:
    """Go back to before a turn, or a step of it. Without one: list the points that there are.

    Without a session: the latest one of this folder.

    What you changed yourself since is kept: merged where your lines and the agent's are apart, else left as
    it is and listed. A rewind is a step of its own: --undo takes it back.

    \b
    whet rewind 01JD            the points of a session
    whet rewind 01JD:3          to before turn 3: files and conversation
    whet rewind 01JD:3.2 --files
    """
    undo, force, dry_run, as_json = (flags[name] for name in ("undo", "force", "dry_run", "as_json"))
    name, point = parse_target(target)
    if undo and point is not None:
        raise click.UsageError("--undo and a point don't go together")
    if point is None and not undo:
        return _list(home, name, as_json=as_json)

    async def rewind_session(rewinding: Rewinding) -> Outcome:
        if dry_run:
            return await rewinding.preview(point, parts, force=force)
        is_forced = force
        if not force and not as_json and sys.stdin.isatty():
            plan = await rewinding.preview(point, parts, force=False)
            is_forced = bool(plan.forceable_conflicts) and _ask(plan)
        return await rewinding.rewind(point, parts, force=is_forced)

    session, outcome = _with_rewinding(home, name, rewind_session)
    if as_json:
        emit_json(_add_session(session, rewind_answer(outcome, is_plan=dry_run)))
    else:
        click.echo(stored.describe_session(session))
        click.echo("\n".join(rewind_report.outcome(outcome, is_plan=dry_run)))
        if outcome.forceable_conflicts and not force:
            click.echo("--force sets those back, too")
    if outcome.files.failed:
        raise click.exceptions.Exit(1)


@click.command("diff")
@click.argument("target", metavar="[SESSION][:TURN]", default="", shell_complete=complete_session)
@click.option("--stat", is_flag=True, help="Only names and counts.")
@home_and_json
def diff(home: Home, target: str, stat: bool, as_json: bool) -> None:
    """Show the file changes of a turn, made by tools, shell commands or the programs that these started.

    Without a turn: all that the session changed. Without a session: the latest one of this folder.

    \b
    whet diff 01JD:3
    whet diff 01JD --stat
    """
    name, point = parse_target(target)
    if point is not None and point.step:
        raise click.UsageError("whet diff takes a turn, not a step")
    turn = point.turn if point else 0
    session, changes = _with_rewinding(home, name, lambda rewinding: rewinding.diff(turn))
    if as_json:
        return emit_json(_add_session(session, diff_answer(changes)))
    if not changes:
        return click.echo(f"No file was changed: {stored.describe_session(session)}.")
    lines = [] if stat else [_colour_line(line) for change in changes for line in change.lines]
    print_long("\n".join([stored.describe_session(session), *lines, *rewind_report.summary(changes)]))


def _list(home: Home, name: str, *, as_json: bool) -> None:
    async def read_points(rewinding: Rewinding) -> tuple[RewindPoints, list[str]]:
        finished = await rewinding.recover()
        steps, omissions = await rewinding.steps(), await rewinding.left_out()
        lines = rewind_report.points(steps)
        for omission in omissions:
            lines.append(f"  not recorded: {rewind_report.display_path(omission.path)} ({omission.why})")
        return points_answer(finished, steps, omissions), lines

    session, (points, lines) = _with_rewinding(home, name, read_points)
    if as_json:
        return emit_json(_add_session(session, points))
    click.echo(stored.describe_session(session))
    if points.finished:
        click.echo("A rewind that was cut off has been finished.")
    click.echo("\n".join(lines) if lines else "No step of this session has changed files.")


def _add_session(session: SessionRow, answer: msgspec.Struct) -> dict[str, Any]:
    return {"session_id": session.id, "workspace": session.workspace, **msgspec.structs.asdict(answer)}


def _with_rewinding(
    home: Home, name: str, function: Callable[[Rewinding], Awaitable[T]]
) -> tuple[SessionRow, T]:
    """Return the session of this name and the result of `function` for it. Raises NotFound if the session
    does not exist or has no workspace."""
    if name.isdecimal() and len(name) <= _MAX_TURN_DIGITS:
        raise NotFound(
            f"{name} names no session", hint=f":{name} is turn {name} of the latest session; an id is longer"
        )
    stored.require_store(home)
    settings = load(home, environ=os.environ).settings
    clock, pool = SystemClock(), ToolPool(1)
    recordings = Recordings(home, settings.rewind, clock, pool)

    async def run() -> tuple[SessionRow, T]:
        with stored.open_database(home) as database:
            session = database.read_now(lambda db: stored.find_session(db, name))
            if not session.workspace:
                raise NotFound(f"session {session.id} has no workspace")
            log = await Transcript.open(database, session.id, clock)
            return session, await function(Rewinding(recordings, log, Path(session.workspace)))

    try:
        return run_on_loop(run())
    finally:
        pool.close()
        recordings.close()


def _ask(plan: Outcome) -> bool:
    click.echo("Changed since by others:", err=True)
    for conflict in plan.files.conflicts:
        click.echo(f"  {rewind_report.display_path(conflict.path)} ({conflict.why})", err=True)
    return click.confirm("Set these back, too, and lose what others made of them?", default=False, err=True)


def _colour_line(line: str) -> str:
    text = exact(line)
    if line.startswith("+"):
        return style_text(text, "green")
    if line.startswith("-"):
        return style_text(text, "red")
    return style_text(text, "bold") if line.startswith("@@") else text
