"""`whet acp`: the agent inside an editor, by the Agent Client Protocol on standard input and output."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import click

from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.cli.launch import ChatOptions, load_settings, model_flags, model_options
from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.contract.errors import ConfigError


@click.command(
    "acp",
    epilog='Example (Zed): "agent_servers": {"Whet": {"type": "custom", "command": "whet", "args": ["acp"]}}',
)
@click.option("--approvals", type=click.Choice(["ask", "auto", "deny"]), help="The mode sessions begin in.")
@click.option("--toolsets", metavar="A,B", help="Only these groups of tools.")
@model_options
@click.pass_obj
def acp(home: Home, /, **values: Any) -> None:
    """Serve an editor that speaks the Agent Client Protocol; the editor starts this itself.

    It needs the extra acp: pip install 'whet-agent[acp]'
    """
    if importlib.util.find_spec("acp") is None:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError("the editor protocol is not installed", hint=install_command("acp"))
    if sys.stdin.isatty():
        raise ConfigError(
            "this is for an editor to start, not for a terminal",
            hint="name `whet acp` as the agent in your editor's settings",
        )
    flags = model_flags(values) | {"approval.mode": values["approvals"], "tools.toolsets": values["toolsets"]}
    options = ChatOptions(home=home, flags=flags)
    # imported only now: it needs the extra, and pydantic takes 0.25 s to import
    from whet.editors.serve import serve  # noqa: PLC0415

    run_on_loop(serve(home, lambda: load_settings(options, None), SLASH_COMMANDS))
