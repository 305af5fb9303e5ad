"""`whet sessions`: list, show, search, export, rename, archive and delete stored conversations.

A session is named by its id, the beginning of its id, or its title. If nothing is stored yet, no database is
created.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import click
import msgspec

from whet.app.deleted_sessions import forget_deleted_sessions
from whet.cli import stored
from whet.cli.interactive.forks import title_text
from whet.cli.search_hits import begin_of_day, mask_hit, print_hits
from whet.cli.transcript import load_ui, render
from whet.clock import SystemClock, iso, local_day
from whet.config.paths import Home, find_home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, NotFound, StoreBusy, StoreFull, WhetError
from whet.contract.messages import Message, to_dict
from whet.contract.texts import plural
from whet.store import forks, pins, session_deletion
from whet.store import search as index
from whet.store import sessions as store
from whet.store.database import StateDatabase, has_store
from whet.store.helper_rows import helper_usage
from whet.store.index import count_backlog
from whet.store.purge import erase
from whet.store.ranking import SearchScope
from whet.store.sessions import SessionFilter, SessionRow
from whet.terminal import output
from whet.terminal.output import Column, emit, emit_json, home_and_json
from whet.terminal.wording import count, printable, printable_styled

T = TypeVar("T")
_EVERYTHING = 1 << 30
_NONE_YET = "No sessions yet. Begin one: whet"


sessions: click.Group = click.Group("sessions", help="List, show, search, export and delete conversations.")


def complete_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a session's id from the latest ones."""
    # During shell completion the top command does not run, so there is no context object.
    home = find_home(ctx.find_root().params.get("profile") or "")
    try:
        rows = _read(home, lambda db: store.list_sessions(db, 50))
    except WhetError:
        return []
    return [row.id for row in rows if row.id.startswith(incomplete)]


_session = click.argument("session", shell_complete=complete_session)


def _read(home: Home, query: Callable[[apsw.Connection], T]) -> T:
    stored.require_store(home)
    return stored.read(home, query)


@sessions.command("list")
@click.argument("words", nargs=-1)
@click.option("-n", "--limit", default=20, type=click.IntRange(1), show_default=True, help="How many.")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@click.option("--all-kinds", is_flag=True, help="Delegated tasks and reviews too.")
@click.option("--archived", is_flag=True, help="Only archived ones.")
@home_and_json
def list_(  # noqa: PLR0913 - one for each option
    home: Home, words: tuple[str, ...], limit: int, here: bool, all_kinds: bool, archived: bool, as_json: bool
) -> None:
    """List the latest sessions; each of WORDS is in the title or begins the id; quotes keep a phrase."""
    filters = SessionFilter(
        kinds=() if all_kinds else ("chat",),
        workspace=str(Path.cwd()) if here else "",
        query=" ".join(f'"{word}"' if " " in word else word for word in words),
        archived=archived,
    )
    rows: list[forks.TreeRow] = []
    total = 0
    if has_store(home):
        with stored.open_database(home) as database:
            rows = database.read_now(
                lambda db: forks.order_as_trees(db, store.list_sessions(db, limit, **filters))
            )
            total = database.read_now(store.count_chats)
    if as_json:
        fork_rows = [
            {"session": entry.row.id, "origin": entry.origin, "turn": entry.turn}
            for entry in rows
            if entry.origin
        ]
        return emit_json({"sessions": [entry.row for entry in rows], "forks": fork_rows, "total": total})
    if not rows:
        return click.echo("No session fits. All of them: whet sessions list" if total else _NONE_YET)
    click.echo(_make_table(rows))
    if len(rows) == limit and total > limit and not words:
        click.echo(f"{limit} of {total}; more with --limit {limit * 5}")


def _make_table(rows: list[forks.TreeRow]) -> str:
    now = SystemClock().now()
    columns: list[Column[forks.TreeRow]] = [
        Column("id", lambda entry: entry.row.id),
        Column("last active", lambda entry: output.age(entry.row.last_active, now), rank=2),
        Column("turns", lambda entry: str(entry.row.turns), right=True, rank=3),
        Column("tokens", lambda entry: count(entry.row.usage.total_tokens), right=True, rank=5),
        Column("cost", lambda entry: output.usage_cost(entry.row.usage), right=True, rank=4),
        Column("title", title_text, grows=True, least=16),
    ]
    return output.table(rows, columns)


@sessions.command("show")
@_session
@click.option("--full", is_flag=True, help="Tool calls with their arguments and results in full.")
@home_and_json
def show(home: Home, session: str, full: bool, as_json: bool) -> None:
    """Show the conversation of a session."""

    def read_session(db: apsw.Connection) -> tuple[SessionRow, list[tuple[int, Message]], str]:
        session_id = store.resolve_id(db, session)
        row = store.get(db, session_id)
        row = msgspec.structs.replace(row, usage=row.usage + helper_usage(db, session_id))
        if as_json:
            return row, index.read_messages_around(db, session_id, 0, 0, _EVERYTHING), ""
        return row, [], render(db, row, load_ui(home), full=full)

    row, messages, text = _read(home, read_session)
    if as_json:
        rows = [{"seq": seq, **to_dict(message)} for seq, message in messages]
        return emit_json({"session": row, "messages": rows})
    output.print_long(text)


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", default=10, type=click.IntRange(1), show_default=True, help="How many.")
@click.option("--session", "session", default="", metavar="ID", help="Only in this session.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Only what this role said.")
@click.option("--since", metavar="DATE", help="Only since this date, e.g. 2026-11-01.")
@click.option("--private", is_flag=True, help="Private sessions too.")
@home_and_json
def search(home: Home, words: tuple[str, ...], limit: int, **options: Any) -> None:
    """Search all messages; "quoted words" must follow each other."""
    hits: list[index.Hit] = []
    unindexed = 0
    if has_store(home):
        with stored.open_database(home) as database:
            scope = SearchScope(
                role=options["role"],
                since=begin_of_day(options["since"]),
                include_private=options["private"],
            )
            if options["session"]:
                scope["session_id"] = database.read_now(lambda db: store.resolve_id(db, options["session"]))
            hits = list(map(mask_hit, index.find_now(database, " ".join(words), limit, **scope)))
            unindexed = database.read_now(count_backlog)
    if options["as_json"]:
        facts: dict[str, object] = {"query": " ".join(words), "hits": hits}
        if unindexed:
            facts["unindexed_sessions"] = unindexed
        return emit_json(facts)
    if unindexed:
        note = f"The search index is being rebuilt: {unindexed} older sessions are not in it yet. "
        click.echo(f"{note}Each search and each turn goes on with it.", err=True)
    if not hits:
        click.echo(
            f"Nothing found for {' '.join(words)!r}. Try fewer or other words; private sessions: --private"
        )
    print_hits(hits)


@sessions.command("export")
@click.argument("names", metavar="[SESSION]...", nargs=-1, shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="Every chat that is not private.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["md", "html", "jsonl"]),
    default="md",
    show_default=True,
    help="The file's format.",
)
@click.option("-o", "--output", "target", default="-", metavar="FILE", help="Where to; - is standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on what was written to FILE.")
@click.pass_obj
def export(home: Home, names: tuple[str, ...], everything: bool, **options: Any) -> None:
    """Write sessions as Markdown, a page or JSON lines, secrets masked."""
    if bool(names) == everything:
        raise click.UsageError("name the sessions, or --all")
    if options["as_json"] and options["target"] == "-":
        raise click.UsageError("--json needs -o FILE")
    load_secrets(home, os.environ)  # so that their values are masked
    from whet.cli.interactive.session_page import FORMATS  # noqa: PLC0415 - only this command writes a page

    write = FORMATS[options["kind"]]

    def write_sessions(db: apsw.Connection) -> list[str]:
        if everything:
            ids = [row.id for row in store.list_sessions(db, _EVERYTHING) if not row.private]
        else:
            ids = [store.resolve_id(db, name) for name in names]
        with _open_target(options["target"], force=options["force"]) as write_piece:
            for number, session_id in enumerate(ids, start=1):
                for piece in write(db, session_id):
                    write_piece(piece, f"session {number} of {len(ids)}")
        return ids

    ids = _read(home, write_sessions)
    if options["as_json"]:
        emit_json({"path": options["target"], "format": options["kind"], "sessions": ids})
    elif options["target"] != "-":
        click.echo(f"Wrote {plural(len(ids), 'session')} to {options['target']}")
    if everything and (private_count := _read(home, _count_private)):
        click.echo(f"Left out: {plural(private_count, 'private session')}; name one to export it.", err=True)


def _count_private(db: apsw.Connection) -> int:
    return sum(row.private for row in store.list_sessions(db, _EVERYTHING))


@contextmanager
def _open_target(target: str, *, force: bool) -> Generator[Callable[[str, str], None]]:
    """Yield a function that writes a piece of text and shows a text about the progress.

    A file is private to its owner, and gets its name when it is complete.
    """
    if target == "-":
        escape = printable_styled if sys.stdout.isatty() else str
        yield lambda piece, done: click.echo(escape(piece), nl=False)
        return
    path, partial_path, clock = Path(target), Path(target + ".part"), SystemClock()
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", hint="--force replaces it")
    progress = output.ProgressLine("export", clock)
    try:
        partial_path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # a command may have left a link
        with open(os.open(partial_path, flags, 0o600), "w", encoding="utf-8") as file:

            def write_piece(piece: str, done: str) -> None:
                file.write(piece)
                progress.update(done)

            yield write_piece
        partial_path.replace(path)
    except OSError as error:
        raise ConfigError(
            f"can't write {path}: {error.strerror}", hint="-o FILE names another file"
        ) from error
    finally:
        partial_path.unlink(missing_ok=True)
        progress.finish()


@sessions.command("rename")
@_session
@click.argument("title", nargs=-1, required=True)
@home_and_json
def rename(home: Home, session: str, title: tuple[str, ...], as_json: bool) -> None:
    """Give a session another title."""
    name = " ".join(" ".join(title).split())
    row = _change(home, session, lambda db, session_id: store.rename(db, session_id, name))
    _say(row, f"{row.id} is now {row.title!r}", as_json)


@sessions.command("archive")
@_session
@click.option("--off", is_flag=True, help="Bring it back.")
@home_and_json
def archive(home: Home, session: str, off: bool, as_json: bool) -> None:
    """Archive a session: lists omit it, search finds it."""
    row = _set_time(home, session, store.set_archive_time, off=off)
    _say(row, f"{row.id} is {'back' if off else 'put aside'}", as_json)


@sessions.command("pin")
@_session
@click.option("--off", is_flag=True, help="Unpin it.")
@home_and_json
def pin(home: Home, session: str, off: bool, as_json: bool) -> None:
    """Pin a session: the web page lists it first."""
    row = _set_time(home, session, pins.set_pin_time, off=off)
    _say(row, f"{row.id} is {'pinned no longer' if off else 'pinned'}", as_json)


@sessions.command("fork")
@_session
@click.argument("turn", type=click.IntRange(1), required=False)
@home_and_json
def fork(home: Home, session: str, turn: int | None, as_json: bool) -> None:
    """Start a session from another one's state after a TURN (by default its last one)."""
    clock = SystemClock()
    new_id, now = clock.new_id(), iso(clock.now())

    stored.require_store(home)
    row = stored.write(home, lambda db: forks.fork(db, store.resolve_id(db, session), turn or 0, new_id, now))
    _say(row, f"{row.id} goes on from there: whet chat --session {row.id}", as_json)


@sessions.command("private")
@_session
@click.option("--off", is_flag=True, help="Show it again.")
@home_and_json
def private(home: Home, session: str, off: bool, as_json: bool) -> None:
    """Keep a session out of search, bulk export and learning."""
    row = _change(home, session, lambda db, session_id: store.set_private(db, session_id, not off))
    _say(row, f"{row.id} is {'private' if row.private else 'no longer private'}", as_json)


def _set_time(
    home: Home, session: str, set_time: Callable[[apsw.Connection, str, str], None], *, off: bool
) -> SessionRow:
    """Set one of a session's times to now, or clear it if `off`."""
    now = "" if off else iso(SystemClock().now())
    return _change(home, session, lambda db, session_id: set_time(db, session_id, now))


def _change(home: Home, name: str, change: Callable[[apsw.Connection, str], None]) -> SessionRow:
    """Call `change` with the id of the session of this name, and return the changed row."""

    def find_and_change(db: apsw.Connection) -> SessionRow:
        session_id = store.resolve_id(db, name)
        change(db, session_id)
        return store.get(db, session_id)

    stored.require_store(home)
    return stored.write(home, find_and_change)


def _say(row: SessionRow, text: str, as_json: bool) -> None:
    emit({"session": row}, printable(text), as_json=as_json)


@sessions.command("delete")
@click.argument("names", metavar="SESSION...", nargs=-1, shell_complete=complete_session)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--remains", is_flag=True, help="Only erase the leftovers of earlier deletions from the file.")
@home_and_json
def delete(home: Home, names: tuple[str, ...], yes: bool, remains: bool, as_json: bool) -> None:
    """Delete sessions and all their messages, for good.

    The database is rewritten without them, so that none of their words is left in it.
    """
    if remains == bool(names):
        raise click.UsageError("name sessions, or --remains alone")
    rows = _read(home, lambda db: [store.get(db, store.resolve_id(db, name)) for name in names])
    if not yes and rows:
        _confirm(rows)
    with stored.open_database(home) as database:
        deleted_count = database.write_now(lambda db: _delete_all(db, rows))
        rewrite(database, deleted_count)
        forget_deleted_sessions(home, database, SystemClock())
    if as_json:
        emit_json({"deleted": [row.id for row in rows], "sessions": deleted_count})
    elif remains:
        click.echo("Nothing that was deleted is left in the file.")
    else:
        children = deleted_count - len({row.id for row in rows})
        more = f" and {plural(children, 'session')} that it began" if children > 0 and len(rows) == 1 else ""
        click.echo(f"Deleted {plural(deleted_count - children * bool(more), 'session')}{more}.")


def _delete_all(db: apsw.Connection, rows: list[SessionRow]) -> int:
    """Delete sessions and their children, and return the number of deleted sessions."""
    deleted_count = 0
    for row in rows:
        with suppress(NotFound):  # it was deleted with its parent, or is named twice
            deleted_count += session_deletion.delete_session(db, row.id)
    return deleted_count


def rewrite(database: StateDatabase, deleted_count: int) -> None:
    """Rewrite the database file, so that nothing of deleted sessions is left in it.

    Raises WhetError if that is not possible now. Its message says that `deleted_count` sessions were deleted.
    """
    has_terminal = sys.stderr.isatty()
    if has_terminal:
        click.echo("rewriting the database ...", err=True, nl=False)
    try:
        erase(database)
    except (StoreBusy, StoreFull) as error:
        prefix = ""
        if deleted_count:
            prefix = f"{deleted_count} deleted, but words of what is deleted are still in the file: "
        hint = "once that is over: whet sessions delete --remains"
        raise WhetError(f"{prefix}{error.message}", hint=hint) from error
    finally:
        if has_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def _confirm(rows: list[SessionRow]) -> None:
    for row in rows:
        click.echo(
            f"{row.id}  {plural(row.messages, 'message')}  {printable(row.title) or '(untitled)'}", err=True
        )
    if not sys.stdin.isatty():
        raise ConfigError(
            "nothing was deleted: nobody is at a terminal to confirm it", hint="--yes deletes without asking"
        )
    if not click.confirm("Delete for good?", err=True):
        click.echo("Nothing was deleted.", err=True)
        click.get_current_context().exit(1)


@sessions.command("stats")
@home_and_json
def stats(home: Home, as_json: bool) -> None:
    """Show totals of all stored sessions."""
    if not has_store(home):
        return emit({"sessions": 0}, _NONE_YET, as_json=as_json)
    totals = _read(home, store.read_stats)
    if as_json:
        return emit_json(totals)
    usage = totals.usage
    share = f" ({totals.failed_calls / totals.tool_calls:.1%})" if totals.tool_calls else ""
    for label, text in (
        ("sessions", f"{totals.sessions:,}, {totals.private:,} of them private"),
        ("turns", f"{totals.turns:,}"),
        ("messages", f"{totals.messages:,}"),
        ("tool calls", f"{totals.tool_calls:,}, {totals.failed_calls:,} failed{share}"),
        ("tokens", f"{usage.prompt_tokens:,} in, {usage.output_tokens:,} out"),
        ("cache", f"{usage.cache_hit_ratio:.0%} of the prompt tokens were read from it"),
        ("cost", output.usage_cost(usage)),
        ("on disk", output.size(totals.size_bytes)),
        ("since", local_day(totals.first) or "-"),
    ):
        click.echo(f"{label:<11} {text}")
