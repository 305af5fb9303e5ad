"""`whet hooks`: list the shell hooks of this folder, and accept or refuse those of the repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import HookSettings
from whet.contract.errors import ConfigError, NotFound
from whet.hooks.files import HookFile
from whet.hooks.repository import accept, is_accepted, read_repository_hooks, refuse
from whet.terminal.output import emit, json_option, size
from whet.terminal.wording import exact, printable


class _HookRow(msgspec.Struct, frozen=True):
    name: str
    event: str
    tools: str
    command: str
    timeout_s: float
    origin: str
    runs: bool


@click.group("hooks", invoke_without_command=True, help="See the shell hooks, and accept a repository's.")
@json_option
@click.pass_context
def hooks(context: click.Context, as_json: bool) -> None:
    """List the hooks of the home and of this folder."""
    if context.invoked_subcommand is not None:
        return
    home: Home = context.obj
    workspace = _find_workspace(home)
    rows = _list_rows(load(home, {}, environ=os.environ).settings.hooks.commands, "home", runs=True)
    repository = read_repository_hooks(workspace)
    if repository is not None:
        rows += _list_rows(repository.hooks, "repository", runs=is_accepted(home, repository))
    emit([msgspec.to_builtins(row) for row in rows], _format_text(rows), as_json=as_json)


def _format_text(rows: list[_HookRow]) -> str:
    lines: list[str] = []
    for row in rows:
        state = "" if row.runs else "  (not accepted: it does not run)"
        trigger = f"{row.event} {row.tools}".strip()
        lines.append(printable(f"{row.name}  {trigger}  {row.command}{state}"))
    if not rows:
        lines.append("no hooks; hooks.commands.NAME in config.yaml with event and command makes one")
    if any(not row.runs for row in rows):
        lines.append("`whet hooks accept` lets the repository's run")
    return "\n".join(lines)


@hooks.command("accept")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def accept_command(home: Home, yes: bool) -> None:
    """Let this repository's hooks run, exactly as they are now."""
    workspace = _find_workspace(home)
    repository = read_repository_hooks(workspace)
    if repository is None or not repository.hooks:
        raise NotFound(f"{workspace} has no .whet/hooks.json", hint="hooks of your own stand in config.yaml")
    for row in _list_rows(repository.hooks, "repository", runs=False):
        writes = "  (may write this folder)" if repository.hooks[row.name].writes else ""
        click.echo(exact(f"{row.name}  {row.event} {row.tools}".rstrip() + f"{writes}\n    {row.command}"))
    for file in repository.files:  # this content is accepted, even if a file changes during the question
        click.echo(_show_file(file))
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("nobody is there to say yes", hint="run it at a terminal, or with --yes")
        if not click.confirm("Let these commands run, in the sandbox, whenever you work here?"):
            click.echo("nothing was changed")
            return
    accept(home, repository)
    click.echo("accepted; a change of these hooks or of their scripts asks again")


def _show_file(file: HookFile) -> str:
    name = exact(file.name.replace("\n", "\\n"))
    if file.text is None:
        return f"\n--- {name}: {size(file.size_bytes)}, not shown: too large or not text"
    return f"\n--- {name}\n{exact(file.text)}".rstrip("\n")


@hooks.command("refuse")
@click.pass_obj
def refuse_command(home: Home) -> None:
    """Withdraw the acceptance of this repository's hooks."""
    click.echo("taken back" if refuse(home, _find_workspace(home)) else "nothing was accepted here")


def _list_rows(commands: Mapping[str, HookSettings], origin: str, *, runs: bool) -> list[_HookRow]:
    return [
        _HookRow(name, hook.event, hook.tools, hook.command, hook.timeout_s, origin, runs)
        for name, hook in commands.items()
    ]


def _find_workspace(home: Home) -> Path:
    settings = load(home, {}, environ=os.environ).settings
    return Path(settings.tools.workspace or os.getcwd()).expanduser().absolute()
