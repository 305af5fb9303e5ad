"""`whet mcp`: list, add, remove, test and trust MCP servers, log in to them, and run Whet as one.

Only `test`, `add` and `login` connect to a server. Keys belong into .env; a server's env and headers refer
to them as ${NAME}.
"""

from __future__ import annotations

import os
import re
import webbrowser
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from whet.app.server_jails import remove_folder
from whet.approval.tool_contents import AcceptedContents
from whet.cli.main import run_on_loop
from whet.cli.mcp_servers.browser import add_browser
from whet.cli.mcp_servers.report import end_if_failed, reach_all, show, show_briefly
from whet.clock import SystemClock, iso
from whet.config.edit import change_list, remove_table_entry, set_table_entry
from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import from_values
from whet.log import mask
from whet.mcp.kept import delete_stored, read_stored
from whet.mcp.listing import SERVER_NAME, content_of, read_listing
from whet.mcp.remote import check_server, holds_key
from whet.terminal.output import Column, age, emit_json, home_and_json, table, wrap_text
from whet.terminal.wording import printable

_KEY = "mcp.servers"
_SECONDS = click.FloatRange(0, min_open=True)


class _Row(msgspec.Struct, frozen=True):
    """One server as `list` shows it. `tools` is None if their number is unknown."""

    name: str
    kind: str
    target: str
    enabled: bool
    state: str
    tools: int | None
    left_out: int = 0
    known_since: str = ""
    problem: str = ""


mcp: click.Group = click.Group("mcp", help="Use MCP servers' tools; be an MCP server yourself.")


mcp.add_command(add_browser)


def complete_server(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a configured server's name."""
    home = ctx.find_object(Home)
    return [name for name in _servers(home) if name.startswith(incomplete)] if home else []


_name = click.argument("name", shell_complete=complete_server)


def _settings(home: Home) -> Settings:
    return load(home, environ=os.environ).settings


def _servers(home: Home) -> dict[str, McpServerSettings]:
    return _settings(home).mcp.servers


def _find_server(home: Home, name: str) -> McpServerSettings:
    server = _servers(home).get(name)
    if server is None:
        raise NotFound(f"there is no MCP server {name!r}", hint="whet mcp list")
    return server


@mcp.command("list", short_help="List the servers and what is known of them.")
@home_and_json
def list_servers(home: Home, as_json: bool) -> None:
    """List the configured servers and their known tools. Connects to none of them."""
    rows = [_make_row(home, name, server) for name, server in _servers(home).items()]
    if as_json:
        return emit_json({"servers": rows})
    if not rows:
        return click.echo("no MCP servers; whet mcp add NAME -- COMMAND ARGS, or whet mcp add NAME --url URL")
    now = SystemClock().now()
    columns: list[Column[_Row]] = [
        Column("server", lambda row: row.name),
        Column("state", lambda row: row.state),
        Column("tools", lambda row: "?" if row.tools is None else str(row.tools), right=True),
        Column("known", lambda row: age(row.known_since, now) if row.known_since else "-", rank=1),
        Column("command or url", lambda row: printable(row.target), grows=True, rank=2),
    ]
    click.echo(table(rows, columns))
    for row in rows:
        if row.problem:
            click.echo(wrap_text(printable(mask(f"{row.name}: {row.problem}"))))


def _make_row(home: Home, name: str, server: McpServerSettings) -> _Row:
    target = mask(server.url or " ".join((server.command, *server.args)))
    kind = "http" if server.url else "stdio"
    try:
        check_server(name, server)
    except ConfigError as error:
        return _Row(name, kind, target, server.enabled, "broken", None, problem=error.message)
    record = read_stored(home, name, server)
    state = "on" if server.enabled else "off"
    if record is None:
        return _Row(name, kind, target, server.enabled, state, None)
    since = _format_time(record.at_ms)
    if record.failure and server.enabled:
        state = "failed"
    if record.failure and not (record.tools or record.offers):
        return _Row(
            name, kind, target, server.enabled, state, None, known_since=since, problem=record.failure
        )
    listing = read_listing(name, server, record.catalogue)
    counts = len(listing.offered), len(listing.left_out)
    return _Row(name, kind, target, server.enabled, state, *counts, since, record.failure)


def _format_time(at_ms: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415 only here

    return iso(datetime.fromtimestamp(at_ms / 1000, UTC))


class _Add(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        original_args = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "--" in original_args:
                raise
            raise click.UsageError(
                f"there is no option {error.option_name}; if it belongs to the server's command, put --"
                " before that: whet mcp add NAME -- COMMAND ARGS",
                ctx,
            ) from error


@mcp.command("add", cls=_Add, short_help="Add or replace a server, and see what it offers.")
@click.argument("name")
@click.argument("command", nargs=-1)
@click.option("--url", default="", help="Reach a server over HTTP instead of starting one.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for --url.")
@click.option("--allow-http", is_flag=True, help="Headers with keys may go out unencrypted.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable for the command.")
@click.option("--cwd", default="", help="The folder to start the command in.")
@click.option("--timeout", "timeout_s", type=_SECONDS, default=None, help="Seconds that a call may take.")
@click.option(
    "--start-timeout", "start_timeout_s", type=_SECONDS, default=None, help="Seconds to get ready in."
)
@click.option("--allow", multiple=True, metavar="TOOL", help="Only these tools (a name or pattern).")
@click.option("--deny", multiple=True, metavar="TOOL", help="Not these tools (a name or pattern).")
@click.option("--write", "writes", multiple=True, metavar="FOLDER", help="A folder that it may change.")
@click.option("--no-network", is_flag=True, help="It may reach no host.")
@click.option("--no-test", is_flag=True, help="Do not reach it now.")
@home_and_json
def add(
    home: Home, name: str, command: tuple[str, ...], no_test: bool, as_json: bool, **options: Any
) -> None:
    """Add a server to config.yaml, or replace it, and start it once to see what it offers.

    Its command runs in the sandbox with a private folder and the network. It may read what its command line
    names. A server that can't be reached is added all the same, and the exit code is 1.

    \b
    whet mcp add notes -- python3 examples/mcp/notes.py ~/notes
    whet mcp add tickets --url https://mcp.example.com/mcp \\
      --header 'Authorization=Bearer ${TICKETS_TOKEN}'
    """
    if not SERVER_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a server",
            hint="at most 30 letters, digits, - and single _ between them",
        )
    absolute_command = command if options["cwd"] else _make_paths_absolute(command)
    folder = os.getcwd() if absolute_command != command else ""
    part = _build_entry(absolute_command, {**options, "cwd": options["cwd"] or folder})
    server = from_values(part, McpServerSettings)
    _check_settings(name, server)
    _warn_of_secrets(server)
    before = _servers(home).get(name)
    replaced = set_table_entry(home, _KEY, name, part)
    if before is None or before.url != server.url:
        delete_stored(home, name)
    reports = [] if no_test else run_on_loop(reach_all(home, {name: server}))
    if as_json:
        test = reports[0] if reports else None
        emit_json({"name": name, "replaced": replaced, "path": str(home.config), "test": test})
    else:
        click.echo(wrap_text(f"{name} is {'replaced' if replaced else 'added'} in {home.config}"))
        if folder:
            click.echo(
                wrap_text(f"it starts in {folder}, where its file is (--cwd DIR names another folder)")
            )
        for report in reports:
            show_briefly(report)
    end_if_failed(reports, as_json=as_json)


def _check_settings(name: str, server: McpServerSettings) -> None:
    check_server(name, server)
    if server.url and not re.match(r"https?://[^/\s]", server.url):
        raise ConfigError(f"{server.url[:200]!r} is not a url", hint="begin it with https://")


def _make_paths_absolute(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command with absolute paths in place of relative paths of existing files.

    A server may be started from any folder, and its sandbox opens the files that its command names. A word
    without a slash or a dot is a program or an option, even if a file has that name.
    """
    return tuple(
        os.path.abspath(part) if re.search(r"[/.]", part) and os.path.isfile(part) else part
        for part in command
    )


def _build_entry(command: Sequence[str], options: dict[str, Any]) -> dict[str, object]:
    """Return the server's entry for config.yaml."""
    program, *args = command or ("",)
    part: dict[str, object] = {"command": program, "args": args}
    for key in ("url", "cwd", "timeout_s", "start_timeout_s", "allow_http"):
        part[key] = options[key]
    for key in ("env", "headers"):
        part[key] = dict(_parse_pair(text) for text in options[key])
    for key in ("allow", "deny"):
        part[key] = list(options[key])
    paths = [os.path.abspath(os.path.expanduser(path)) for path in options["writes"]]
    part["openings"] = [f"write {path}" for path in paths]
    part = {key: value for key, value in part.items() if value}
    return part | {"network": False} if options["no_network"] else part


def _parse_pair(text: str) -> tuple[str, str]:
    match = re.match(r"([^=:\s]+)\s*[=:]\s*(.*)", text, re.DOTALL)
    if match is None:
        raise click.UsageError(f"{text!r} is not NAME=VALUE", click.get_current_context())
    return match[1], match[2]


def _warn_of_secrets(server: McpServerSettings) -> None:
    for name, value in {**server.env, **server.headers}.items():
        if "${" not in value and holds_key(name, value):
            click.echo(
                f"warning: {name} stands in config.yaml as plain text; store it with"
                f" `whet config set SOME_TOKEN` and write ${{SOME_TOKEN}} instead",
                err=True,
            )


@mcp.command("remove")
@_name
@home_and_json
def remove(home: Home, name: str, as_json: bool) -> None:
    """Remove a server from config.yaml, its login, and the rules that let its tools run without a
    question."""
    _find_server(home, name)
    if not remove_table_entry(home, _KEY, name):
        raise NotFound(f"{name} is not in {home.config}", hint="is it set in WHET_MCP_SERVERS?")
    delete_stored(home, name)
    remove_folder(home, name)
    # A remaining rule would apply to the tools of a later server of this name.
    allowed = load(home, environ={}).settings.approval.allow
    rules = [rule for rule in allowed if rule.startswith(f"mcp__{name}__")]
    if rules:
        change_list(home, "approval.allow", (), rules)
    if as_json:
        return emit_json({"name": name, "removed": True, "rules": rules})
    click.echo(f"{name} is removed; running sessions keep its tools until they end")
    if rules:
        click.echo(wrap_text(f"removed from approval.allow, too: {', '.join(rules)}"))


@mcp.command("test", short_help="Reach servers and show their tools.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_server)
@home_and_json
def test(home: Home, names: tuple[str, ...], as_json: bool) -> None:
    """Connect to servers (by default all enabled ones) and show their tools; exit code 1 on a failure."""
    servers = {name: _find_server(home, name) for name in names} or {
        name: server for name, server in _servers(home).items() if server.enabled
    }
    reports = run_on_loop(reach_all(home, servers))
    if as_json:
        emit_json({"ok": all(report.ok for report in reports), "servers": reports})
    elif not reports:
        click.echo("no MCP servers; whet mcp add brings one")
    else:
        for report in reports:
            show(report)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


@mcp.command("trust", short_help="Let tools of a server run without a question.")
@_name
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@click.option("--remove", "removes", is_flag=True, help="Ask about them again.")
@home_and_json
def trust(home: Home, name: str, tools: tuple[str, ...], removes: bool, as_json: bool) -> None:
    """Let tools of a server (by default all its present ones) run without a question.

    Each is written to approval.allow by its whole name. A whole name covers tools that the server declares
    destructive, which a pattern like mcp__NAME__* does not; tools that the server adds later are not
    covered.
    """
    server = _find_server(home, name)
    record = read_stored(home, name, server)
    if record is None or not (record.tools or record.offers):
        raise ConfigError(f"what {name} offers is not known yet", hint=f"whet mcp test {name}")
    offered = {offer.spec.name: offer for offer in read_listing(name, server, record.catalogue).offered}
    full_names = {offer.own_name: full_name for full_name, offer in offered.items()}
    names = [full_names.get(tool, tool) for tool in tools] or list(offered)
    for full_name in names:
        if full_name not in offered:
            available = ", ".join(list(full_names)[:20])
            raise NotFound(f"{name} has no tool {full_name!r}", hint=f"it has: {available}")
    if removes:
        change_list(home, "approval.allow", (), names)
    else:
        change_list(home, "approval.allow", names, ())
        contents = {full_name: content_of(offered[full_name]) for full_name in names}
        AcceptedContents(home.root).accept_all(contents)
    if as_json:
        return emit_json({"name": name, "trusted": not removes, "tools": names})
    for full_name in names:
        claim = " (says that it may destroy something)" if offered[full_name].hints.destructive else ""
        click.echo(f"{full_name}: {'asked about again' if removes else 'runs without a question'}{claim}")


@mcp.command("login", short_help="Log in at a server.")
@_name
@click.option("--client-id", default="", help="A client registered with the authorization server.")
@click.option("--client-secret-env", default="", metavar="NAME", help="The variable with its secret.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--wait", "wait_s", default=300.0, show_default=True, help="Seconds to wait for you.")
@home_and_json
def login(
    home: Home, name: str, client_id: str, client_secret_env: str, no_browser: bool, **options: Any
) -> None:
    """Log in at a server: prints an address to open; the answer comes back to this machine."""
    from whet.mcp import login as stored_login  # noqa: PLC0415 - httpx2 costs 30 ms; only a login needs it
    from whet.mcp import oauth  # noqa: PLC0415 - as above
    from whet.mcp.challenge import read_challenge  # noqa: PLC0415 - as above

    server = _find_server(home, name)
    if not server.url:
        raise ConfigError(f"{name} is started by a command, so there is nothing to log in to")
    secrets = load_secrets(home, os.environ)
    if client_secret_env and not secrets.get(client_secret_env):
        raise ConfigError(
            f"{client_secret_env} is not set", hint=f"whet config set {client_secret_env} stores it in .env"
        )
    secret = secrets.get(client_secret_env, "") if client_secret_env else ""
    client = oauth.Client(client_id, secret, document=_settings(home).mcp.client_metadata_url)
    before = stored_login.read_tokens(home, name, server.url)
    challenge = read_challenge(home, name, server.url)
    earlier = oauth.Earlier(challenge, before.rights if before else ())

    def show(address: str) -> None:
        click.echo(f"Open this address to log in at {name}:\n\n{address}\n", err=options["as_json"])
        if not no_browser and os.environ.get("DISPLAY"):
            webbrowser.open(address)

    tokens = run_on_loop(
        oauth.log_in(server.url, client, show, SystemClock().unix_ms, options["wait_s"], earlier)
    )
    if tokens is not None:
        stored_login.write_tokens(home, name, tokens)
    if options["as_json"]:
        return emit_json(
            {"name": name, "logged_in": tokens is not None, "scope": tokens.scope if tokens else ""}
        )
    click.echo(f"logged in at {name}; whet mcp test {name}" if tokens else f"{name} wants no login")


@mcp.command("logout")
@_name
@home_and_json
def logout(home: Home, name: str, as_json: bool) -> None:
    """Forget the login at a server."""
    from whet.mcp.login import tokens_path  # noqa: PLC0415 as above

    _find_server(home, name)
    path = tokens_path(home, name)
    had_login = path.exists()
    path.unlink(missing_ok=True)
    if as_json:
        return emit_json({"name": name, "logged_out": had_login})
    click.echo(f"{name}: logged out" if had_login else f"{name}: there was no login")


@mcp.command("serve", short_help="Be an MCP server on stdin and stdout.")
@click.option("--no-ask", is_flag=True, help="Offer only reading, not the agent.")
@click.option(
    "--workspace", type=click.Path(exists=True, file_okay=False), default=None, help="The agent's folder."
)
@click.pass_obj
def serve(home: Home, no_ask: bool, workspace: str | None) -> None:
    """Be an MCP server on stdin and stdout: search sessions, read memory and skills, ask the agent.

    \b
    {"mcpServers": {"whet": {"command": "whet", "args": ["mcp", "serve"]}}}
    """
    from whet.cli.mcp_servers.serve import run  # noqa: PLC0415 only this command runs an agent

    run(home, {"tools.workspace": workspace} if workspace else {}, asks=not no_ask)
