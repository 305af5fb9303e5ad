"""`whet sessions`: list, show, search, export, rename, hide and delete stored conversations.

A session is named by its id, the beginning of one, or its title. Where nothing is stored yet no database
is made; the answer says how to begin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import click

from whet.cli import output
from whet.cli.output import Column, emit_json, styled
from whet.cli.transcript import render
from whet.cli.wording import count, printable
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound
from whet.contract.messages import Message, to_dict
from whet.store import search as index
from whet.store import sessions as store
from whet.store.database import Database
from whet.store.search import Hit
from whet.store.sessions import SessionFilter, SessionRow

T = TypeVar("T")
_EVERYTHING = 1 << 30
_NONE_YET = "No sessions yet. Begin one: whet"

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.group(help="List, show, search, export and delete conversations.")
def sessions() -> None:
    """Group the session commands."""


def complete_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a session's id from the latest ones."""
    home = ctx.find_object(Home)
    if home is None or not home.database.exists():
        return []
    with _opened(home) as database:
        rows = database.read_now(lambda db: store.list_sessions(db, 50))
    return [row.id for row in rows if row.id.startswith(incomplete)]


_session = click.argument("session", shell_complete=complete_session)


@contextmanager
def _opened(home: Home) -> Generator[Database]:
    database = Database.open(home.database, SystemClock())
    try:
        yield database
    finally:
        database.close()


def _read(home: Home, work: Callable[[apsw.Connection], T]) -> T:
    if not home.database.exists():
        raise NotFound("there are no sessions yet", hint="begin one: whet")
    with _opened(home) as database:
        return database.read_now(work)


@sessions.command("list")
@click.argument("words", nargs=-1)
@click.option("-n", "--limit", default=20, type=click.IntRange(1), show_default=True, help="How many.")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@click.option("--all-kinds", is_flag=True, help="Delegated tasks and reviews too.")
@_as_json
@click.pass_obj
def list_(home: Home, words: tuple[str, ...], limit: int, here: bool, all_kinds: bool, as_json: bool) -> None:
    """List the latest sessions; WORDS narrow them down by title or id."""
    filters = SessionFilter(
        kinds=() if all_kinds else ("chat",),
        workspace=str(Path.cwd()) if here else "",
        query=" ".join(words),
    )
    rows: list[SessionRow] = []
    total = 0
    if home.database.exists():
        with _opened(home) as database:
            rows = database.read_now(lambda db: store.list_sessions(db, limit, **filters))
            total = database.read_now(store.count)
    if as_json:
        return emit_json({"sessions": rows, "total": total})
    if not rows:
        return click.echo("No session fits. All of them: whet sessions list" if total else _NONE_YET)
    click.echo(_table(rows))
    if len(rows) == limit and total > limit and not words:
        click.echo(f"{limit} of {total}; more with --limit {limit * 5}")


def _table(rows: list[SessionRow]) -> str:
    now = SystemClock().now()
    shape = [
        Column("id"),
        Column("last active", rank=2),
        Column("turns", right=True, rank=3),
        Column("tokens", right=True, rank=5),
        Column("cost", right=True, rank=4),
        Column("title", grows=True, least=16),
    ]
    cells = [
        [
            row.id,
            output.age(row.last_active, now),
            str(row.turns),
            count(row.usage.total_tokens),
            output.cost(row.usage.cost_usd),
            ("[private] " if row.private else "") + (row.title or "(untitled)"),
        ]
        for row in rows
    ]
    return output.table(shape, cells)


@sessions.command("show")
@_session
@click.option("--full", is_flag=True, help="Tool calls with their arguments and results in full.")
@_as_json
@click.pass_obj
def show(home: Home, session: str, full: bool, as_json: bool) -> None:
    """Show what was said in a session."""

    def work(db: apsw.Connection) -> tuple[SessionRow, list[tuple[int, Message]]]:
        session_id = store.resolve(db, session)
        return store.get(db, session_id), index.around(db, session_id, 0, 0, _EVERYTHING)

    row, messages = _read(home, work)
    if as_json:
        rows = [{"seq": seq, **to_dict(message)} for seq, message in messages]
        return emit_json({"session": row, "messages": rows})
    output.print_long(render(row, [message for _, message in messages], full=full))


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", default=10, type=click.IntRange(1), show_default=True, help="How many.")
@click.option("--session", "session", default="", metavar="ID", help="Only in this session.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Only what this role said.")
@click.option("--since", metavar="DATE", help="Only since this date, e.g. 2026-11-01.")
@click.option("--private", is_flag=True, help="Private sessions too.")
@_as_json
@click.pass_obj
def search(home: Home, words: tuple[str, ...], limit: int, **given: Any) -> None:
    """Search everything that was said; "quoted words" stand together."""
    hits: list[Hit] = []
    if home.database.exists():
        with _opened(home) as database:
            scope = index.Scope(role=given["role"], since=given["since"], include_private=given["private"])
            if given["session"]:
                scope["session_id"] = database.read_now(lambda db: store.resolve(db, given["session"]))
            hits = index.find_now(database, " ".join(words), limit, **scope)
    if given["as_json"]:
        return emit_json({"query": " ".join(words), "hits": hits})
    if not hits:
        click.echo(
            f"Nothing found for {' '.join(words)!r}. Try fewer or other words; private sessions: --private"
        )
    for hit in hits:
        title = hit.title or "(untitled)"
        click.echo(styled(output.fit(f"{hit.session_id}  {hit.when[:10]}  {hit.role}  {title}"), "bold"))
        click.echo(output.wrapped(_marked(printable(hit.snippet)), indent=2))


def _marked(snippet: str) -> str:
    if not output.has_colour():
        return snippet
    return snippet.replace(index.MARK_OPEN, "\x1b[1;33m").replace(index.MARK_CLOSE, "\x1b[0m")


@sessions.command("rename")
@_session
@click.argument("title", nargs=-1, required=True)
@_as_json
@click.pass_obj
def rename(home: Home, session: str, title: tuple[str, ...], as_json: bool) -> None:
    """Give a session another title."""
    name = " ".join(" ".join(title).split())
    row = _change(home, session, lambda db, session_id: store.rename(db, session_id, name))
    _say(row, f"{row.id} is now {row.title!r}", as_json)


@sessions.command("private")
@_session
@click.option("--off", is_flag=True, help="Show it again.")
@_as_json
@click.pass_obj
def private(home: Home, session: str, off: bool, as_json: bool) -> None:
    """Keep a session out of search, bulk export and learning."""
    row = _change(home, session, lambda db, session_id: store.set_private(db, session_id, not off))
    _say(row, f"{row.id} is {'private' if row.private else 'no longer private'}", as_json)


def _change(home: Home, name: str, work: Callable[[apsw.Connection, str], None]) -> SessionRow:
    def change(db: apsw.Connection) -> SessionRow:
        session_id = store.resolve(db, name)
        work(db, session_id)
        return store.get(db, session_id)

    if not home.database.exists():
        raise NotFound("there are no sessions yet", hint="begin one: whet")
    with _opened(home) as database:
        return database.write_now(change)


def _say(row: SessionRow, text: str, as_json: bool) -> None:
    if as_json:
        emit_json({"session": row})
    else:
        click.echo(printable(text))


@sessions.command("delete")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_session)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@_as_json
@click.pass_obj
def delete(home: Home, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete sessions and all that was said in them, for good."""
    rows = _read(home, lambda db: [store.get(db, store.resolve(db, name)) for name in names])
    if not yes:
        _confirm(rows)
    with _opened(home) as database:
        gone = sum(database.write_now(lambda db, row=row: store.delete(db, row.id)) for row in rows)
    if as_json:
        emit_json({"deleted": [row.id for row in rows], "sessions": gone})
    else:
        click.echo(f"Deleted {gone} {'session' if gone == 1 else 'sessions'}.")


def _confirm(rows: list[SessionRow]) -> None:
    for row in rows:
        click.echo(f"{row.id}  {row.messages} messages  {printable(row.title) or '(untitled)'}", err=True)
    if not sys.stdin.isatty():
        raise ConfigError(
            "nothing was deleted: nobody is at a terminal to confirm it", hint="--yes deletes without asking"
        )
    click.confirm("Delete for good?", abort=True, err=True)


@sessions.command("stats")
@_as_json
@click.pass_obj
def stats(home: Home, as_json: bool) -> None:
    """Sum up what is stored."""
    if not home.database.exists():
        return emit_json({"sessions": 0}) if as_json else click.echo(_NONE_YET)
    found = _read(home, store.stats)
    if as_json:
        return emit_json(found)
    usage = found.usage
    share = f" ({found.failed_calls / found.tool_calls:.1%})" if found.tool_calls else ""
    for label, text in (
        ("sessions", f"{found.sessions:,}, {found.private:,} of them private"),
        ("turns", f"{found.turns:,}"),
        ("messages", f"{found.messages:,}"),
        ("tool calls", f"{found.tool_calls:,}, {found.failed_calls:,} failed{share}"),
        ("tokens", f"{usage.prompt_tokens:,} in, {usage.output_tokens:,} out"),
        ("cache", f"{usage.cache_hit_ratio:.0%} of the prompt tokens were read from it"),
        ("cost", output.cost(usage.cost_usd)),
        ("on disk", output.size(found.size_bytes)),
        ("since", found.first[:10] or "-"),
    ):
        click.echo(f"{label:<11} {text}")
