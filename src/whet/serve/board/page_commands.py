"""Run slash commands from a session's page: the terminal's commands that affect only their session, and
`/goal`.

The page shows the output, which is not part of the conversation. Prompt files of the home and the workspace
are commands, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.own_commands import list_prompt_commands
from whet.app.conversations.slash import SlashCommand, announce
from whet.app.conversations.slash_output import CommandReply, find_command, remote_commands

_COLUMNS = 100
_PAGES = ("new", "warm", "plan")  # the page itself offers these
_GOAL = ("goal", "Have a worker pursue it until a check proves that it is done: TEXT --verify CMD.")
_PLAN = ("plan", "Have it only read and plan: TEXT, steps, go or off.")


class CommandOutcome(msgspec.Struct, frozen=True):
    """The output of a command, and the messages to start turns with (None: continue the unfinished turn)."""

    output: str
    sends: tuple[str | None, ...] = ()


class PageCommands:
    """The commands of every session's page. `shared` are the terminal's."""

    def __init__(self, hosted: SessionHost, shared: Sequence[SlashCommand[Any]]) -> None:
        self._hosted = hosted
        self._commands = remote_commands(shared, without=_PAGES)

    def list_names(self) -> list[tuple[str, str]]:
        """Return the name and the help of each command, for completion."""
        services = self._hosted.services
        prompts = list_prompt_commands(services.home.root, services.workspace)
        own = [(prompt.name, prompt.description) for prompt in prompts if prompt.name not in self._commands]
        return [_GOAL, _PLAN, *((command.name, command.help) for command in self._commands), *own]

    async def run(self, session_id: str, typed: tuple[str, str]) -> CommandOutcome:
        """Run a command, given as name and argument, between two turns of a session. Raises WhetError; for an
        unknown command, it suggests similar ones."""
        name, argument = typed
        if name == "goal":
            return await self._run_goal(argument)
        hosted = self._hosted
        async with hosted.using(session_id) as session:
            command = find_command(self._commands, name, hosted.services.home.root, session.workspace)
            await announce(hosted.services.plugins, command, typed, session_id)
            reply = CommandReply(
                hosted, session, self._commands, hosted.services.learning.owner_service, _COLUMNS
            )
            await reply.run(command, argument)
        return CommandOutcome("\n".join(reply.lines), tuple(reply.sends))

    async def _run_goal(self, argument: str) -> CommandOutcome:
        from whet.goals.queue import find_goal, queue_goal, stop_goal  # noqa: PLC0415 - few pages have goals
        from whet.goals.text import parse_goal, result_text  # noqa: PLC0415 - the same

        services = self._hosted.services
        if argument in ("", "show", "stop"):
            report = (
                await stop_goal(services, "") if argument == "stop" else (await find_goal(services, ""))[1]
            )
            return CommandOutcome(result_text(report) if report is not None else "It waits for a worker.")
        schedule = await queue_goal(services, parse_goal(argument))
        return CommandOutcome(f"A worker begins with {schedule.name}. /goal shows it, /goal stop ends it.")
