"""`whet gateway`: run the agent on chat platforms, show its state, and let people in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from whet import log
from whet.channels.loading import IsolatedChannel
from whet.cli import stored
from whet.cli.gateway_outbox import outbox
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.cli.main import run_on_loop
from whet.cli.serve import serve_beside
from whet.clock import SystemClock, iso, local_day, local_time
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound
from whet.gateway.chat import ChatCommands
from whet.gateway.lock import holder
from whet.gateway.server import Setup, serve
from whet.gateway.settings import GatewayText, open_channels, read_gateway
from whet.store import chats, paired
from whet.store.database import has_store
from whet.terminal.output import Column, emit, emit_json, home_and_json, table
from whet.terminal.wording import printable
from whet.visible import visible

_COUNTS = ("chats", "waiting", "begun", "queued", "sending", "unknown", "failed")


@click.group()
def gateway() -> None:
    """Talk to the agent from Telegram, Discord, Slack or a webhook.

    \b
    whet gateway run                   serve every channel of gateway.toml
    whet gateway status                channels, what waits, what is unknown
    whet gateway outbox                what may not have arrived; resend, drop
    whet gateway pair accept CODE      let somebody in
    """


@gateway.command()
@click.option("--workspace", type=click.Path(path_type=Path, file_okay=False), help="The owner's folder.")
@click.option("--web", is_flag=True, help="The dashboard and the API too, as `whet serve --web` has them.")
@click.option("--web-port", default=6090, show_default=True, help="Their port; 0 takes any.")
@click.pass_obj
def run(home: Home, workspace: Path | None, web: bool, web_port: int) -> None:
    """Serve until stopped. Ctrl-C and SIGTERM let turns end; unfinished ones continue at the next start."""
    text = read_gateway(home.gateway)
    settings = load(home, {}, environ=os.environ).settings
    secrets = load_secrets(home, os.environ)
    log.start_logging(home.logs)
    channels = open_channels(text, secrets)
    folder = workspace or (Path(settings.tools.workspace) if settings.tools.workspace else Path.cwd())
    setup = Setup(home, settings, secrets, text, channels, folder.expanduser().absolute())

    def say(line: str) -> None:
        click.echo(printable(line))

    beside = serve_beside(home, web_port, say) if web else None
    code = run_on_loop(serve(setup, ChatCommands(SLASH_COMMANDS), say, beside))
    click.get_current_context().exit(code)


@gateway.command()
@home_and_json
def status(home: Home, as_json: bool) -> None:
    """Show each channel: whether it runs, its waiting messages, and those that may not have arrived."""
    text = read_gateway(home.gateway)
    gateway_rows = _read_gateway_rows(home)
    rows = _channel_rows(home, text, gateway_rows)
    if as_json:
        emit_json(
            {
                "channels": rows,
                "people": sorted(text.people),
                "paired": gateway_rows.people,
                "codes": len(gateway_rows.pairing_requests),
            }
        )
        return
    columns: list[Column[dict[str, Any]]] = [
        Column("channel", lambda row: row["channel"]),
        Column("process", _describe_process),
        *(Column(name, _cell_reader(name), right=True, rank=1) for name in _COUNTS),
    ]
    click.echo(table(rows, columns))
    people = ", ".join(sorted(text.people)) or "none in gateway.toml"
    click.echo(f"people: {people}; {len(gateway_rows.people)} paired")
    if gateway_rows.pairing_requests:
        click.echo(f"{len(gateway_rows.pairing_requests)} wait to be let in: whet gateway pair list")
    for row in rows:
        if row["failure"]:
            click.echo(f"{row['channel']} can't be opened: {printable(row['failure'])}")
        if row["unknown"]:
            click.echo(
                f"{row['channel']}: {row['unknown']} messages may not have arrived: whet gateway outbox"
            )
        if row["last_error"]:
            click.echo(f"{row['channel']}: last trouble: {printable(row['last_error'])}")


@dataclass(frozen=True, slots=True)
class _GatewayRows:
    counts: dict[str, chats.ChannelCounts]
    people: list[paired.PairedPerson]
    pairing_requests: list[paired.PairingRequest]


def _read_gateway_rows(home: Home) -> _GatewayRows:
    if not has_store(home):
        return _GatewayRows({}, [], [])
    with stored.open_database(home) as database:
        return _GatewayRows(
            {row.channel: row for row in database.read_now(chats.count_channels)},
            database.read_now(paired.list_people),
            database.read_now(lambda db: paired.list_requests(db, SystemClock().unix_ms())),
        )


def _channel_rows(home: Home, text: GatewayText, gateway_rows: _GatewayRows) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    unlisted = dict(gateway_rows.counts)
    for opened in open_channels(text, load_secrets(home, os.environ)):
        counts = unlisted.pop(opened.channel.name, None) or chats.ChannelCounts(opened.channel.name)
        row: dict[str, Any] = {
            "kind": opened.text.kind,
            "process": holder(home.root / "gateway", opened.secrets),
            "has_token": bool(opened.secrets),
            "failure": opened.channel.failure if isinstance(opened.channel, IsolatedChannel) else "",
        }
        rows.append(msgspec.structs.asdict(counts) | row)
    for counts in unlisted.values():
        row = {"kind": "", "process": None, "has_token": False, "failure": ""}
        rows.append(msgspec.structs.asdict(counts) | row)
    return rows


def _describe_process(row: dict[str, Any]) -> str:
    if not row["kind"]:
        return "not in gateway.toml"
    if row["failure"]:
        return "off"
    return str(row["process"] or ("not running" if row["has_token"] else "unknown: it has no token"))


def _cell_reader(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row[name])


gateway.add_command(outbox)


pair: click.Group = click.Group("pair", help="Let people in by their code, and withdraw their access.")
gateway.add_command(pair)


@pair.command("list")
@home_and_json
def pair_list(home: Home, as_json: bool) -> None:
    """Show the people who were let in and those who wait."""
    rows = _read_gateway_rows(home)
    if as_json:
        emit_json({"paired": rows.people, "waiting": rows.pairing_requests})
        return
    for row in rows.people:
        click.echo(f"{row.channel}  {row.user}  {visible(row.name, 60)}  since {local_day(row.since)}")
    for row in rows.pairing_requests:
        until = local_time(datetime.fromtimestamp(row.expires_ms / 1000, UTC)).strftime("%H:%M")
        click.echo(
            f"{row.channel}  {row.user}  {visible(row.name, 60)}  waits, its code is good until {until}"
        )
    if not rows.people and not rows.pairing_requests:
        click.echo("Nobody was let in by a code, and nobody waits.")


@pair.command("accept")
@click.argument("code")
@home_and_json
def pair_accept(home: Home, code: str, as_json: bool) -> None:
    """Let in the person who has this code. They get a memory of their own and may approve nothing."""
    clock = SystemClock()
    _require_store(home)
    now_ms, now = clock.unix_ms(), iso(clock.now())

    def accept(connection: Any) -> paired.PairedPerson:
        person, chat_id = paired.accept(connection, code, now_ms, now)
        chats.queue_messages(connection, chat_id, ['{"text":"You are in. What can I do for you?"}'], now_ms)
        return person

    person = stored.write(home, accept)
    emit(person, f"{visible(person.name, 60)} ({person.channel} {person.user}) is let in.", as_json=as_json)


@pair.command("remove")
@click.argument("channel")
@click.argument("user")
@click.pass_obj
def pair_remove(home: Home, channel: str, user: str) -> None:
    """Withdraw a person's access; their memory stays in people/."""
    _require_store(home)
    stored.write(home, lambda db: paired.remove(db, channel, user))
    click.echo(f"{printable(user)} is not let in on {printable(channel)} any more.")


def _require_store(home: Home) -> None:
    if not has_store(home):
        raise NotFound("nobody has talked to the gateway yet", hint="whet gateway run")
