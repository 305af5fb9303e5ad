"""`whet confirm token`: make, list, rotate and revoke bearer tokens, and enrol second factors."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from whet.config.paths import Home, read_small, replace_file
from whet.contract.errors import NotFound
from whet.terminal.output import (
    Column,
    emit,
    emit_json,
    emit_rows,
    home_and_json,
)
from whet.terminal.wording import printable
from whet.web.tokens import hash_secret
from whet_confirm import factors, passkeys, tokens
from whet_confirm.commands.files import Age, actor_name, change, db_option, open_files
from whet_confirm.commands.record_text import local_minute
from whet_confirm.database import ConfirmDatabase
from whet_confirm.open import ServicePaths
from whet_confirm.records import ROLES

token: click.Group = click.Group("token", help="Make, list, rotate and revoke bearer tokens.")


@token.command()
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@click.option("--name", required=True, metavar="PRINCIPAL", help="Who holds it; recorded with what it does.")
@click.option(
    "--for", "valid_s", type=Age(), metavar="TIME", help="How long it is valid, e.g. 30d; else until revoked."
)
@db_option
@home_and_json
def create(
    home: Home, role: str, name: str, valid_s: float | None, db_path: Path | str | None, as_json: bool
) -> None:
    """Make a token; it is printed once and stored as a hash.

    \b
    whet confirm token create --role approve --name alice
    """
    with open_files(home, db_path, may_make=True) as (database, paths):
        token_id, secret = change(
            database, paths, lambda tx: tokens.create(tx, name, role, by=actor_name(), valid_s=valid_s)
        )
    _show_secret(token_id, secret, as_json)


@token.command("list")
@db_option
@home_and_json
def list_tokens(home: Home, db_path: Path | str | None, as_json: bool) -> None:
    """List tokens; secrets are not stored, so they can't be shown."""
    with open_files(home, db_path) as (database, _):
        rows = database.read_now(tokens.TOKENS.all)
        enrolled = database.read_now(factors.enrolled_names)
    now_s = time.time()
    columns: list[Column[tokens.ConfirmTokenRow]] = [
        Column("id", lambda row: row.id),
        Column("name", lambda row: printable(row.name), grows=True),
        Column("role", lambda row: row.role),
        Column("state", lambda row: _state(row, now_s)),
        Column("2nd factor", lambda row: "yes" if row.name in enrolled else "", rank=2),
        Column("since", lambda row: local_minute(row.created_at)[:10], rank=1),
    ]
    facts = [{**msgspec.to_builtins(row), "second_factor": row.name in enrolled} for row in rows]
    none = "No tokens yet. Make one: whet confirm token create --role approve --name alice"
    emit_rows(rows, columns, {"tokens": facts}, none=none, as_json=as_json)


@token.command()
@click.argument("token_id", metavar="ID")
@db_option
@click.pass_obj
def revoke(home: Home, token_id: str, db_path: Path | str | None) -> None:
    """Revoke a token; the next request with it is refused."""
    with open_files(home, db_path) as (database, paths):
        change(database, paths, lambda tx: tokens.revoke(tx, token_id, by=actor_name()))
    click.echo(f"Revoked {token_id}.")


@token.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap", "overlap_s", type=Age(), default=0.0, help="How long the old one stays valid, e.g. 1h."
)
@db_option
@home_and_json
def rotate(home: Home, token_id: str, overlap_s: float, db_path: Path | str | None, as_json: bool) -> None:
    """Replace a token by a new one with the same name and role."""
    with open_files(home, db_path) as (database, paths):
        path = _find_file(database, paths, token_id)
        new_id, secret = change(
            database, paths, lambda tx: tokens.rotate(tx, token_id, by=actor_name(), overlap_s=overlap_s)
        )
        if path is not None:
            replace_file(path, secret + "\n", mode=0o600)
    _show_secret(new_id, secret, as_json)
    if path is not None:
        click.echo(f"{path} has the new one.", err=True)


@token.command()
@click.option("--name", required=True, metavar="PRINCIPAL", help="Who gets it: the name of an approve token.")
@click.option("--remove", is_flag=True, help="Take the second factor away instead.")
@click.option("--remove-passkeys", "lost", is_flag=True, help="Take the passkeys away instead.")
@db_option
@home_and_json
def enrol(home: Home, name: str, remove: bool, lost: bool, db_path: Path | str | None, as_json: bool) -> None:
    """Give a person a second factor: six digits from an authenticator app (TOTP), printed once.

    Rules with `second_factor = true` take them with every approval. Enrolling again replaces the old one.

    \b
    whet confirm token enrol --name alice
    """
    with open_files(home, db_path) as (database, paths):
        if lost:
            change(database, paths, lambda tx: passkeys.remove(tx, name, by=actor_name()))
            return emit({"name": name}, f"{name} has no passkey now.", as_json=as_json)
        if remove:
            change(database, paths, lambda tx: factors.remove(tx, name, by=actor_name()))
            return emit({"name": name}, f"{name} has no second factor now.", as_json=as_json)
        if not any(
            row.name == name and row.revoked_at is None for row in database.read_now(tokens.TOKENS.all)
        ):
            raise NotFound(f"nobody holds a token as {name!r}", hint="whet confirm token list")
        factor = change(database, paths, lambda tx: factors.enrol(tx, name, by=actor_name()))
    if as_json:
        return emit_json({"name": name, "secret": factor.secret, "uri": factor.uri}, masks=False)
    click.echo(" ".join(factor.secret[start : start + 4] for start in range(0, len(factor.secret), 4)))
    click.echo(factor.uri)
    click.echo("Type the first line into an authenticator app; it is not shown again.", err=True)


def _find_file(database: ConfirmDatabase, paths: ServicePaths, token_id: str) -> Path | None:
    """Return the file in the service's folder that holds a token, from which agents read it, or None."""
    for role in ROLES:
        path = paths.token_path(role)
        key = hash_secret((read_small(path) or "").strip())
        row = database.read_now(lambda db, key=key: tokens.TOKENS.find(db, tokens.TOKENS.by_hash, key))
        if row is not None and row.id == token_id:
            return path
    return None


def _show_secret(token_id: str, secret: str, as_json: bool) -> None:
    if as_json:
        return emit_json({"id": token_id, "token": secret}, masks=False)
    click.echo(secret)
    click.echo(f"id {token_id}; it is not shown again.", err=True)


def _state(row: tokens.ConfirmTokenRow, now_s: float) -> str:
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at is None:
        return "in use"
    return "ended" if now_s >= row.expires_at else f"until {local_minute(row.expires_at)}"
