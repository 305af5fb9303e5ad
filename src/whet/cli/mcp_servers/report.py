"""Test MCP servers by connecting to them, and print the results, for `whet mcp test` and `whet mcp add`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from typing import Any

import click
import msgspec

from whet.app.confining import confine
from whet.app.server_jails import own_server_jail
from whet.clock import Clock, SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.config.secrets import load_secrets
from whet.contract.errors import ToolError, WhetError
from whet.contract.texts import plural
from whet.foreign_text import clean
from whet.log import mask
from whet.mcp.connection import MAX_LISTED
from whet.mcp.kept import store_failure
from whet.mcp.listing import CHARS_PER_TOKEN, Listing, read_listing, size_chars
from whet.mcp.remote import Remote, RemoteParts, check_server
from whet.mcp.stdio import ServerJail
from whet.terminal.output import style_text, wrap_text
from whet.terminal.wording import printable
from whet.tools.guardian import Guardian

_FIRST_START_S = 180.0
_CLAIMS = {"read_only": "only reads", "destructive": "may destroy"}


class ServerReport(msgspec.Struct, frozen=True):
    """The result of testing one server."""

    name: str
    ok: bool
    server: str = ""
    version: str = ""
    tools: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    denied: int = 0
    """The number of tools that the settings exclude."""
    idle: tuple[str, ...] = ()
    """The patterns of the settings that match no tool."""
    problem: str = ""
    hint: str = ""
    noticed: str = ""
    """Remarks on the connection, in one line."""
    tokens: int = 0
    """About how many tokens of a prompt the tools take up."""
    asked_about: list[str] = []
    """Tools that approval.allow covers only by a pattern, so that they still need approval."""


async def reach_all(home: Home, servers: Mapping[str, McpServerSettings]) -> list[ServerReport]:
    """Connect to servers concurrently and return a report on each. Announces it at a terminal, as it may take
    a while."""
    if servers and sys.stderr.isatty():
        click.echo(wrap_text(f"asking {', '.join(servers)} ..."), err=True)
    settings = load(home, environ=os.environ).settings
    patterns = [rule for rule in settings.approval.allow if "*" in rule or "?" in rule]
    confinement = confine(home, settings.sandbox, deny=settings.approval.deny)

    jailed: set[str] = set()

    def make_jail(name: str, server: McpServerSettings) -> ServerJail | None:
        server_jail = own_server_jail(confinement, home, name, server)
        if server_jail is not None:
            jailed.add(name)
        return server_jail

    with closing(confinement):
        reports = await asyncio.gather(
            *(_reach(home, name, server, make_jail) for name, server in servers.items())
        )
    reports = [
        _add_sandbox_hint(report, servers[report.name]) if report.name in jailed else report
        for report in reports
    ]
    allowed = set(settings.approval.allow)
    return [
        msgspec.structs.replace(report, asked_about=_list_asked_about(report, patterns, allowed))
        for report in reports
    ]


def _add_sandbox_hint(report: ServerReport, server: McpServerSettings) -> ServerReport:
    """Return a failure's report with a hint that names the sandbox's limits and how to widen them. A report
    with a hint of its own is returned unchanged."""
    if report.ok or report.hint not in ("", f"whet mcp test {report.name}"):
        return report
    reach = "the network" if server.network else "no network"
    if hosts := [text for text in server.openings if text.startswith("reach ")]:
        reach = ", ".join(hosts)
    hint = (
        f"it ran in the sandbox, with {reach} and a private folder; to give it more, add"
        f" write FOLDER or read FOLDER to mcp.servers.{report.name}.openings in config.yaml;"
        " confined: false gives it all your rights"
    )
    return msgspec.structs.replace(report, hint=hint)


def _list_asked_about(report: ServerReport, patterns: Sequence[str], allowed: Collection[str]) -> list[str]:
    """Return the destructive tools that approval.allow matches by a pattern but does not name in full."""
    names = [str(tool["name"]) for tool in report.tools if tool["destructive"]]
    covered = [name for name in names if any(fnmatchcase(name, rule) for rule in patterns)]
    return [name for name in covered if name not in allowed]


async def _reach(
    home: Home,
    name: str,
    server: McpServerSettings,
    jail: Callable[[str, McpServerSettings], ServerJail | None],
) -> ServerReport:
    clock: Clock = SystemClock()
    guardian = Guardian()
    secrets = load_secrets(home, os.environ)
    # npx and uvx download at the first start, so the default limit is longer. A limit in the settings
    # applies.
    parts = RemoteParts(home, secrets, clock, guardian, jail=jail, start_s=_FIRST_START_S)
    notices: list[str] = []
    remote = Remote(name, server, parts, notices.append, lambda _catalogue: None)
    try:
        check_server(name, server)
        catalogue = await remote.fetch_catalogue()
        connection = remote.connection
        server_info = connection.server_info if connection else {}
        title = clean(f"{server_info.get('name') or ''} {server_info.get('version') or ''}").strip()[:80]
        if len(catalogue.tools) >= MAX_LISTED:
            notices.append(f"tools after the {MAX_LISTED:,}th of its list are not read")
        noticed = "; ".join([*notices, connection.transport.explain() if connection else ""]).strip("; ")
        listing = read_listing(name, server, catalogue)
        return _report(name, listing, title, connection.version if connection else "", noticed)
    except WhetError as error:
        if not isinstance(error, ToolError):
            store_failure(home, name, server, mask(error.message), clock.unix_ms())
        return ServerReport(name, False, problem=mask(error.message), hint=mask(error.hint))
    finally:
        await remote.aclose()
        guardian.close()


def _report(name: str, listing: Listing, title: str, version: str, noticed: str) -> ServerReport:
    tools = [
        {
            "name": tool.spec.name,
            "own_name": tool.own_name,
            "description": tool.spec.description,
            "read_only": tool.hints.read_only,
            "destructive": tool.hints.destructive,
        }
        for tool in listing.offered
    ]
    left_out = [{"own_name": tool.own_name, "reason": tool.reason} for tool in listing.left_out]
    tokens = sum(size_chars(tool.spec) for tool in listing.offered) // CHARS_PER_TOKEN
    return ServerReport(
        name,
        True,
        title,
        version,
        tools,
        left_out,
        listing.denied,
        listing.idle,
        noticed=mask(noticed),
        tokens=tokens,
    )


def show(report: ServerReport) -> None:
    """Print a server's report with each of its tools."""
    if not report.ok:
        return _show_failure(report)
    _show_head(report, _summary(report))
    for tool in report.tools:
        claims = [word for key, word in _CLAIMS.items() if tool[key]]
        click.echo(
            wrap_text(f"{tool['name']} (says: {', '.join(claims)})" if claims else tool["name"], indent=2)
        )
        if words := str(tool["description"]).strip():
            click.echo(wrap_text(printable(words.splitlines()[0]), indent=6))
    for reason, omissions in groupby(report.left_out, key=itemgetter("reason")):
        names = ", ".join(omission["own_name"] for omission in omissions)
        click.echo(wrap_text(printable(f"left out: {names}: {reason}"), indent=2))
    if report.denied:
        click.echo(f"  {report.denied} more, which your settings leave out")
    for pattern in report.idle:
        click.echo(f"  {printable(pattern)} in your settings names no tool of it")
    if report.asked_about:
        text = " ".join(name.partition("__")[2].partition("__")[2] for name in report.asked_about)
        click.echo(
            wrap_text(
                f"asked about although a pattern in approval.allow fits, for it may destroy something: {text}"
                f" (whet mcp trust {report.name} {text})",
                indent=2,
            )
        )
    if report.noticed:
        click.echo(wrap_text(printable(f"noticed: {report.noticed}"), indent=2))


def show_briefly(report: ServerReport) -> None:
    """Print a server's report in one line, or its failure."""
    if not report.ok:
        return _show_failure(report)
    left_out = f", {len(report.left_out)} left out" if report.left_out else ""
    _show_head(report, f"{_summary(report)}{left_out}; whet mcp test {report.name} shows them")


def _summary(report: ServerReport) -> str:
    count = plural(len(report.tools), "tool")
    title = printable(report.server) or "(no name)"
    tokens = f", about {report.tokens:,} tokens in every session" if report.tools else ""
    return f"{report.name}: ok, {title}, protocol {report.version}, {count}{tokens}"


def _show_head(report: ServerReport, text: str) -> None:
    """Print a text that begins with the server's name, with the name in bold."""
    click.echo(style_text(report.name, "bold") + wrap_text(text).removeprefix(report.name))


def _show_failure(report: ServerReport) -> None:
    _show_head(report, printable(f"{report.name}: {report.problem}"))
    if report.hint and report.hint != f"whet mcp test {report.name}":
        click.echo(wrap_text(printable(f"hint: {report.hint}"), indent=2))


def end_if_failed(reports: Sequence[ServerReport], *, as_json: bool) -> None:
    """End the command with exit code 1 if a server can't be reached. The server stays in config.yaml."""
    for report in reports:
        if not report.ok:
            if not as_json:
                again = f"whet mcp test {report.name} tries again, whet mcp remove {report.name} removes it"
                click.echo(wrap_text(f"it stays in config.yaml: {again}"))
            raise click.exceptions.Exit(1)
