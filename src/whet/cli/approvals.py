"""`whet approvals`: list permanent permissions and revoke them.

Only "always" answers are listed. Rules are in config.yaml, and answers for a session end with the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from whet.cli import stored
from whet.clock import local_day
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.store import grants
from whet.store.database import StateDatabase, has_store
from whet.terminal.output import Column, emit, emit_rows, home_and_json
from whet.terminal.wording import printable

T = TypeVar("T")


@click.group(
    "approvals", invoke_without_command=True, help="List what was allowed for good, and take it back."
)
@click.pass_context
def approvals(context: click.Context) -> None:
    """List the permissions if no command follows: a question names only `whet approvals`."""
    if context.invoked_subcommand is None:
        context.invoke(list_, as_json=False)


@approvals.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """List every "always" answer that is in force."""
    rows = _use(home, lambda database: database.read_now(grants.list_grants)) or []
    columns: list[Column[grants.GrantRow]] = [
        Column("id", lambda grant: str(grant.id)),
        Column("tool", lambda grant: grant.tool),
        Column("pattern", lambda grant: printable(grant.pattern), grows=True),
        Column("where", lambda grant: grant.workspace or "everywhere", grows=True, rank=1),
        Column("since", lambda grant: local_day(grant.created), rank=2),
    ]
    none = "Nothing was allowed for good. Rules are in: whet config get approval.allow"
    emit_rows(rows, columns, {"grants": rows}, none=none, as_json=as_json)
    if rows and not as_json:
        click.echo("take one back: whet approvals revoke ID")


@approvals.command("revoke")
@click.argument("grant_id", type=int)
@home_and_json
def revoke(home: Home, grant_id: int, as_json: bool) -> None:
    """Revoke the permission with this id; Whet asks again before the next such call."""
    if not _use(home, lambda database: database.write_now(lambda db: grants.remove(db, grant_id))):
        raise NotFound(f"there is no grant {grant_id}", hint="whet approvals list")
    emit({"revoked": grant_id}, f"grant {grant_id} no longer holds", as_json=as_json)


def _use(home: Home, operation: Callable[[StateDatabase], T]) -> T | None:
    """Run `operation` on the store. Returns None if there is no store yet."""
    if not has_store(home):
        return None
    with stored.open_database(home) as database:
        return operation(database)
