"""`whet version`: what is installed, for a person or as JSON."""

from __future__ import annotations

import platform

import click

from whet import __version__
from whet.cli.output import emit_json


@click.command(help="Print the version; with --json also Python's and the system's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def version(as_json: bool = False) -> None:
    """Print the version."""
    if as_json:
        emit_json({"whet": __version__, "python": platform.python_version(), "system": platform.platform()})
    else:
        click.echo(f"whet {__version__}")
