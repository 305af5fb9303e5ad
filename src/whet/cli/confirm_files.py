"""`whet confirm token | policy | audit | prune`: commands that work on the service's files.

The service may be running or not.
"""

from __future__ import annotations

import getpass
import json
import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import click
import msgspec

from whet.cli.output import (
    Column,
    ProgressLine,
    emit,
    emit_json,
    emit_rows,
    home_and_json,
    json_option,
    style_text,
)
from whet.cli.wording import printable
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.confirm import audit as checks
from whet.confirm import factors, passkeys, retention, tokens, whitelist
from whet.confirm.database import ConfirmDatabase
from whet.confirm.http.shapes import iso
from whet.confirm.keys import PublicKey, load_key
from whet.confirm.ledger import Tx
from whet.confirm.names import action_key, is_high_risk
from whet.confirm.open import Places, open_database, places
from whet.confirm.policy import ConfirmPolicy, Facts, matches, without_effect
from whet.confirm.policy_file import load_policy
from whet.confirm.quorum import describe
from whet.confirm.records import ROLES
from whet.confirm.recovery import start_time
from whet.confirm.timeline import Timeline
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.contract.forms import DATABASE_SCHEMES
from whet.contract.texts import plural

T = TypeVar("T")


class DatabaseLocation(click.ParamType[Path | str]):
    """The location of the service's database: a file, or the URL of a team's PostgreSQL database."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Parse the option's text."""
        return value if isinstance(value, Path) or value.startswith(DATABASE_SCHEMES) else Path(value)


db_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--db-path", type=DatabaseLocation(), help="A file, or a team's postgresql://; else confirmations.db."
)
_AGE = re.compile(r"(\d+)\s*(s|m|h|d)")
_ENOUGH_FOR_A_RATE = 10_000  # with fewer events the start-up takes longer than the check
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Age(click.ParamType[float]):
    """A duration such as 90d, 12h, 30m or 45s, parsed as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the option's text."""
        if isinstance(value, int | float):
            return float(value)
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not like 90d, 12h or 30m", param, ctx)
        return float(int(match[1]) * _SECONDS[match[2]])


@contextmanager
def open_files(
    home: Home, db_path: Path | str | None, *, may_make: bool = False
) -> Generator[tuple[ConfirmDatabase, Places]]:
    """Open the service's files. With `may_make` they are created if missing, since tokens may precede the
    first start.

    Raises NotFound if there is no database and `may_make` is false.
    """
    where = places(home, db_path)
    try:
        is_new = not where.url and not where.database.exists()
    except OSError as error:
        hint = "do it as the user that the service runs as"
        raise ConfigError(f"can't look at {where.database}: {error.strerror}", hint=hint) from error
    if may_make:
        home.ensure()
    elif is_new:
        raise NotFound(f"there is no {where.database} yet", hint="whet confirm serve makes it")
    with closing(open_database(where)) as database:
        if may_make:
            load_key(where.key, may_make=is_new)
        yield database, where


def change(database: ConfirmDatabase, where: Places, work: Callable[[Tx], T]) -> T:
    """Run a change in one transaction, with its events in the audit log."""
    key = load_key(where.key, may_make=False)
    database.sealer.sign_with(key, {})
    timeline = Timeline(start_time(database)[0])
    return database.write_now(lambda db: work(Tx(db, timeline.now_s(), key)))


def actor_name() -> str:
    """Return the name under which the audit log records this user."""
    return f"cli:{getpass.getuser()}"


token: click.Group = click.Group("token", help="Make, list, rotate and revoke bearer tokens.")


@token.command()
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@click.option("--name", required=True, metavar="PRINCIPAL", help="Who holds it; recorded with what it does.")
@click.option(
    "--for", "valid_s", type=Age(), metavar="TIME", help="How long it holds, e.g. 30d; else until revoked."
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
    with open_files(home, db_path, may_make=True) as (database, where):
        token_id, secret = change(
            database, where, lambda tx: tokens.create(tx, name, role, by=actor_name(), valid_s=valid_s)
        )
    _show_secret(token_id, secret, as_json)


@token.command("list")
@db_option
@home_and_json
def list_tokens(home: Home, db_path: Path | str | None, as_json: bool) -> None:
    """List tokens; secrets are not stored, so they can't be shown."""
    with open_files(home, db_path) as (database, _):
        rows = database.read_now(tokens.TOKENS.all)
        enrolled = database.read_now(factors.names)
    now_s = time.time()
    shape: list[Column[tokens.ConfirmTokenRow]] = [
        Column("id", lambda row: row.id),
        Column("name", lambda row: printable(row.name), grows=True),
        Column("role", lambda row: row.role),
        Column("state", lambda row: _state(row, now_s)),
        Column("2nd factor", lambda row: "yes" if row.name in enrolled else "", rank=2),
        Column("since", lambda row: (iso(row.created_at) or "")[:10], rank=1),
    ]
    facts = [{**msgspec.to_builtins(row), "second_factor": row.name in enrolled} for row in rows]
    none = "No tokens yet. Make one: whet confirm token create --role approve --name alice"
    emit_rows(rows, shape, {"tokens": facts}, none=none, as_json=as_json)


@token.command()
@click.argument("token_id", metavar="ID")
@db_option
@click.pass_obj
def revoke(home: Home, token_id: str, db_path: Path | str | None) -> None:
    """Revoke a token; the next request with it is refused."""
    with open_files(home, db_path) as (database, where):
        change(database, where, lambda tx: tokens.revoke(tx, token_id, by=actor_name()))
    click.echo(f"Revoked {token_id}.")


@token.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap", "overlap_s", type=Age(), default=0.0, help="How long the old one still holds, e.g. 1h."
)
@db_option
@home_and_json
def rotate(home: Home, token_id: str, overlap_s: float, db_path: Path | str | None, as_json: bool) -> None:
    """Replace a token by a new one with the same name and role."""
    with open_files(home, db_path) as (database, where):
        new_id, secret = change(
            database, where, lambda tx: tokens.rotate(tx, token_id, by=actor_name(), overlap_s=overlap_s)
        )
    _show_secret(new_id, secret, as_json)


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
    with open_files(home, db_path) as (database, where):
        if lost:
            change(database, where, lambda tx: passkeys.remove(tx, name, by=actor_name()))
            return emit({"name": name}, f"{name} has no passkey now.", as_json=as_json)
        if remove:
            change(database, where, lambda tx: factors.remove(tx, name, by=actor_name()))
            return emit({"name": name}, f"{name} has no second factor now.", as_json=as_json)
        if not any(
            row.name == name and row.revoked_at is None for row in database.read_now(tokens.TOKENS.all)
        ):
            raise NotFound(f"nobody holds a token as {name!r}", hint="whet confirm token list")
        factor = change(database, where, lambda tx: factors.enrol(tx, name, by=actor_name()))
    if as_json:
        return emit_json({"name": name, "secret": factor.secret, "uri": factor.uri})
    click.echo(" ".join(factor.secret[at : at + 4] for at in range(0, len(factor.secret), 4)))
    click.echo(factor.uri)
    click.echo("Type the first line into an authenticator app; it is not shown again.", err=True)


@click.group()
def policy() -> None:
    """Check, try out and explain the rules; let an action pass for a while.

    \b
    [groups]
    ops = ["alice", "bob"]
    [[rules]]
    action = "deploy_*"
    details = { "$.env" = "production" }
    effect = "ask"
    quorum = "2 of ops"
    """


@policy.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def check(path: Path, as_json: bool) -> None:
    """Check a policy file; exit 1 and name the location if it is wrong."""
    policy = load_policy(path)
    idle = without_effect(policy)
    if as_json:
        return emit_json({"ok": True, "version": policy.version, "rules": len(policy.rules), "notes": idle})
    click.echo(f"{path} is right: {plural(len(policy.rules), 'rule')}, version {policy.version}")
    for line in idle:
        click.echo(f"note: {line}")


@policy.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--action", required=True, help="What would be done.")
@click.option("--details", default="{}", metavar="JSON", help="What it would be done with, an object.")
@click.option("--requester", default="agent", show_default=True, help="The program that asks.")
@click.option("--principal", default="agent", show_default=True, help="Whose token it has.")
@click.option("--session", default="", help="The session it is in.")
@json_option
def test(path: Path, action: str, details: str, as_json: bool, **identity: str) -> None:
    """Try a policy out on a request that is not made.

    \b
    whet confirm policy test policy.toml --action deploy_production --details '{"env": "production"}'
    """
    try:
        parsed: object = json.loads(details)
    except ValueError as error:
        raise ConfigError(f"--details is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ConfigError("--details must be a JSON object")
    facts = _facts(
        action,
        cast("dict[str, Any]", parsed),
        (identity["principal"], identity["requester"], identity["session"]),
    )
    _show_judgement(load_policy(path), facts, as_json)


@policy.command()
@click.argument("request_id", metavar="ID")
@click.option("--policy", "path", type=click.Path(path_type=Path), help="Judge by this file; else by none.")
@db_option
@home_and_json
def explain(
    home: Home, request_id: str, path: Path | None, db_path: Path | str | None, as_json: bool
) -> None:
    """Show which rules match a stored request, and how they would judge it now."""
    sql = (
        "SELECT action, details, principal, requester, session_key, policy_version FROM requests WHERE id = ?"
    )
    with open_files(home, db_path) as (database, _):
        row = database.read_now(lambda db: db.execute(sql, (request_id,)).fetchone())
    if row is None:
        raise NotFound(f"there is no request {request_id!r}", hint="whet confirm list --status all")
    facts = _facts(row[0], json.loads(row[1]), (row[2], row[3], row[4]))
    if not as_json:
        click.echo(f"submitted under policy {row[5]}")
    _show_judgement(load_policy(path), facts, as_json)


@policy.command()
@click.argument("action")
@click.option("--principal", required=True, help="Whose requests pass; * for anybody's.")
@click.option("--session", default="", help="Only in this session.")
@click.option(
    "--for", "seconds", type=Age(), required=True, metavar="TIME", help="At most 24h; never for ever."
)
@db_option
@click.pass_obj
def allow(
    home: Home, action: str, principal: str, session: str, seconds: float, db_path: Path | str | None
) -> None:
    """Let an action pass without asking for a while; each pass is recorded. Never a high-risk action."""
    request = whitelist.WhitelistRequest(action.strip(), principal, session, seconds)
    with open_files(home, db_path) as (database, where):
        try:
            whitelist_entry = change(database, where, lambda tx: whitelist.add(tx, request, actor_name()))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    until = iso(whitelist_entry.expires_at)
    click.echo(f"{whitelist_entry.action} of {principal} passes until {until} (entry {whitelist_entry.id}).")


@policy.command()
@click.argument("entry", type=int)
@db_option
@click.pass_obj
def disallow(home: Home, entry: int, db_path: Path | str | None) -> None:
    """Remove an entry of `allow`."""
    with open_files(home, db_path) as (database, where):
        change(database, where, lambda tx: whitelist.remove(tx, entry, actor_name()))
    click.echo(f"Entry {entry} is gone.")


audit: click.Group = click.Group("audit", help="Verify and export the audit log.")


@audit.command()
@click.option(
    "--checkpoint", type=click.Path(path_type=Path, exists=True), help="Checkpoints kept elsewhere."
)
@click.option(
    "--key", "key_path", type=click.Path(path_type=Path, exists=True), help="Public key kept elsewhere."
)
@db_option
@home_and_json
def verify(
    home: Home, checkpoint: Path | None, key_path: Path | None, db_path: Path | str | None, as_json: bool
) -> None:
    """Check the hash chain, the signed checkpoints and every record; exit 1 where something is wrong.

    \b
    whet confirm audit verify
    whet confirm audit verify --checkpoint /mnt/elsewhere/checkpoints.jsonl
    """
    progress = ProgressLine("verifying", SystemClock())
    with open_files(home, db_path) as (database, where):
        keys = _with_private_key(checks.read_keys(key_path or where.public_key), where)
        outside = checks.read_checkpoints(where.checkpoints) if where.checkpoints.exists() else []
        exported = [*outside]
        outside += checks.read_checkpoints(checkpoint) if checkpoint else []
        report = database.read_now(
            lambda db: checks.verify(db, keys, outside, lambda done: progress.update(f"{done} events"))
        )
        missing = database.read_now(lambda db: checks.gaps(db, exported))
        report = msgspec.structs.replace(report, problems=(*report.problems, *missing))
    progress.finish()
    if as_json:
        emit_json({"ok": report.is_good, **msgspec.to_builtins(report)})
    else:
        for problem in report.problems:
            click.echo(style_text("wrong: ", "red") + printable(problem))
        counts = ((report.events, "event"), (report.checkpoints, "checkpoint"), (report.records, "record"))
        took = f" in {report.seconds:.2f} s"
        if report.events >= _ENOUGH_FOR_A_RATE:
            took += f" ({report.events / report.seconds:,.0f} events/s)"
        click.echo(", ".join(plural(*pair) for pair in counts) + took)
        click.echo(
            style_text("Nothing was altered.", "green")
            if report.is_good
            else "The log or a record WAS ALTERED."
        )
    if not report.is_good:
        raise click.exceptions.Exit(1)


def _with_private_key(keys: dict[str, PublicKey], where: Places) -> checks.Keys:
    """Return the keys, with the service's private key if this user may read it.

    Only the private key can verify events that are not signed yet.
    """
    try:
        key = load_key(where.key, may_make=False)
    except WhetError:
        return keys
    is_known = key.id in keys and keys[key.id].raw == key.raw
    return {**keys, key.id: key} if is_known else keys


@audit.command()
@click.option("--after", default=0, help="Only events after this number.")
@db_option
@click.pass_obj
def export(home: Home, after: int, db_path: Path | str | None) -> None:
    """Print the log as JSON lines, one event each."""
    with open_files(home, db_path) as (database, _):

        def write(db: apsw.Connection) -> None:
            for line in checks.export(db, after):
                sys.stdout.buffer.write(line)

        sys.stdout.flush()
        database.read_now(write)


@click.command()
@click.option("--older-than", "age_s", type=Age(), required=True, metavar="TIME", help="e.g. 90d")
@click.option(
    "--archive", type=click.Path(path_type=Path), help="Append the events taken to this file first."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@db_option
@click.pass_obj
def prune(home: Home, age_s: float, archive: Path | None, dry_run: bool, db_path: Path | str | None) -> None:
    """Take requests that ended long ago, and their events, out of the database.

    The log still verifies: it then begins at a signed checkpoint.
    """
    with open_files(home, db_path) as (database, where):
        prune_plan = database.read_now(lambda db: retention.plan(db, time.time() - age_s))
        text = f"{plural(prune_plan.requests, 'request')} and {plural(prune_plan.events, 'event')}"
        if dry_run:
            return click.echo(f"Would take {text}.")
        if archive is not None:
            with archive.open("ab") as file:
                database.read_now(lambda db: file.writelines(checks.export(db, 0, prune_plan.size)))
        change(database, where, lambda tx: retention.note(tx, prune_plan, actor_name()))
        while database.write_now(lambda db: retention.take(db, prune_plan)):
            pass
    click.echo(f"Took {text}.")


def _show_secret(token_id: str, secret: str, as_json: bool) -> None:
    if as_json:
        return emit_json({"id": token_id, "token": secret})
    click.echo(secret)
    click.echo(f"id {token_id}; it is not shown again.", err=True)


def _state(row: tokens.ConfirmTokenRow, now_s: float) -> str:
    if row.revoked_at is not None:
        return "revoked"
    return "ended" if row.expires_at is not None and now_s >= row.expires_at else "in use"


def _facts(action: str, details: dict[str, Any], identity: tuple[str, str, str]) -> Facts:
    key = action_key(action)
    return Facts(key, *identity, details, is_high_risk(key), time.time())


def _show_judgement(policy: ConfirmPolicy, facts: Facts, as_json: bool) -> None:
    judgement = policy.judge(facts)
    matching = [rule.name for rule in policy.rules if matches(rule, facts)]
    if as_json:
        return emit_json(
            {
                "effect": judgement.effect,
                "why": judgement.why,
                "rule": judgement.rule,
                "matching": matching,
                "quorum": describe(judgement.plan.quorum),
                "high_risk": facts.is_high_risk,
                "version": policy.version,
            }
        )
    click.echo(f"{style_text(judgement.effect, 'bold')}: {judgement.why}")
    click.echo(f"rules that fit: {', '.join(matching) or 'none'}")
    if judgement.effect == "ask":
        count = judgement.plan.deny_threshold
        denials = f"{plural(count, 'denial')} end{'s' if count == 1 else ''} it"
        click.echo(f"it takes: {describe(judgement.plan.quorum)}; {denials}")
