"""`whet memory`: show and edit the notes, and see who wrote each, when and why."""

from __future__ import annotations

import click

from whet.cli.learned_items.changes import (
    accept_shown,
    as_object,
    change_lines,
    changes_table,
    digest_option,
    with_learning,
)
from whet.cli.learned_items.stats import memory_retire, memory_stats
from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound
from whet.contract.origin import Origin
from whet.contract.texts import flat, plural, short
from whet.memory import note_folders, notes
from whet.memory.reader import NotesState, hash_entry
from whet.memory.requests import MemoryRequest, Target
from whet.memory.service import LearningService
from whet.store import ledger
from whet.store.database import has_store
from whet.terminal.output import emit, emit_json, home_and_json, wrap_text
from whet.terminal.wording import printable

_TARGET = click.Choice(["memory", "user"])


memory: click.Group = click.Group("memory", help="Show, edit and explain what is remembered.")


for _command in (memory_stats, memory_retire):
    memory.add_command(_command)


@memory.command("show")
@home_and_json
def show(home: Home, as_json: bool) -> None:
    """Show MEMORY.md and USER.md, and which notes apply to one folder only."""
    files, counts = with_learning(home, _read_notes)
    if as_json:
        return emit_json({"files": files, "waiting": counts})
    if not any(file.entries for file in files):
        click.echo("Nothing is remembered yet. It fills as you work; or write it yourself: whet memory edit")
    for file in files:
        if file.entries or file.trouble:
            click.echo(f"{file.path}  {file.used}, {plural(file.entries, 'entry', 'entries')}")
            click.echo(printable(file.text.strip()) + "\n" if file.text.strip() else "")
        if rows := notes.parse_entries(file.text):
            click.echo("ids, for `whet memory retire ID`:")
            lines = (f"  {hash_entry(row)}  {short(flat(row.statement), 60)}" for row in rows)
            click.echo(printable("\n".join(lines)) + "\n")
        if lines := note_folders.describe_groups(file.held_in):
            click.echo(printable("\n".join(lines)) + "\n")
        if file.left_out:
            click.echo(wrap_text(f"{file.left_out}.") + "\n")
        if file.trouble:
            click.echo(wrap_text(f"problem: {file.trouble}. Sessions read what the ledger has of it."))
    if waiting_count := sum(counts.values()):
        click.echo(f"{plural(waiting_count, 'change')} waiting for you: whet memory log --waiting")


async def _read_notes(learning: LearningService) -> tuple[list[NotesState], dict[str, int]]:
    files = await learning.reader.read_notes()
    counts = await learning.database.read(lambda db: ledger.count_by_state(db, learning.profile))
    return files, {state: counts[state] for state in ("quarantined", "inbox") if state in counts}


@memory.command("edit")
@click.argument("target", type=_TARGET, default="memory")
@click.pass_obj
def edit(home: Home, target: Target) -> None:
    """Open MEMORY.md (or `user`: USER.md) in your editor; your changes are entered as yours."""
    with_learning(home, lambda learning: learning.reader.read_notes())
    path = home.root / notes.FILES[target]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        path.write_text(f"# {target.capitalize()}\n\n", "utf-8")
    try:
        click.edit(filename=str(path))
    except click.ClickException as error:
        raise ConfigError(f"no editor: {error.message}", hint=f"set EDITOR, or edit {path}") from error
    rows, trouble = with_learning(home, lambda learning: _record_edits(learning, target))
    if rows or not trouble:
        click.echo(changes_table(rows) if rows else "Nothing was changed.")
    if trouble:
        raise ConfigError(trouble, hint=f"mend it: whet memory edit {target}")


async def _record_edits(learning: LearningService, target: Target) -> tuple[list[ledger.LedgerRow], str]:
    """Record edits by hand. Returns the new changes, and what is wrong with the target's file."""
    newest = await learning.database.read(lambda db: ledger.select(db, 1, profile=learning.profile))
    before = newest[0].id if newest else 0
    files = await learning.reader.read_notes()
    rows = await learning.database.read(
        lambda db: ledger.select(db, 50, profile=learning.profile, kind="memory")
    )
    trouble = next((file.trouble for file in files if file.target == target), "")
    return [row for row in rows if row.id > before], trouble


@memory.command("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--user", is_flag=True, help="About you (USER.md) rather than the work.")
@click.pass_obj
def add(home: Home, text: tuple[str, ...], user: bool) -> None:
    """Remember TEXT, on your word: whet memory add We deploy on Tuesdays."""
    request = MemoryRequest("add", "user" if user else "memory", " ".join(text))
    outcome = with_learning(
        home, lambda learning: learning.submit(request, Origin("user", execution_context="command line"))
    )
    if not outcome.ok:
        raise ConfigError(outcome.text)
    click.echo(f"{outcome.text}\nto take it back: whet undo {outcome.ledger_id}")


@memory.command("log")
@click.argument("change", type=int, required=False)
@click.option("--session", "session_id", default="", metavar="ID", help="Only what rests on this session.")
@click.option("--waiting", is_flag=True, help="Only changes that wait for you.")
@click.option("--limit", type=click.IntRange(1), default=30, show_default=True, help="How many.")
@home_and_json
def log(home: Home, change: int | None, session_id: str, waiting: bool, limit: int, as_json: bool) -> None:
    """List changes to memory, the newest first; with a CHANGE's number, show its details."""
    if change is not None:
        row = with_learning(home, lambda learning: learning.get_change(change))
        return emit(as_object(row), "\n".join(change_lines(row)), as_json=as_json)

    async def read(learning: LearningService) -> list[ledger.LedgerRow]:
        await learning.reader.read_notes()
        states = ("quarantined", "inbox") if waiting else ()
        return await learning.database.read(
            lambda db: ledger.select(
                db, limit, profile=learning.profile, kind="memory", session_id=session_id, states=states
            )
        )

    rows = with_learning(home, read)
    if as_json:
        return emit_json({"changes": [as_object(row) for row in rows]})
    if rows:
        click.echo(changes_table(rows))
    else:
        click.echo("No change fits." if waiting or session_id else "Nothing yet.")


@memory.command("accept")
@click.argument("change", type=int)
@digest_option
@click.pass_obj
def accept(home: Home, change: int, digest: str) -> None:
    """Show a change that waits (quarantine, inbox) and bring it into force if you say so."""

    async def select(learning: LearningService) -> list[ledger.LedgerRow]:
        return [await learning.get_change(change)]

    for row in accept_shown(home, select, digest):
        click.echo(f"in force: change {row.id}; to take it back: whet undo {row.id}")


def require_home(home: Home) -> None:
    """Raise NotFound if nothing is stored yet."""
    if not has_store(home):
        raise NotFound("nothing has been learned yet", hint="begin: whet")
