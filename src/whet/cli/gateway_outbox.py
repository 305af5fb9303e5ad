"""`whet gateway outbox`: list, resend or drop messages that may not have arrived or were not sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import apsw
import click

from whet.cli import stored
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.channels import Outgoing
from whet.contract.errors import NotFound
from whet.contract.texts import from_json
from whet.gateway.outbox import resend as send_again
from whet.log import mask
from whet.store import chats
from whet.store.chats import OutRow, OutState
from whet.store.database import has_store
from whet.terminal.output import Column, emit, emit_json, home_and_json, json_option, table
from whet.visible import visible

_OPEN: tuple[OutState, ...] = ("unknown", "failed", "queued", "sending")
_ENDED: tuple[OutState, ...] = ("unknown", "failed")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def outbox(context: click.Context, as_json: bool) -> None:
    """List messages that may not have been sent. An `unknown` one may have arrived, a `failed` one has not.

    \b
    whet gateway outbox                list
    whet gateway outbox show ID        one with its whole text
    whet gateway outbox resend ID...   send again; --all for every one
    whet gateway outbox drop ID...     forget it
    """
    if context.invoked_subcommand is not None:
        return
    rows = [_list_facts(*entry) for entry in _read_messages(context.obj, _OPEN)]
    if as_json:
        emit_json({"messages": rows})
    elif not rows:
        click.echo("Everything was sent.")
    else:
        columns: list[Column[dict[str, Any]]] = [
            Column(name, lambda row, name=name: str(row[name])) for name in ("id", "state", "channel", "at")
        ]
        columns.append(Column("text", lambda row: visible(str(row["text"]).replace("\n", " "), 60)))
        click.echo(table(rows, columns))


@outbox.command()
@click.argument("number", metavar="ID", type=int)
@home_and_json
def show(home: Home, number: int, as_json: bool) -> None:
    """Show one message with its whole text."""
    row = next((_list_facts(*entry) for entry in _read_messages(home, _OPEN) if entry[0].id == number), None)
    if row is None:
        raise NotFound(f"no message {number} waits", hint="whet gateway outbox")
    head = f"{row['id']}  {row['state']}  {row['channel']}  {row['at']}  {row['error']}"
    emit(row, f"{visible(head.rstrip(), 300)}\n\n{visible(row['text'])}", as_json=as_json)


@outbox.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every message whose fate is unknown or that failed.")
@home_and_json
def resend(home: Home, numbers: tuple[int, ...], is_all: bool, as_json: bool) -> None:
    """Send messages again, as new ones. The running gateway sends them within seconds."""
    now_ms = SystemClock().unix_ms()

    def resend_rows(connection: apsw.Connection) -> int:
        return send_again(connection, _choose_messages(connection, numbers, is_all=is_all), now_ms)

    _require_store(home)
    count = stored.write(home, resend_rows)
    emit({"resent": count}, f"{count} sent again.", as_json=as_json)


@outbox.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every message whose fate is unknown or that failed.")
@home_and_json
def drop(home: Home, numbers: tuple[int, ...], is_all: bool, as_json: bool) -> None:
    """Forget messages: they are not sent and no longer listed."""

    def drop_rows(connection: apsw.Connection) -> int:
        rows = _choose_messages(connection, numbers, is_all=is_all)
        for row in rows:
            chats.end_sending(connection, row.id, "sent", error=chats.REPLACED)
        return len(rows)

    _require_store(home)
    count = stored.write(home, drop_rows)
    emit({"dropped": count}, f"{count} dropped.", as_json=as_json)


def _choose_messages(connection: apsw.Connection, numbers: Sequence[int], *, is_all: bool) -> list[OutRow]:
    """Return the failed and unknown messages with these ids, or all of them. Raises NotFound for another
    id."""
    rows_by_id = {row.id: row for row in chats.list_messages(connection, _ENDED)}
    if is_all:
        return list(rows_by_id.values())
    if not numbers:
        raise click.UsageError("name messages by their ids, or give --all")
    if missing := [number for number in numbers if number not in rows_by_id]:
        raise NotFound(
            f"no message {missing[0]} is listed as failed or of unknown fate",
            hint="whet gateway outbox lists them",
        )
    return [rows_by_id[number] for number in dict.fromkeys(numbers)]


def _require_store(home: Home) -> None:
    if not has_store(home):
        raise NotFound("nobody has talked to the gateway yet", hint="whet gateway run")


def _read_messages(home: Home, states: Sequence[OutState]) -> list[tuple[OutRow, str, str]]:
    """Return the messages in these states, each with its channel and error."""
    if not has_store(home):
        return []
    with stored.open_database(home) as database:
        return database.read_now(
            lambda db: [
                (row, chats.get_chat(db, row.chat).place.channel, chats.read_last_error(db, row.id))
                for row in chats.list_messages(db, states)
            ]
        )


def _list_facts(row: OutRow, channel: str, error: str) -> dict[str, Any]:
    text = from_json(row.body, Outgoing).text
    at = datetime.fromtimestamp(row.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {
        "id": row.id,
        "state": row.state,
        "channel": channel,
        "chat": row.chat,
        "at": at,
        "error": mask(error),
        "text": mask(text),
    }
