"""`whet confirm grants | devices`: approvals that run for a while, and the devices that get notifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.terminal.output import Column, emit_rows, json_option
from whet.visible import escape_characters
from whet_confirm.client import BlockingClient
from whet_confirm.commands.files import actor_name, change, db_option, open_files
from whet_confirm.commands.record_text import local_minute
from whet_confirm.tickets import Failed

if TYPE_CHECKING:
    from whet_confirm.push.devices import PushDevice


_SHOWN = ("id", "name", "label", "quiet", "timezone", "created_at")


@click.command()
@click.option("--stop", "number", type=int, metavar="NUMBER", help="Stop this one: the next call asks again.")
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@json_option
def grants(number: int | None, url: str, as_json: bool) -> None:
    """List approvals that run for a while, or stop one.

    \b
    whet confirm approve ID --for hour    give one
    whet confirm grants                   what passes without a question now
    whet confirm grants --stop 3          stop it
    """
    with BlockingClient(url, role="approve") as client:
        try:
            if number is not None:
                client.run(client.calls.call("DELETE", f"/whitelist/{number}"))
                return click.echo(f"Grant {number} was stopped.")
            entries = client.run(client.calls.call("GET", "/whitelist"))["entries"]
        except Failed as error:
            if error.status == 404:
                raise NotFound(error.message, hint="whet confirm grants") from error
            raise
    running = [entry for entry in entries if entry["is_running"]]
    columns: list[Column[dict[str, Any]]] = [
        Column("number", lambda entry: str(entry["id"])),
        Column("action", lambda entry: escape_characters(entry["action"]), grows=True),
        Column("of", lambda entry: escape_characters(entry["principal"])),
        Column("limits", _describe_limits, grows=True, rank=1),
        Column("until", lambda entry: local_minute(entry["expires_at"])),
        Column("by", lambda entry: escape_characters(entry.get("created_by", "")), rank=2),
    ]
    emit_rows(running, columns, {"grants": running}, none="Nothing passes for a while.", as_json=as_json)


def _describe_limits(entry: dict[str, Any]) -> str:
    limits: list[str] = []
    if "uses" in entry:
        limits.append(f"used {entry['uses']}" + (f" of {entry['max_uses']}" if entry["max_uses"] else ""))
    if entry.get("host"):
        limits.append(f"at {entry['host']}")
    if entry["session_key"]:
        limits.append(f"session {escape_characters(entry['session_key'])}")
    return ", ".join(limits)


@click.command()
@click.option("--remove", "device_id", metavar="ID", help="Remove this device.")
@db_option
@json_option
@click.pass_obj
def devices(home: Home, device_id: str | None, db_path: Path | str | None, as_json: bool) -> None:
    """List the devices that get notifications, or remove one. They are added on the page, under Devices."""
    from whet_confirm.push import devices as push_devices  # noqa: PLC0415 - no other command needs it

    with open_files(home, db_path) as (database, paths):
        if device_id is not None:
            change(database, paths, lambda tx: push_devices.remove(tx, device_id, by=actor_name()))
            return click.echo(f"Removed {device_id}.")
        rows = database.read_now(
            lambda db: [(row, push_devices.last_receipt(db, row)) for row in push_devices.list_devices(db)]
        )
    columns: list[Column[tuple[PushDevice, float | None]]] = [
        Column("id", lambda row: row[0].id),
        Column("of", lambda row: escape_characters(row[0].name)),
        Column("device", lambda row: escape_characters(row[0].label), grows=True),
        Column("quiet", lambda row: row[0].quiet, rank=2),
        Column("last delivery", lambda row: local_minute(row[1]) or "none yet", rank=1),
    ]
    facts = [
        {
            **{key: value for key, value in msgspec.to_builtins(device).items() if key in _SHOWN},
            "received": at,
        }
        for device, at in rows
    ]
    emit_rows(rows, columns, {"devices": facts}, none="No device gets notifications.", as_json=as_json)
