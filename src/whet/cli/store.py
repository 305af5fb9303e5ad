"""`whet store`: copy all conversations to a team's database, or back into a home's own file."""

from __future__ import annotations

from contextlib import closing

import click

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.texts import plural
from whet.store.database import StateDatabase, open_team
from whet.terminal.output import emit, home_and_json

store: click.Group = click.Group("store", help="Copy all conversations to a team's database, or back.")


@store.command()
@click.option("--to", "to_url", metavar="URL", help="Copy this home's file to the team's database.")
@click.option("--from", "from_url", metavar="URL", help="Copy the team's database into this home's file.")
@home_and_json
def copy(home: Home, to_url: str | None, from_url: str | None, as_json: bool) -> None:
    """Copy everything, then count and hash every table on both sides. An interrupted copy can be continued.

    The target has to be empty at the first run, and neither side may be in use during the copy.
    """
    from whet.memory.known_copies import copy_seen_files  # noqa: PLC0415 - only one command copies
    from whet.team.copy import CopiedTable  # noqa: PLC0415 - as above
    from whet.team.copy import copy as copy_store  # noqa: PLC0415 - as above

    url = to_url or from_url or ""
    if bool(to_url) == bool(from_url):
        raise click.UsageError("name one of --to URL and --from URL")
    home.ensure()

    def show_progress(table: str, rows: int) -> None:
        if not as_json and rows % 50_000 == 0:
            click.echo(f"{table}: {plural(rows, 'row')}", err=True)

    with (
        closing(StateDatabase.open(home.database, SystemClock())) as own_store,
        closing(open_team(url, 20.0)) as team,
    ):
        source, target = (own_store, team) if to_url else (team, own_store)
        tables: list[CopiedTable] = copy_store(source, target, show_progress)
        copy_seen_files(own_store, team, home, to_team=bool(to_url))
    rows = sum(table.rows for table in tables)
    target_name = "the team's database" if to_url else str(home.database)
    copied = f"copied {plural(rows, 'row')} in {plural(len(tables), 'table')} to {target_name}"
    text = f"{copied}; counts and hashes are the same"
    emit({"tables": tables, "rows": rows}, text, as_json=as_json)
