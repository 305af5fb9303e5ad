"""Run slash commands in an editor: those of the terminal, except for those that create or choose sessions.

The editor does that itself. A command runs between the turns of its session. Its output is the answer to the
prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.own_commands import list_prompt_commands
from whet.app.conversations.slash import SlashCommand, announce, parse
from whet.app.conversations.slash_output import CommandReply, find_command, remote_commands
from whet.contract.errors import WhetError
from whet.contract.events import Emit

_COLUMNS = 78
_SESSION_COMMANDS = ("new", "warm")  # they begin sessions, which the editor does


class EditorCommands:
    """The commands of all sessions. `shared` are the terminal's commands."""

    def __init__(self, shared: Sequence[SlashCommand[Any]]) -> None:
        self._commands = remote_commands(shared, without=_SESSION_COMMANDS)

    def parse(self, text: str) -> tuple[str, str] | None:
        """Return the command's name and argument, or None if the prompt is a message."""
        return parse(text.strip())

    async def run(
        self, hosted: SessionHost, session_id: str, typed: tuple[str, str], emit: Emit
    ) -> tuple[str, list[str | None]]:
        """Run a command that `parse` returned. Returns its output or error, and messages to start turns
        with."""
        name, argument = typed
        try:
            async with hosted.using(session_id) as session:
                command = find_command(self._commands, name, hosted.services.home.root, session.workspace)
                await announce(hosted.services.plugins, command, typed, session_id)
                reply = CommandReply(
                    hosted, session, self._commands, hosted.services.learning.owner_service, _COLUMNS
                )
                await reply.run(command, argument, emit)
            if reply.begins is not None:
                raise WhetError("the editor begins sessions", hint="open a new thread there")
        except WhetError as error:
            return f"{error.message}. {error.hint}".strip(), []
        text = "\n".join(reply.lines)
        return (f"```\n{text}\n```" if "\n" in text else text), reply.sends

    def list_available(self, root: Path, workspace: Path) -> list[AvailableCommand]:
        """Return the commands in the protocol's format, with the prompt files of a home and a workspace."""
        prompts = [command.as_slash() for command in list_prompt_commands(root, workspace)]
        commands = [*self._commands, *(prompt for prompt in prompts if prompt.name not in self._commands)]
        return [
            AvailableCommand(name=command.name, description=command.help, input=_describe_input(command))
            for command in commands
        ]


def _describe_input(command: SlashCommand[Any]) -> AvailableCommandInput | None:
    if not command.argument:
        return None
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=command.argument))
