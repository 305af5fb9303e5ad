"""`whet context`: list context engines, show how full a session's window is, and compact it by hand.

`status` sends nothing and does not notify an engine that a session was opened; `compact` does.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import click
import msgspec

from whet.app.build import App
from whet.app.model_links.discover import needs_model
from whet.cli import stored
from whet.cli.interactive.context_report import OUTCOMES, report_lines
from whet.cli.launch import ChatOptions, load_settings, start_app
from whet.cli.main import run_on_loop
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.context.engines import choose
from whet.contract.events import Event
from whet.contract.protocols import NobodyPresent
from whet.log import mask
from whet.store import compactions
from whet.store.sessions import SessionRow
from whet.terminal.output import Column, emit, emit_json, home_and_json, table, terminal_width
from whet.terminal.wording import aside, printable

T = TypeVar("T")
# Lets engines be listed even if no model is set yet. No request is sent to this address.
_NO_MODEL = {"model.provider": "practice", "model.base_url": "http://127.0.0.1:9/v1"}

_session = click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    help="This session instead of this folder's latest one.",
)


context: click.Group = click.Group(
    "context", help="Context engines: list them, see how full a session is, compact it."
)


@context.command("engines")
@home_and_json
def engines(home: Home, as_json: bool) -> None:
    """List the engines that `context.engine` can name; * is the one in use."""
    rows, warning = _with_app(
        home, _list_engines, flags=_NO_MODEL if needs_model(_load_settings(home)) else None
    )
    if as_json:
        return emit_json({"engines": rows, "warning": warning})
    columns: list[Column[dict[str, Any]]] = [
        Column("", lambda row: "*" if row["active"] else ""),
        Column("engine", lambda row: row["name"]),
        Column("from", lambda row: row["source"], rank=1),
        Column("description", lambda row: printable(row["description"]), grows=True, least=20),
    ]
    click.echo(table(rows, columns))
    if warning:
        click.echo(f"warning: {printable(warning)}", err=True)


@context.command("status")
@_session
@home_and_json
def status(home: Home, session_id: str, as_json: bool) -> None:
    """Show how full a session's window is and what compactions saved."""
    flags = _NO_MODEL if needs_model(_load_settings(home)) else None
    row, lines = _with_app(home, lambda app: _read_status(app, session_id), flags=flags)
    emit(row, "\n".join(lines), as_json=as_json)


@context.command("compact")
@_session
@click.argument("focus", nargs=-1)
@click.pass_obj
def compact(home: Home, session_id: str, focus: tuple[str, ...]) -> None:
    """Make a session's context smaller now, keeping what concerns FOCUS; the store keeps every message."""
    lines = _with_app(home, lambda app: _compact(app, session_id, " ".join(focus)))
    click.echo("\n".join(printable(mask(line)) for line in lines))


async def _list_engines(app: App) -> tuple[list[dict[str, Any]], str]:
    chosen, warning = choose(app.services.contexts.engines, app.services.settings.context.engine)
    rows: list[dict[str, Any]] = [
        {
            "name": offer.name,
            "source": offer.source,
            "description": offer.description,
            "active": offer is chosen,
            "error": "",
        }
        for offer in app.services.contexts.engines.values()
    ]
    for name, reason in app.services.contexts.broken.items():
        row = {"name": name, "source": "plugin", "description": f"not loaded: {reason}"}
        rows.append({**row, "active": False, "error": reason})
    return rows, warning


async def _read_status(app: App, session_id: str) -> tuple[dict[str, Any], list[str]]:
    row = await _find_session(app, session_id)
    state = await app.sessions.context_status(row.id)
    sums = await app.database.read(lambda db: compactions.sum_compactions(db, row.id))
    facts = {"session_id": row.id, **msgspec.to_builtins(state)}
    facts |= {"compactions": sums.count, "saved_tokens": sums.saved_tokens, "repairs": sums.repairs}
    facts |= {"cache_hit_ratio": round(row.usage.cache_hit_ratio, 4)}
    return facts, [stored.describe_session(row), *report_lines(state, sums, row.usage, terminal_width())]


async def _compact(app: App, session_id: str, focus: str) -> list[str]:
    row = await _find_session(app, session_id)
    session = await app.open_session(row.id)
    lines: list[str] = []

    def show(event: Event) -> None:
        lines.append(aside(event))

    outcome = await session.context.compact(focus, show)
    return [stored.describe_session(row), *lines, *OUTCOMES[outcome]]


async def _find_session(app: App, session_id: str) -> SessionRow:
    return await app.database.read(lambda db: stored.find_session(db, session_id))


def _load_settings(home: Home) -> Settings:
    return load(home, environ=os.environ).settings


def _with_app(
    home: Home, function: Callable[[App], Awaitable[T]], *, flags: Mapping[str, object] | None = None
) -> T:
    """Start an App without a person, and return the result of `function`."""
    options = ChatOptions(home, flags or {})
    settings = load_settings(options, None)

    async def run() -> T:
        async with aclosing(await start_app(options, settings, NobodyPresent())) as app:
            return await function(app)

    return run_on_loop(run())
