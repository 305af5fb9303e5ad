"""Run a slash command without a terminal (in a chat or an editor) and collect its output and requests.

The interface handles the collected lines, the turns to start and the request for a new session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from whet.agent.session import Session
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.sessions import SessionOpener
from whet.app.conversations.slash import Commands, SlashCommand
from whet.app.services import Services
from whet.contract.errors import WhetError
from whet.contract.events import Compaction, Emit, Event, Notice
from whet.memory.service import LearningService


def remote_commands(shared: Iterable[SlashCommand[Any]], without: Container[str] = ()) -> Commands[Any]:
    """Return the terminal's commands that affect only their own conversation, except those in `without`."""
    shared = tuple(shared)
    missing: dict[str, str] = {}
    for command in shared:
        if command.local or command.name in without:
            reason = command.local or "a session is begun outside of the conversation"
            missing.update(dict.fromkeys((command.name, *command.aliases), reason))
    commands: Commands[Any] = Commands(missing)
    for command in shared:
        if command.remote and command.name not in without:
            commands.add(command)
    return commands


def find_command(commands: Commands[Any], name: str, root: Path | None, workspace: Path) -> SlashCommand[Any]:
    """Return the command of the table, or the prompt file of that name in the home `root` (None: skip it) or
    in the workspace. Raises NotFound."""
    if name not in commands:
        from whet.app.conversations.own_commands import find_prompt_command  # noqa: PLC0415 - few have any

        prompt = find_prompt_command(name, root, workspace)
        if prompt is not None:
            return prompt.as_slash()
    return commands.get(name)


class CommandReply:
    """The session as a command may use it, with the output and requests of the command.

    `lines` are its output. `sends` are the messages to start turns with (None: continue the unfinished
    turn). `begins` is the title and template of a new session to continue in, or None.
    """

    def __init__(
        self,
        hosted: SessionHost,
        session: Session,
        commands: Commands[Any],
        learning: LearningService,
        columns: int,
    ) -> None:
        self.services: Services = hosted.services
        self.opener: SessionOpener = hosted.opener
        self.session = session
        self.commands = commands
        self.learning = learning
        self.lines: list[str] = []
        self.sends: list[str | None] = []
        self.begins: tuple[str, str] | None = None
        self._hosted = hosted
        self._columns = columns
        self._tasks: list[Callable[[Emit], Awaitable[None]]] = []

    async def run(self, command: SlashCommand[Any], argument: str, emit: Emit | None = None) -> None:
        """Run a command and the tasks that it starts. `emit` gets the events of the tasks; without it they
        become lines. Raises WhetError."""
        await command.run(self, argument)
        for task in self._tasks:
            await task(emit or self._add_event)

    def say(self, text: str, style: str = "") -> None:
        """Add a line to the output."""
        self.lines.append(text)

    async def page(self, text: str) -> None:
        """Add the lines of a text to the output."""
        self.lines += text.rstrip("\n").split("\n")

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Return None, because the person can't pick from a list here."""
        return None

    def width(self) -> int:
        """Return how many columns a panel may have."""
        return self._columns

    def send(self, text: str | None) -> None:
        """Start a turn when the command is done."""
        self.sends.append(text)

    def start_task(self, label: str, task: Callable[[Emit], Awaitable[None]]) -> None:
        """Run a long task when the command is done. The label is not shown here."""
        self._tasks.append(task)

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Continue in a new session when the command is done."""
        self.begins = (title, warm)

    async def switch_model(self, model: str) -> None:
        """Have another model answer this session. Raises WhetError."""
        await self._hosted.switch_model(self.session, model)

    async def switch_to(self, session: Session) -> None:
        """Raise WhetError: another session may belong to another person."""
        raise WhetError("a command can't move this conversation to another session")

    def leave(self) -> None:
        """Do nothing: a conversation here has no end."""

    def _add_event(self, event: Event) -> None:
        if isinstance(event, Compaction):
            self.say(f"{event.messages_before} messages became {event.messages_after}")
        elif isinstance(event, Notice):
            self.say(event.text)
