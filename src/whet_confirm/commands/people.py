"""`whet confirm away | people`: who decides in whose place, and who signs in with a provider."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path

import click
import msgspec

from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.terminal.output import Column, emit, emit_rows, home_and_json, json_option
from whet.terminal.wording import printable
from whet_confirm import people as rows
from whet_confirm.client import BlockingClient
from whet_confirm.commands.files import actor_name, change, db_option, open_files
from whet_confirm.commands.record_text import local_minute
from whet_confirm.tickets import Failed

_SPAN = re.compile(r"(\d{1,4})([hdw])")
_UNITS_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


@click.command()
@click.option("--stand-in", default="", metavar="PRINCIPAL", help="Who decides in your place meanwhile.")
@click.option("--until", default="", metavar="WHEN", help="3d, 12h, 2w, 2026-12-24 or 2026-12-24T18:00.")
@click.option("--end", "number", type=int, default=0, metavar="ID", help="You are back: end it now.")
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@json_option
def away(stand_in: str, until: str, number: int, url: str, as_json: bool) -> None:
    """Say who decides in your place, until when; without options, who is away.

    The other one sits in your groups in place of you, not beside you.

    \b
    whet confirm away --stand-in bob --until 2w
    whet confirm away --end 1
    """
    with BlockingClient(url, role="approve") as client:
        try:
            if stand_in:
                body = {"stand_in": stand_in, "until": _parse_time(until)}
                row = client.run(client.calls.call("POST", "/delegations", body))
                text = f"{row['stand_in']} decides for {row['giver']} until {local_minute(row['until'])}."
                return emit(row, text, as_json=as_json)
            if number:
                ended = client.run(client.calls.call("DELETE", f"/delegations/{number}"))
                return emit(ended, f"Delegation {number} has ended.", as_json=as_json)
            delegations = client.run(client.calls.call("GET", "/delegations"))["delegations"]
        except Failed as error:
            hint = "set CONFIRMATION_TOKEN to a token of role approve" if error.status == 401 else ""
            raise ConfigError(error.message, hint=hint) from error
    columns: list[Column[dict[str, object]]] = [
        Column("id", lambda entry: str(entry["id"])),
        Column("away", lambda entry: printable(str(entry["giver"])), grows=True),
        Column("stands in", lambda entry: printable(str(entry["stand_in"])), grows=True),
        Column("until", lambda entry: local_minute(float(str(entry["until"])))),
    ]
    emit_rows(delegations, columns, {"delegations": delegations}, none="Nobody is away.", as_json=as_json)


people: click.Group = click.Group(
    "people", help="List and forget people who sign in with a provider (OpenID Connect)."
)


@people.command("list")
@db_option
@home_and_json
def list_people(home: Home, db_path: Path | str | None, as_json: bool) -> None:
    """List everyone who ever signed in with the provider."""
    with open_files(home, db_path) as (database, _):
        person_rows = database.read_now(rows.list_people)
    columns: list[Column[rows.PersonRow]] = [
        Column("name", lambda row: printable(row.name), grows=True),
        Column("role", lambda row: row.role),
        Column("signed in until", _login_end),
        Column("issuer", lambda row: printable(row.issuer), rank=1),
    ]
    facts = [msgspec.to_builtins(row) for row in person_rows]
    emit_rows(person_rows, columns, {"people": facts}, none="Nobody has signed in so.", as_json=as_json)


@people.command()
@click.argument("name")
@db_option
@click.pass_obj
def forget(home: Home, name: str, db_path: Path | str | None) -> None:
    """End a person's sign-in, and let another account of the provider use the name."""
    with open_files(home, db_path) as (database, paths):
        change(database, paths, lambda tx: rows.forget(tx, name, by=actor_name()))
    click.echo(f"Forgot {printable(name)}.")


def _login_end(row: rows.PersonRow) -> str:
    return local_minute(row.until) if row.until > time.time() else "not now"


def _parse_time(text: str) -> float:
    """Parse a time or a duration as Unix seconds. Raises ConfigError."""
    if match := _SPAN.fullmatch(text):
        return time.time() + int(match[1]) * _UNITS_S[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise ConfigError(f"--until {text!r} is not a time", hint="3d, 12h, 2w, 2026-12-24") from error
