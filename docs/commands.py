"""Write docs/commands.md: the help of every command, as the program prints it.

    PYTHONPATH=src python docs/commands.py          writes the page
    PYTHONPATH=src python docs/commands.py --check  exit code 1 where the page is stale

A command whose module is not in this checkout is left out. Knows no command by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from whet.cli.group import whet
from whet.contract.errors import NotFound

PAGE = Path(__file__).with_name("commands.md")
WIDTH = 88
HEAD = """\
# Commands

What `--help` says, written by `docs/commands.py`; a test fails when this page is stale. The tasks that the
commands serve: [chat](chat.md), [providers](providers.md), [sessions and settings](sessions.md).
"""


def page() -> str:
    """Give the whole page."""
    sections = [f"## {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in helps(whet, "whet", None)]
    return "\n".join([HEAD, *sections])


def helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """Give the name and the help of a command and of all below it, depth first."""
    context = click.Context(
        command,
        parent=parent,
        info_name=name.rsplit(" ", 1)[-1],
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield name, command.get_help(context)
    if not isinstance(command, click.Group):
        return
    for below in command.list_commands(context):
        try:
            inner = command.get_command(context, below)
        except NotFound:
            continue
        if inner is not None:
            yield from helps(inner, f"{name} {below}", context)


def main() -> int:
    """Write the page, or say whether it is stale; give the exit code."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        is_stale = not PAGE.exists() or PAGE.read_text("utf-8") != wanted
        sys.stdout.write("docs/commands.md is stale: python docs/commands.py\n" if is_stale else "")
        return int(is_stale)
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
