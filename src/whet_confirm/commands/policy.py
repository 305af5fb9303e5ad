"""`whet confirm policy`: check, try out and explain the rules; let an action pass for a while."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import click

from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import plural
from whet.terminal.output import (
    emit_json,
    home_and_json,
    json_option,
    style_text,
)
from whet_confirm import whitelist
from whet_confirm.commands.files import Age, actor_name, change, db_option, open_files
from whet_confirm.commands.record_text import local_minute
from whet_confirm.names import action_key, is_high_risk
from whet_confirm.policy import (
    ConfirmPolicy,
    Facts,
    find_ineffective_rules,
    find_unreachable_quorums,
    matches,
)
from whet_confirm.policy_file import load_policy
from whet_confirm.quorum import describe


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
    notes = find_ineffective_rules(policy) + find_unreachable_quorums(policy)
    if as_json:
        return emit_json({"ok": True, "version": policy.version, "rules": len(policy.rules), "notes": notes})
    click.echo(f"{path} is right: {plural(len(policy.rules), 'rule')}, version {policy.version}")
    for line in notes:
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
@click.option("--for", "seconds", type=Age(), required=True, metavar="TIME", help="At most 24h.")
@db_option
@click.pass_obj
def allow(
    home: Home, action: str, principal: str, session: str, seconds: float, db_path: Path | str | None
) -> None:
    """Let an action pass without asking for a while; each pass is recorded. Never a high-risk action."""
    request = whitelist.WhitelistRequest(action.strip(), principal, session, seconds)
    with open_files(home, db_path) as (database, paths):
        try:
            whitelist_entry = change(database, paths, lambda tx: whitelist.add(tx, request, actor_name()))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    until = local_minute(whitelist_entry.expires_at)
    click.echo(f"{whitelist_entry.action} of {principal} passes until {until} (entry {whitelist_entry.id}).")


@policy.command()
@click.argument("entry", type=int)
@db_option
@click.pass_obj
def disallow(home: Home, entry: int, db_path: Path | str | None) -> None:
    """Remove an entry of `allow`."""
    with open_files(home, db_path) as (database, paths):
        change(database, paths, lambda tx: whitelist.remove(tx, entry, actor_name()))
    click.echo(f"Entry {entry} is gone.")


def _facts(action: str, details: dict[str, Any], identity: tuple[str, str, str]) -> Facts:
    key = action_key(action)
    return Facts(key, *identity, details, is_high_risk(key), time.time(), action)


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
