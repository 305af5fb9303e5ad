"""`whet team`: set up the database that several machines share, and show its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.contract.texts import plural
from whet.postgres.driver import has_password, hide_password, needs_driver
from whet.store.database import check_team_url, read_team_url
from whet.terminal.output import emit, home_and_json, number_option
from whet.terminal.wording import cut, printable

if TYPE_CHECKING:
    from whet.store.team_status import TeamStatus


_ROLES_HINT = (
    "Workers, servers and gateways connect as the first role (in store.url), the confirmation service as the"
    " second (in --db-path); both still need a password or a certificate."
)
team: click.Group = click.Group(
    "team", help="Set up the database that several machines share, and show its status."
)


@team.command()
@click.argument("url")
@click.option("--roles", "create", is_flag=True, help="Create roles with the least rights, and print them.")
@home_and_json
def init(home: Home, url: str, create: bool, as_json: bool) -> None:
    """Set up the team's database at URL, or bring it up to date; show how to use it.

    Put a password into ~/.pgpass or PGPASSWORD, not into URL.
    """
    check_team_url(url, "that")
    with needs_driver():
        from whet.store.team import grant_agent_role  # noqa: PLC0415 - brings psycopg, an extra
        from whet.store.team import init as set_up  # noqa: PLC0415 - as above
        from whet_confirm.team import grant_confirm_role  # noqa: PLC0415 - as above
        from whet_confirm.team import init as set_up_confirm  # noqa: PLC0415 - as above

        steps, confirm_steps = set_up(url), set_up_confirm(url)
        grants = [*grant_agent_role(url, create=create), *grant_confirm_role(url, create=create)]
    result = f"applied {plural(len(steps), 'step')}" if steps else "is up to date"
    lines = [f"the team's database {result}"]
    if confirm_steps:
        lines.append(f"the confirmation service's tables there applied {plural(len(confirm_steps), 'step')}")
    if has_password(url):
        lines.append("Put its password into ~/.pgpass or PGPASSWORD, so that it is not in config.yaml.")
    if create:
        lines += [*(f"{grant};" for grant in grants), _ROLES_HINT]
    else:
        lines.append(f"Use it: whet config set store.url {hide_password(url) if has_password(url) else url}")
    emit({"applied": [*steps, *confirm_steps], "grants": grants}, "\n".join(lines), as_json=as_json)


@team.command()
@click.argument("text")
@click.option("--session", "-s", default="", metavar="ID", help="Ask in this session; else in a new one.")
@number_option("--timeout", "timeout_s", least=0, default=600.0, help="Seconds to wait for the answer.")
@home_and_json
def ask(home: Home, text: str, session: str, timeout_s: float, as_json: bool) -> None:
    """Have one of the team's workers answer TEXT, and print the answer."""
    with needs_driver():
        from whet.cli import team_turns  # noqa: PLC0415 - brings the agent, as `whet chat` does, and psycopg

    team_turns.ask(home, text, session, timeout_s, as_json=as_json)


@team.command()
@home_and_json
def status(home: Home, as_json: bool) -> None:
    """Show whether the database answers, the active sessions and the queue."""
    url, lease_s = read_team_url(home)
    if not url:
        raise NotFound("this home uses its own file, not a team's database", hint="whet team init URL")
    with needs_driver():
        from whet.store.team_status import read_status  # noqa: PLC0415 - brings psycopg, an extra

        stats = read_status(url, lease_s)
    emit(stats, "\n".join(_format_status(stats)), as_json=as_json)


@team.command()
@home_and_json
def aside(home: Home, as_json: bool) -> None:
    """List the turns that were set aside, because several workers stopped while they ran them."""
    with needs_driver():
        from whet.cli.team_turns import list_aside  # noqa: PLC0415 - brings the agent and psycopg

    turns = list_aside(home)
    lines = [
        f"{turn.id}  {turn.age_s / 60:.0f} min ago, {turn.person or 'owner'}, session {turn.session_id}:"
        f" {cut(printable(turn.text), 60)}"
        for turn in turns
    ]
    emit(turns, "\n".join(lines) or "no turn is set aside", as_json=as_json)


@team.command()
@click.argument("turn_ids", metavar="TURN...", nargs=-1, required=True)
@home_and_json
def release(home: Home, turn_ids: tuple[str, ...], as_json: bool) -> None:
    """Return turns that were set aside to the queue; workers continue them."""
    with needs_driver():
        from whet.cli.team_turns import release_turns  # noqa: PLC0415 - as above

    release_turns(home, turn_ids)
    emit({"released": turn_ids}, f"released {plural(len(turn_ids), 'turn')}", as_json=as_json)


def _format_status(stats: TeamStatus) -> list[str]:
    waiting = f"{plural(stats.waiting, 'turn')} wait{'s' * (stats.waiting == 1)}"
    leases = f"{stats.held} in turns, {stats.run_out} with a lease that ran out"
    lines = [
        f"{stats.server} · {stats.address}",
        f"schema     {plural(stats.steps, 'step')}",
        f"sessions   {stats.sessions}: {leases}",
        f"queue      {waiting}, the oldest for {stats.oldest_s:.0f} s; {stats.running} run",
    ]
    if stats.aside:
        lines.append(f"set aside  {plural(stats.aside, 'turn')}: whet team aside")
    lines.append(f"clock      {round(stats.clock_off_s, 1) + 0.0:+.1f} s against this machine's")
    return lines
