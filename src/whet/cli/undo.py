"""`whet undo` and `whet forget`: take one change back, or all that rests on a session."""

from __future__ import annotations

import sys

import click

from whet.cli.learned import as_object, change_lines, with_desk
from whet.cli.memory import require_home
from whet.cli.output import emit, emit_json, home_and_json, wrapped
from whet.cli.wording import printable
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.contract.texts import plural
from whet.memory.desk import LearningService
from whet.memory.requests import summary
from whet.memory.undo import ForgetStep, Purged
from whet.store import ledger, sessions

_BY_HAND = Origin("user", execution_context="command line")
_WOULD = {"take back": "would take back", "drop": "would drop", "keep": "would keep"}


@click.command(help="Take a learned change back; an undo can be undone too.")
@click.argument("change", type=int)
@home_and_json
def undo(home: Home, change: int, as_json: bool) -> None:
    """Take back CHANGE, as `whet memory log` and `whet skills log` number it: whet undo 12"""
    require_home(home)
    row = with_desk(home, lambda desk: desk.undo(change, _BY_HAND))
    emit(as_object(row), "\n".join(change_lines(row)), as_json=as_json)


@click.command(help="Take back all that was learned from a session.")
@click.option("--session", "session_id", required=True, metavar="ID", help="The session's id or title.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken back.")
@click.option("--purge", is_flag=True, help="Take the words out of the ledger too, for good.")
@click.option("-y", "--yes", is_flag=True, help="With --purge: don't ask.")
@home_and_json
def forget(home: Home, session_id: str, dry_run: bool, purge: bool, yes: bool, as_json: bool) -> None:
    """Take back what rests on a session, skills compiled from it included.

    It can be undone, since the ledger keeps what it was; with --purge the ledger keeps no word of it.
    """
    if purge and dry_run:
        raise click.UsageError("--purge and --dry-run don't go together")
    require_home(home)
    if purge and not yes:
        _ask(session_id)

    async def work(desk: LearningService) -> tuple[list[ForgetStep], Purged | None]:
        whose, found = await _whose(home, desk, session_id)
        steps = await whose.forget(found, _BY_HAND, dry_run=dry_run)
        return steps, await whose.purge(found) if purge else None

    steps, purged = with_desk(home, work)
    if as_json:
        rows = [{"what": step.what, "why": step.why, "change": as_object(step.row)} for step in steps]
        if purge:  # the words are gone; they don't come back here
            rows = [
                {"what": step.what, "why": step.why, "change": {"id": step.row.id, "item": step.row.item}}
                for step in steps
            ]
        return emit_json(
            {"session_id": session_id, "dry_run": dry_run, "steps": rows}
            | ({"purged": purged} if purged else {})
        )
    if not steps and not (purged and purged.rows):
        return click.echo("Nothing rests on that session.")
    for step in steps:
        click.echo(_line(step, dry_run=dry_run, purged=purge))
    if purged:
        _say(purged, session_id)


async def _whose(home: Home, desk: LearningService, session_id: str) -> tuple[LearningService, str]:
    """Give the desk of whoever a session taught something about, the owner's or a guest's, and its whole id.

    Raises NotFound where none is named.
    """
    try:
        found = await desk.database.read(lambda db: sessions.resolve(db, session_id))
    except NotFound:
        if not session_id.strip():
            raise
        found = session_id  # deleted since; what was learned from it is still known by its id
    rows = await desk.database.read(lambda db: ledger.select(db, 1, session_id=found))
    profile = rows[0].profile if rows else ""
    return (desk.for_person(profile, home.people / profile) if profile else desk), found


def _ask(session_id: str) -> None:
    """Have the person say that they mean it. Raises WhetError without one."""
    if not sys.stdin.isatty():
        raise WhetError(
            "nothing was purged: nobody is at a terminal to confirm it", hint="--yes does it unasked"
        )
    click.confirm(
        f"No undo brings back what is purged. Purge what {printable(session_id)} taught?", abort=True
    )


def _line(step: ForgetStep, *, dry_run: bool, purged: bool) -> str:
    done = {"take back": "took back", "drop": "dropped", "keep": "kept"}
    said = (_WOULD if dry_run else done)[step.what]
    why = f" ({step.why})" if step.why else ""
    text = " ".join((step.row.after or step.row.before).split())[:80]
    return printable(f"{said} change {step.row.id}: {summary(step.row)}{why}{'' if purged else f': {text}'}")


def _say(purged: Purged, session_id: str) -> None:
    """Say what is gone and where the words still are."""
    rows, texts = len(purged.rows), purged.texts
    versions = f"{plural(texts, 'kept version')} of files"
    click.echo(f"purged {plural(rows, 'change')} and {versions}")
    click.echo(
        wrapped(f"What was said stands in the conversation: whet sessions delete {printable(session_id)}")
    )
    if purged.prompts:
        names = ", ".join(purged.prompts[:5]) + (", ..." if len(purged.prompts) > 5 else "")
        began = f"{plural(len(purged.prompts), 'session')} began with it"
        click.echo(wrapped(f"{began}; their prompts keep it until they are deleted: {names}"))
