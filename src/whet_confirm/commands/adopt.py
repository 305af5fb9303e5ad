"""`whet confirm adopt`: have another agent's tool calls wait for a person, by a setting in its own file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet_confirm.client import ConfirmClient
from whet_confirm.commands.files import find_program
from whet_confirm.commands.waiting import timeout_option
from whet_confirm.hook import HOOK_AGENTS
from whet_confirm.resume import MAX_KEEP_S

if TYPE_CHECKING:
    from whet_confirm.adopt.adoption import Adoption
    from whet_confirm.adopt.agents import HookCommand


@click.command()
@click.argument("name", type=click.Choice(HOOK_AGENTS), metavar="AGENT")
@click.option("--check", "is_check", is_flag=True, help="Only check it; exits with 1 if calls don't wait.")
@click.option("--remove", "is_removal", is_flag=True, help="Restore the setting, byte for byte.")
@click.option("--match", "patterns", multiple=True, metavar="GLOB", help="Hold only these tools.")
@timeout_option()
@click.option(
    "--keep",
    "keep_s",
    type=click.IntRange(0, MAX_KEEP_S),
    default=0,
    metavar="SECONDS",
    help="Let requests wait so long, although the agent ends: see `whet confirm resume`.",
)
@click.pass_obj
def adopt(
    home: Home, name: str, is_check: bool, is_removal: bool, patterns: tuple[str, ...], **waits: int
) -> None:
    """Have an agent's tool calls wait for a person: write the hook into the agent's own settings.

    \b
    whet confirm adopt claude-code
    whet confirm adopt codex --check
    whet confirm adopt gemini --remove

    AGENT is claude-code, codex, gemini, qwen-code, copilot, cursor, opencode or pi.
    """
    adoption, command = open_adoption(home, name, patterns, **waits)
    agent, path = adoption.agent, adoption.path
    if is_removal:
        is_exact = adoption.remove()
        note = "" if is_exact else " It had been rewritten, so only the setting was removed."
        return click.echo(f"Removed the setting from {path}.{note}")
    if not is_check:
        adoption.write(command)
        click.echo(f"Wrote the hook for {agent.title} into {path}. Restart {agent.title}.")
    problem = run_on_loop(_find_service_problem())
    problems = [*adoption.find_problems(command), *([problem] if problem else [])]
    for line in problems:
        click.echo(f"problem: {line}")
    if problems:
        sys.exit(1 if is_check else 0)
    click.echo(f"Calls of {agent.title} wait for a person. Undo: whet confirm adopt {name} --remove")


def open_adoption(
    home: Home, name: str, patterns: tuple[str, ...] = (), **waits: int
) -> tuple[Adoption, HookCommand]:
    """Return an agent's setting, and the command that it runs before a tool."""
    # They parse settings of several formats, which no other command needs.
    from whet_confirm.adopt.adoption import Adoption  # noqa: PLC0415
    from whet_confirm.adopt.agents import AGENTS, HookCommand, kept_environ  # noqa: PLC0415

    agent = AGENTS[name]
    path = agent.path(os.environ, Path.home())
    adoption = Adoption(agent, path, home.root / "confirm" / "adopted")
    return adoption, HookCommand(name, find_program(), kept_environ(), patterns, agent.free, **waits)


async def _find_service_problem() -> str:
    """Return why the hook could not ask, or an empty string."""
    async with ConfirmClient() as client:
        try:
            await client.list(limit=1)
        except WhetError as error:
            return error.message
    return ""
