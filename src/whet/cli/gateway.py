"""`whet gateway`: run the agent on chat platforms, see how it goes, let people in."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from whet import log
from whet.app.slash import Command
from whet.cli.commands import builtin_commands
from whet.cli.output import Column, emit_json, table
from whet.cli.wording import printable
from whet.clock import SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound
from whet.gateway.chat import Commander
from whet.gateway.lock import holder
from whet.gateway.server import serve
from whet.gateway.settings import open_channels, read_gateway
from whet.store import chats, paired
from whet.store.database import Database

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.group()
def gateway() -> None:
    """Talk to the agent from Telegram, Discord, Slack or a webhook.

    \b
    whet gateway run                   serve every channel of gateway.toml
    whet gateway status                channels, what waits, what is unknown
    whet gateway pair accept CODE      let somebody in
    """


@gateway.command()
@click.option("--workspace", type=click.Path(path_type=Path, file_okay=False), help="The owner's folder.")
@click.pass_obj
def run(home: Home, workspace: Path | None) -> None:
    """Serve until stopped. Ctrl-C or SIGTERM let turns end; what is left goes on at the next start."""
    text = read_gateway(home.gateway)
    settings = load(home, {}, environ=os.environ).settings
    secrets = load_secrets(home, os.environ)
    log.start(home.logs)
    seats = open_channels(text, secrets)
    folder = workspace or (Path(settings.tools.workspace) if settings.tools.workspace else Path.cwd())
    shared: list[Command[Any]] = list(builtin_commands())
    code = asyncio.run(
        serve(
            home,
            settings,
            secrets,
            text,
            seats,
            workspace=folder.expanduser().absolute(),
            commander=Commander(shared),
            say=lambda line: click.echo(printable(line)),
        )
    )
    click.get_current_context().exit(code)


@gateway.command()
@_json
@click.pass_obj
def status(home: Home, as_json: bool) -> None:
    """Show each channel: whether it runs, what waits, and what nobody knows the fate of."""
    text = read_gateway(home.gateway)
    secrets = load_secrets(home, os.environ)
    counts: dict[str, chats.ChannelCounts] = {}
    people: list[paired.Paired] = []
    waiting: list[paired.Waiting] = []
    if home.database.exists():
        database = Database.open(home.database, SystemClock())
        try:
            counts = {one.channel: one for one in database.read_now(chats.counts)}
            people = database.read_now(paired.everybody)
            now_ms = SystemClock().unix_ms()
            waiting = database.read_now(lambda db: paired.all_waiting(db, now_ms))
        finally:
            database.close()
    rows: list[dict[str, Any]] = []
    for seat in open_channels(text, secrets):
        name = seat.channel.name
        process = holder(home.root / "gateway", seat.secrets)
        count = counts.get(name)
        row: dict[str, Any] = {"channel": name, "kind": seat.text.kind, "process": process}
        for field in ("chats", "waiting", "begun", "queued", "sending", "sent", "unknown", "failed"):
            row[field] = getattr(count, field) if count else 0
        row["last_error"] = count.last_error if count else ""
        rows.append(row)
    if as_json:
        emit_json({"channels": rows, "people": sorted(text.people), "paired": people, "codes": len(waiting)})
        return
    click.echo(
        table(
        [
            Column("channel"),
            Column("process"),
            Column("chats", right=True),
            Column("waiting", right=True),
            Column("running", right=True),
            Column("to send", right=True),
            Column("unknown", right=True),
            Column("failed", right=True),
        ],
        [
            (
                row["channel"],
                str(row["process"] or "not running"),
                str(row["chats"]),
                str(row["waiting"]),
                str(row["begun"]),
                str(row["queued"] + row["sending"]),
                str(row["unknown"]),
                str(row["failed"]),
            )
            for row in rows
        ],
        )
    )
    click.echo(f"people: {', '.join(sorted(text.people)) or 'none in gateway.toml'}; {len(people)} paired")
    if waiting:
        click.echo(f"{len(waiting)} wait to be let in: whet gateway pair list")
    for row in rows:
        if row["unknown"]:
            click.echo(f"{row['channel']}: {row['unknown']} messages may not have arrived; none is sent again")
        if row["last_error"]:
            click.echo(f"{row['channel']}: last trouble: {printable(row['last_error'])}")


@gateway.group()
def pair() -> None:
    """Let people in by the code that they were given, and out again."""


@pair.command("list")
@_json
@click.pass_obj
def pair_list(home: Home, as_json: bool) -> None:
    """Show who was let in and who waits."""
    database = Database.open(_database(home), SystemClock())
    try:
        people = database.read_now(paired.everybody)
        now_ms = SystemClock().unix_ms()
        waiting = database.read_now(lambda db: paired.all_waiting(db, now_ms))
    finally:
        database.close()
    if as_json:
        emit_json({"paired": people, "waiting": waiting})
        return
    for one in people:
        click.echo(f"{one.channel}  {one.user}  {printable(one.name)}  since {one.since[:10]}")
    for one in waiting:
        until = datetime.fromtimestamp(one.expires_ms / 1000, UTC).strftime("%H:%M UTC")
        click.echo(f"{one.channel}  {one.user}  {printable(one.name)}  waits, its code is good until {until}")
    if not people and not waiting:
        click.echo("Nobody was let in by a code, and nobody waits.")


@pair.command("accept")
@click.argument("code")
@_json
@click.pass_obj
def pair_accept(home: Home, code: str, as_json: bool) -> None:
    """Let in whoever has this code. They get a memory of their own and may approve nothing."""
    clock = SystemClock()
    database = Database.open(_database(home), clock)
    now_ms, now = clock.unix_ms(), iso(clock.now())

    def work(connection: Any) -> paired.Paired:
        person, chat_id = paired.accept(connection, code, now_ms, now)
        chats.post(connection, chat_id, ['{"text":"You are in. What can I do for you?"}'], now_ms)
        return person

    try:
        person = database.write_now(work)
    finally:
        database.close()
    if as_json:
        emit_json(person)
    else:
        click.echo(f"{printable(person.name)} ({person.channel} {person.user}) is let in.")


@pair.command("remove")
@click.argument("channel")
@click.argument("user")
@click.pass_obj
def pair_remove(home: Home, channel: str, user: str) -> None:
    """Let somebody in no more; their memory stays in people/."""
    database = Database.open(_database(home), SystemClock())
    try:
        database.write_now(lambda db: paired.remove(db, channel, user))
    finally:
        database.close()
    click.echo(f"{printable(user)} is not let in on {printable(channel)} any more.")


def _database(home: Home) -> Path:
    if not home.database.exists():
        raise NotFound("nobody has talked to the gateway yet", hint="whet gateway run")
    return home.database
