"""`whet version`: print the version."""

from __future__ import annotations

import platform

import click

from whet import __version__
from whet.terminal.output import emit_json, json_option


@click.command(help="Print the version; with --json also Python's and the system's.")
@json_option
def version(as_json: bool = False) -> None:
    """Print the version."""
    if as_json:
        return emit_json(
            {"whet": __version__, "python": platform.python_version(), "system": platform.platform()}
        )
    click.echo(f"whet {__version__}")
