"""`whet serve`: serve the API and the dashboard, and manage their access tokens."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import click

from whet import log
from whet.cli import stored
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.cli.launch import (
    ChatOptions,
    approvals_option,
    load_settings,
    model_flags,
    model_options,
    workspace_of,
)
from whet.cli.main import run_on_loop
from whet.clock import SystemClock, iso
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, WhetError
from whet.serve import tokens
from whet.terminal.output import Column, age, emit, emit_rows, home_and_json, number_option
from whet.terminal.wording import exact, printable

if TYPE_CHECKING:
    from whet.app.conversations.hosted import SessionHost

T = TypeVar("T")
_LOCAL = ("127.0.0.1", "::1", "localhost")


@click.group(
    invoke_without_command=True,
    epilog="Examples: whet serve   ·   whet serve --web   ·   whet serve token create laptop",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=6090, show_default=True, help="The port; 0 takes any.")
@click.option("--web", is_flag=True, help="The dashboard too.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name that may be in Host."
)
@click.option(
    "--public-url", default="", metavar="URL", help="Where people reach it, if not on this machine."
)
@click.option("--workspace", default="", metavar="DIR", help="The folder that the agent works in.")
@model_options
@approvals_option
@number_option(
    "--answer-wait",
    "answer_wait_s",
    least=0,
    default=300.0,
    help="Seconds that a question waits for the owner's answer; then it is a denial.",
)
@number_option("--drain", "drain_s", least=0, default=10.0, help="Seconds at the end.")
@click.pass_context
def serve(ctx: click.Context, **options: Any) -> None:
    """Serve the OpenAI-compatible API, sessions with their events, and with --web the dashboard."""
    if ctx.invoked_subcommand is None:
        _serve(ctx.obj, options)


token: click.Group = click.Group("token", help="Make, list and revoke the tokens that programs call with.")
serve.add_command(token)


@token.command("create")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["chat", "guest", "owner"]),
    default="chat",
    show_default=True,
    help="chat: its own sessions; guest: with a memory of its own too; owner: everything.",
)
@home_and_json
def create(home: Home, name: str, role: Any, as_json: bool) -> None:
    """Create a token for NAME (a program, a device) and print its secret once."""
    row, secret = _change(home, lambda db: tokens.make(db, name, role, SystemClock()))
    facts = {"id": row.id, "name": row.name, "role": row.role, "token": secret}
    emit(facts, secret, as_json=as_json, masks=False)


@token.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """List tokens; their secrets are not stored."""
    rows = _change(home, tokens.TOKENS.all)
    now = SystemClock().now()
    columns: list[Column[tokens.ApiTokenRow]] = [
        Column("id", lambda row: row.id, rank=2),
        Column("name", lambda row: printable(row.name), grows=True),
        Column("role", lambda row: row.role),
        Column("made", lambda row: age(row.created, now), rank=1),
        Column("state", lambda row: "revoked" if row.revoked else "in use"),
    ]
    none = "No token yet. The first start of `whet serve` makes one; or: whet serve token create NAME"
    emit_rows(rows, columns, {"tokens": rows}, none=none, as_json=as_json)


@token.command("revoke")
@click.argument("name")
@home_and_json
def revoke(home: Home, name: str, as_json: bool) -> None:
    """Revoke the token NAME (or its id): calls end at once, streams within seconds."""
    row = _change(home, lambda db: tokens.revoke(db, name, iso(SystemClock().now())))
    emit({"revoked": row}, f"revoked {printable(row.name)} ({row.role})", as_json=as_json)


def _change(home: Home, operation: Callable[[apsw.Connection], T]) -> T:
    home.ensure()
    return stored.write(home, operation)


def _serve(home: Home, options: dict[str, Any]) -> None:
    # Importing the server takes longer than importing all other commands together.
    from whet.app.build import App  # noqa: PLC0415
    from whet.app.conversations.hosted import SessionHost  # noqa: PLC0415
    from whet.app.conversations.people import PersonRouter  # noqa: PLC0415
    from whet.app.upkeep import limit_memory  # noqa: PLC0415
    from whet.schedules.adding import add_schedule  # noqa: PLC0415
    from whet.serve.run import ServeOptions  # noqa: PLC0415
    from whet.serve.run import serve as run  # noqa: PLC0415
    from whet.serve.site import SiteTimings  # noqa: PLC0415

    keys = ("host", "port", "hosts", "public_url", "drain_s")
    chosen = {name: options[name] for name in keys}
    listening = ServeOptions(
        has_web=options["web"], commands=SLASH_COMMANDS, add_schedule=add_schedule, **chosen
    )
    flags = model_flags(options) | {
        "approval.mode": options["approvals"],
        "tools.workspace": options["workspace"] or None,
    }
    settings = load_settings(ChatOptions(home, flags), None)
    workspace = workspace_of(settings)
    if not workspace.is_dir():
        raise ConfigError(
            f"the workspace {workspace} is not a folder", hint="choose another with --workspace DIR"
        )
    home.ensure()
    log.start_logging(home.logs)

    async def serve_app() -> None:
        people = PersonRouter()
        app = await App.start(home, settings, load_secrets(home, os.environ), people, workspace, source="api")
        hosted = SessionHost(app.sessions, people)
        try:
            app.services.models.require_model()
            token_path = tokens.make_first(app.database, home, app.clock)
            timings = SiteTimings(answer_wait_s=options["answer_wait_s"])
            async with limit_memory():
                await run(
                    hosted, listening, timings, lambda port: _announce(listening, port, token_path, workspace)
                )
        finally:
            await hosted.aclose()
            await app.leave_reviews()
            await app.aclose()

    try:
        run_on_loop(serve_app())
    except* WhetError as group:
        raise group.exceptions[0] from None


def serve_beside(
    home: Home, port: int, say: Callable[[str], None]
) -> Callable[[SessionHost, asyncio.Event], Coroutine[Any, Any, None]]:
    """Return a coroutine function that serves the API and the dashboard until its event is set, with the
    conversations of another interface of this process.

    If the port is not available, `say` gets the reason, and the function returns.
    """

    async def serve_until(hosted: SessionHost, stop: asyncio.Event) -> None:
        # as in `_serve`, the server is imported only if it is needed
        from whet.schedules.adding import add_schedule  # noqa: PLC0415
        from whet.serve.run import ServeOptions  # noqa: PLC0415
        from whet.serve.run import serve as run  # noqa: PLC0415
        from whet.serve.site import SiteTimings  # noqa: PLC0415

        token_path = tokens.make_first(hosted.services.database, home, hosted.services.clock)
        if token_path is not None:
            say(f"made a first token: {token_path}")
        listening = ServeOptions(
            port=port, has_web=True, is_shared=True, commands=SLASH_COMMANDS, add_schedule=add_schedule
        )
        try:
            await run(
                hosted,
                listening,
                SiteTimings(),
                lambda at: say(f"dashboard: http://127.0.0.1:{at}"),
                stop=stop,
            )
        except WhetError as error:
            say(f"dashboard: off, {error.message}" + (f" ({error.hint})" if error.hint else ""))

    return serve_until


def _announce(listening: Any, port: int, token_path: Path | None, workspace: Path) -> None:
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    click.echo(f"OpenAI base URL: http://{host}:{port}/v1   (model: whet)")
    if listening.has_web:
        click.echo(f"dashboard:       {listening.public_url or f'http://{host}:{port}'}")
    click.echo(f"working in:      {exact(str(workspace))}")
    if token_path is not None:
        click.echo(f"made a first token: {token_path}")
    if listening.host not in _LOCAL:
        click.echo("note: others can reach this; put TLS in front of it, or tokens travel readably", err=True)
    sys.stdout.flush()
