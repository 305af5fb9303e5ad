"""`whet approvals`: list what was allowed for good, and take it back.

Only the answers "always" are here; rules live in config.yaml, answers for a session end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
import msgspec

from whet.cli import output
from whet.cli.output import Column, emit_json
from whet.cli.wording import printable
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.store import grants
from whet.store.database import StateDatabase

T = TypeVar("T")
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.group(help="List what was allowed for good, and take it back.")
def approvals() -> None:
    """Group the approval commands."""


@approvals.command("list")
@_as_json
@click.pass_obj
def list_(home: Home, as_json: bool) -> None:
    """List every answer \"always\" that still holds."""
    found = _use(home, lambda database: database.read_now(grants.all_grants)) or []
    if as_json:
        return emit_json({"grants": [msgspec.to_builtins(grant) for grant in found]})
    if not found:
        return click.echo("Nothing was allowed for good. Rules are in: whet config get approval.allow")
    rows = [
        [str(g.id), g.tool, printable(g.pattern), g.workspace or "everywhere", g.created[:10]] for g in found
    ]
    shape = (
        Column("id"),
        Column("tool"),
        Column("pattern", grows=True),
        Column("where", grows=True, rank=1),
        Column("since", rank=2),
    )
    click.echo(output.table(shape, rows))


@approvals.command("revoke")
@click.argument("grant_id", type=int)
@_as_json
@click.pass_obj
def revoke(home: Home, grant_id: int, as_json: bool) -> None:
    """Take back the answer with this id; the next such call is asked about again."""
    if not _use(home, lambda database: database.write_now(lambda db: grants.remove(db, grant_id))):
        raise NotFound(f"there is no grant {grant_id}", hint="whet approvals list")
    if as_json:
        emit_json({"revoked": grant_id})
    else:
        click.echo(f"grant {grant_id} no longer holds")


def _use(home: Home, work: Callable[[StateDatabase], T]) -> T | None:
    """Run `work` on the store; None where there is no store yet."""
    if not home.database.exists():
        return None
    database = StateDatabase.open(home.database, SystemClock())
    try:
        return work(database)
    finally:
        database.close()
