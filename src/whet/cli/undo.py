"""`whet undo` and `whet forget`: take one change back, or all that rests on a session."""

from __future__ import annotations

import click

from whet.cli.learned import as_object, change_lines, with_desk
from whet.cli.memory import require_home
from whet.cli.output import emit_json
from whet.cli.wording import printable
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.contract.origin import Origin
from whet.memory.desk import Desk
from whet.memory.forget import Step
from whet.memory.wording import summary
from whet.store import sessions

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
_BY_HAND = Origin("user", execution_context="command line")


@click.command(help="Take a learned change back; an undo can be undone too.")
@click.argument("change", type=int)
@_as_json
@click.pass_obj
def undo(home: Home, change: int, as_json: bool) -> None:
    """Take back CHANGE, as `whet memory log` and `whet skills log` number it: whet undo 12"""
    require_home(home)
    row = with_desk(home, lambda desk: desk.undo(change, _BY_HAND))
    if as_json:
        return emit_json(as_object(row))
    click.echo("\n".join(change_lines(row)))


@click.command(help="Take back all that was learned from a session.")
@click.option("--session", "session_id", required=True, metavar="ID", help="The session's id or title.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken back.")
@_as_json
@click.pass_obj
def forget(home: Home, session_id: str, dry_run: bool, as_json: bool) -> None:
    """Take back what rests on a session, skills compiled from it included."""
    require_home(home)

    async def work(desk: Desk) -> list[Step]:
        try:
            found = await desk.database.read(lambda db: sessions.resolve(db, session_id))
        except NotFound:
            found = session_id  # deleted since; what was learned from it is still known by its id
        return await desk.forget(found, _BY_HAND, dry_run=dry_run)

    steps = with_desk(home, work)
    if as_json:
        rows = [{"what": step.what, "why": step.why, "change": as_object(step.row)} for step in steps]
        return emit_json({"session_id": session_id, "dry_run": dry_run, "steps": rows})
    if not steps:
        return click.echo("Nothing rests on that session.")
    verb = {"take back": "would take back", "drop": "would drop", "keep": "would keep"}
    done = {"take back": "took back", "drop": "dropped", "keep": "kept"}
    for step in steps:
        why = f" ({step.why})" if step.why else ""
        text = " ".join((step.row.after or step.row.before).split())[:80]
        said = (verb if dry_run else done)[step.what]
        click.echo(printable(f"{said} change {step.row.id}: {summary(step.row)}{why}: {text}"))
