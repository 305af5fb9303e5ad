"""Slash commands in an editor: the terminal's own, but for those that begin or choose sessions.

That the editor does itself. A command works on one session between its turns; what it says is the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from whet.agent.session import Session
from whet.app.build import App
from whet.app.hosted import Hosted
from whet.app.slash import Command, Commands, parse
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event
from whet.memory.desk import Desk

_WIDTH = 78
_EDITORS = ("new", "warm")


class EditorChat:
    """What a command may do with a session; what it says is gathered."""

    def __init__(self, hosted: Hosted, session: Session, commands: Commands[Any]) -> None:
        self.app: App = hosted.app
        self._hosted = hosted
        self.session = session
        self.commands = commands
        self.desk: Desk = hosted.app.learning.desk
        self.lines: list[str] = []
        self.works: list[Callable[[Callable[[Event], None]], Awaitable[None]]] = []
        self.sends: list[str | None] = []

    def say(self, text: str, style: str = "") -> None:
        """Add a line to what is said."""
        self.lines.append(text)

    def width(self) -> int:
        """The columns of a panel."""
        return _WIDTH

    def send(self, text: str | None) -> None:
        """Begin a turn when the command is done."""
        self.sends.append(text)

    def work(self, doing: str, work: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Do something long when the command is done."""
        self.works.append(work)

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Refuse: the editor begins sessions."""
        raise WhetError("the editor begins sessions", hint="open a new thread there")

    async def switch_model(self, model: str) -> None:
        """Have another model answer this session."""
        await self._hosted.switch_model(self.session, model)

    async def switch_to(self, session: Session) -> None:
        """Refuse: the editor opens sessions."""
        raise WhetError("the editor opens sessions", hint="open it in its list of threads")

    def leave(self) -> None:
        """Do nothing: the editor ends sessions."""


class Commander:
    """The commands of every session. `shared` are the terminal's."""

    def __init__(self, shared: Sequence[Command[Any]]) -> None:
        self._commands: Commands[Any] = Commands()
        for command in shared:
            if command.remote and command.name not in _EDITORS:
                self._commands.add(command)

    def parse(self, text: str) -> tuple[str, str] | None:
        """Give a prompt's command and the rest; None for a message."""
        return parse(text.strip())

    async def run(
        self, hosted: Hosted, session_id: str, what: tuple[str, str], emit: Emit
    ) -> tuple[str, list[str | None]]:
        """Run a command; gives what it says, an error too, and the messages that it begins turns with."""
        try:
            command = self._commands.get(what[0])
            async with hosted.using(session_id) as session:
                chat = EditorChat(hosted, session, self._commands)
                await command.run(chat, what[1])
                for work in chat.works:
                    await work(emit)
        except WhetError as error:
            return f"{error.message}. {error.hint}".strip(), []
        text = "\n".join(chat.lines)
        return (f"```\n{text}\n```" if "\n" in text else text), chat.sends

    def available(self) -> list[AvailableCommand]:
        """List them as the protocol does."""
        return [
            AvailableCommand(name=one.name, description=one.help, input=_input(one.argument))
            for one in self._commands
        ]


def _input(argument: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=argument)) if argument else None
