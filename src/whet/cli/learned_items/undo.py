"""`whet undo` and `whet forget`: undo one learned change, or all changes that rest on a session."""

from __future__ import annotations

import sys

import click

from whet.cli.learned_items.changes import as_object, change_lines, with_learning
from whet.cli.learned_items.memory import require_home
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.contract.texts import plural
from whet.memory.requests import summarize_change
from whet.memory.service import LearningService
from whet.memory.undo import ForgetStep, Purged
from whet.store import ledger, sessions
from whet.terminal.output import emit, emit_json, home_and_json, wrap_text
from whet.terminal.wording import printable

_BY_HAND = Origin("user", execution_context="command line")
_DONE = {"take back": "took back", "drop": "dropped", "keep": "kept"}
_WOULD = {"take back": "would take back", "drop": "would drop", "keep": "would keep"}


@click.command(help="Undo a learned change; an undo can be undone too.")
@click.argument("change", type=int)
@home_and_json
def undo(home: Home, change: int, as_json: bool) -> None:
    """Undo CHANGE, by its number in `whet memory log` and `whet skills log`: whet undo 12"""
    require_home(home)
    row = with_learning(home, lambda learning: learning.undo(change, _BY_HAND))
    emit(as_object(row), "\n".join(change_lines(row)), as_json=as_json)


@click.command(help="Undo everything that was learned from a session.")
@click.option("--session", "session_id", required=True, metavar="ID", help="The session's id or title.")
@click.option("--dry-run", is_flag=True, help="Only say what would be undone.")
@click.option("--purge", is_flag=True, help="Also erase the words from the ledger, for good.")
@click.option("-y", "--yes", is_flag=True, help="With --purge: don't ask.")
@home_and_json
def forget(home: Home, session_id: str, dry_run: bool, purge: bool, yes: bool, as_json: bool) -> None:
    """Undo all changes that rest on a session, including skills compiled from it.

    It can be undone, since the ledger keeps the old texts; with --purge the ledger keeps none of them.
    """
    if purge and dry_run:
        raise click.UsageError("--purge and --dry-run don't go together")
    require_home(home)
    if purge and not yes:
        _ask(session_id)

    async def forget_session(learning: LearningService) -> tuple[list[ForgetStep], Purged | None, bool]:
        owner_learning, full_id, exists = await _find_learning(home, learning, session_id)
        steps = await owner_learning.forget(full_id, _BY_HAND, dry_run=dry_run)
        return steps, await owner_learning.purge(full_id) if purge else None, exists

    steps, purged, exists = with_learning(home, forget_session)
    if as_json:
        rows: list[dict[str, object]] = []
        for step in steps:
            # purged text must not appear in the output
            change = {"id": step.row.id, "item": step.row.item} if purge else as_object(step.row)
            rows.append({"what": step.what, "why": step.why, "change": change})
        facts: dict[str, object] = {"session_id": session_id, "dry_run": dry_run, "steps": rows}
        return emit_json(facts | {"purged": purged} if purged else facts)
    if not steps and not (purged and purged.rows):
        return click.echo("Nothing rests on that session.")
    for step in steps:
        click.echo(_describe_step(step, dry_run=dry_run, purged=purge))
    if purged:
        _report_purge(purged, session_id if exists else "")


async def _find_learning(
    home: Home, learning: LearningService, session_id: str
) -> tuple[LearningService, str, bool]:
    """Return the learning service of the session's person, the session's full id, and whether the session
    still exists.

    Changes keep the id of a deleted session. Raises NotFound if neither a session nor a change has that id.
    """
    try:
        full_id = await learning.database.read(lambda db: sessions.resolve_id(db, session_id))
        missing = None
    except NotFound as error:
        if not session_id.strip():
            raise
        full_id, missing = session_id, error
    rows = await learning.database.read(lambda db: ledger.select(db, 1, session_id=full_id))
    if missing is not None and not rows:
        raise missing
    profile = rows[0].profile if rows else ""
    service = learning.for_person(profile, home.people / profile) if profile else learning
    return service, full_id, missing is None


def _ask(session_id: str) -> None:
    """Ask the person to confirm. Raises WhetError if no one is present."""
    if not sys.stdin.isatty():
        raise WhetError(
            "nothing was purged: nobody is at a terminal to confirm it", hint="--yes does it unasked"
        )
    click.confirm(
        f"No undo brings back what is purged. Purge what {printable(session_id)} taught?", abort=True
    )


def _describe_step(step: ForgetStep, *, dry_run: bool, purged: bool) -> str:
    verb = (_WOULD if dry_run else _DONE)[step.what]
    why = f" ({step.why})" if step.why else ""
    text = " ".join((step.row.after or step.row.before).split())[:80]
    return printable(
        f"{verb} change {step.row.id}: {summarize_change(step.row)}{why}{'' if purged else f': {text}'}"
    )


def _report_purge(purged: Purged, session_id: str) -> None:
    """Print the number of purged changes, and name the conversations that still have the text. `session_id`
    is the session they were learned from, or empty if it was deleted."""
    rows, texts = len(purged.rows), purged.texts
    versions = f"{plural(texts, 'kept version')} of files"
    click.echo(f"purged {plural(rows, 'change')} and {versions}")
    if session_id:
        command = f"whet sessions delete {printable(session_id)}"
        click.echo(wrap_text(f"What was said stands in the conversation: {command}"))
    if purged.prompts:
        names = ", ".join(purged.prompts[:5]) + (", ..." if len(purged.prompts) > 5 else "")
        began = f"{plural(len(purged.prompts), 'session')} began with it"
        click.echo(wrap_text(f"{began}; their prompts keep it until they are deleted: {names}"))
