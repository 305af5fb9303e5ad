"""`whet confirm gateway`: hold the tool calls of any MCP client until a person has decided."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import click

from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.contract.errors import ConfigError


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@click.option("--name", default="", help="The server's name in requests; default the program's name.")
@click.option(
    "--rules", "rules_path", type=click.Path(path_type=Path, dir_okay=False), help="Which calls wait (TOML)."
)
@click.option("--timeout", "timeout_s", default=300, show_default=True, help="Seconds to wait for a person.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGS]...")
@click.pass_obj
def gateway(
    home: Home, command: tuple[str, ...], url: str, name: str, rules_path: Path | None, timeout_s: int
) -> None:
    """Run an MCP server and hold its tool calls until a person has decided on them.

    \b
    whet confirm gateway -- npx -y @modelcontextprotocol/server-filesystem /srv
    whet confirm gateway --rules gateway.toml -- uvx mcp-server-git
    """
    from whet_confirm.client import ConfirmClient  # noqa: PLC0415 only this command needs these modules
    from whet_confirm.gateway.gate import ToolGate  # noqa: PLC0415
    from whet_confirm.gateway.pins import ToolPins  # noqa: PLC0415
    from whet_confirm.gateway.rules import read_rules  # noqa: PLC0415
    from whet_confirm.gateway.stdio import StdioGateway  # noqa: PLC0415

    if not command:
        raise ConfigError("name the MCP server's program", hint="whet confirm gateway -- PROGRAM ARGS")
    key = hashlib.sha256("\0".join((name, *command)).encode()).hexdigest()[:16]
    pins = ToolPins(home.root / "confirm" / "gateway" / f"{key}.json")
    rules = read_rules(rules_path)

    async def run() -> int:
        async with ConfirmClient(url) as client:
            gate = ToolGate(name or Path(command[0]).name, client, rules, pins, timeout_s)
            return await StdioGateway(gate).run(command)

    sys.exit(run_on_loop(run()))
