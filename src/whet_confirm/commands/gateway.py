"""`whet confirm gateway`: hold the tool calls of any MCP client until a person has decided."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet_confirm.commands.waiting import timeout_option

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@click.option("--name", default="", help="The server's name in requests; default the program's name.")
@click.option(
    "--rules", "rules_path", type=click.Path(path_type=Path, dir_okay=False), help="Which calls wait (TOML)."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME: VALUE",
    help="For a URL; $NAME is a variable's value.",
)
@timeout_option()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGS]...|URL")
@click.pass_obj
def gateway(  # noqa: PLR0913 - one for each option
    home: Home,
    command: tuple[str, ...],
    url: str,
    name: str,
    rules_path: Path | None,
    headers: tuple[str, ...],
    timeout_s: int,
) -> None:
    """Run an MCP server, or reach one at a URL, and hold its tool calls until a person has decided on them.

    \b
    whet confirm gateway -- npx -y @modelcontextprotocol/server-filesystem /srv
    whet confirm gateway --rules gateway.toml -- uvx mcp-server-git
    whet confirm gateway --header 'Authorization: Bearer $KEY' -- https://mcp.example.org/mcp
    """
    from whet_confirm.client import ConfirmClient  # noqa: PLC0415 only this command needs these modules
    from whet_confirm.gateway.gate import ToolGate  # noqa: PLC0415
    from whet_confirm.gateway.pins import ToolPins  # noqa: PLC0415
    from whet_confirm.gateway.program import ProgramServer  # noqa: PLC0415
    from whet_confirm.gateway.remote import RemoteServer  # noqa: PLC0415
    from whet_confirm.gateway.rules import read_rules  # noqa: PLC0415
    from whet_confirm.gateway.stdio import StdioGateway  # noqa: PLC0415

    if not command:
        raise ConfigError("name the MCP server's program", hint="whet confirm gateway -- PROGRAM ARGS")
    key = hashlib.sha256("\0".join((name, *command)).encode()).hexdigest()[:16]
    pins = ToolPins(home.root / "confirm" / "gateway" / f"{key}.json")
    rules = read_rules(rules_path)

    target = command[0]
    is_remote = target.lower().startswith(("http://", "https://"))
    if headers and not is_remote:
        raise ConfigError(f"--header is only for a URL; {target} is a program", hint="leave out --header")
    header_values = dict(map(_read_header, headers))
    if is_remote and len(command) > 1:
        raise ConfigError("a URL has no arguments", hint="whet confirm gateway -- URL")
    default_name = urlsplit(target).hostname or "" if is_remote else Path(target).name

    async def run() -> int:
        async with ConfirmClient(url) as client:
            gate = ToolGate(name or default_name, client, rules, pins, timeout_s)
            server = RemoteServer(target, header_values) if is_remote else ProgramServer(command)
            return await StdioGateway(gate, server).run()

    code = run_on_loop(run())
    if code:
        ending = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        click.echo(f"the MCP server {target} ended {ending}", err=True)
    sys.exit(128 - code if code < 0 else code)


def _read_header(text: str) -> tuple[str, str]:
    """Return a header's name and value, with variables filled in so that keys stay out of the process list.

    Raises ConfigError if the text is not a header, or if a variable is not set.
    """
    name, colon, value = _VARIABLE.sub(_read_variable, text).partition(":")
    if not colon or not name.strip() or not f"{name}{value}".isprintable():
        raise ConfigError("a header is NAME: VALUE", hint="--header 'Authorization: Bearer $KEY'")
    return name.strip(), value.strip()


def _read_variable(match: re.Match[str]) -> str:
    name = match[1] or match[2] or ""
    if value := os.environ.get(name):
        return value
    hint = f"export {name}=VALUE" if name.isidentifier() else "write $NAME or ${NAME}"
    raise ConfigError(f"the variable {name} of --header is not set", hint=hint)
