"""Slash commands in a chat: the terminal's own, as far as they reach no further than the conversation, and
the gateway's: /stop, /approve, /deny.

A command works on the session between turns; one that works at any time sees it while a turn runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from whet.agent.session import Session
from whet.app.build import App
from whet.app.slash import Command, Commands, parse
from whet.contract.errors import WhetError
from whet.contract.events import Compaction, Event, Notice
from whet.gateway.channel import Incoming
from whet.gateway.conversations import Conversation
from whet.gateway.router import Person
from whet.memory.desk import Desk
from whet.store.chats import Chat

_WIDTH = 60
_MARKS = {"once": "1", "session": "s", "always": "a"}


class GatewayChat:
    """What a command may do with a conversation; its text goes back as one message."""

    def __init__(
        self, conversation: Conversation, session: Session, commands: Commands[Any], desk: Desk
    ) -> None:
        self.app: App = conversation.parts.app
        self._hosted = conversation.parts.hosted
        self.session = session
        self.commands = commands
        self.desk = desk
        self.lines: list[str] = []
        self.works: list[Callable[[Callable[[Event], None]], Awaitable[None]]] = []
        self.begins: tuple[str, str] | None = None
        self.sends: list[str | None] = []

    def say(self, text: str, style: str = "") -> None:
        """Add a line to the reply."""
        self.lines.append(text)

    def width(self) -> int:
        """About the columns of a telephone."""
        return _WIDTH

    def send(self, text: str | None) -> None:
        """Begin a turn when the command is done."""
        self.sends.append(text)

    def work(self, doing: str, work: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Do something long when the command is done."""
        self.works.append(work)

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Go on in a new session when the command is done."""
        self.begins = (title, warm)

    async def switch_model(self, model: str) -> None:
        """Have another model answer this conversation."""
        await self._hosted.switch_model(self.session, model)

    async def switch_to(self, session: Session) -> None:
        """Refuse: sessions are not chosen by their id here, they may be somebody else's."""
        raise WhetError("a conversation can't be moved to another session from here")

    def leave(self) -> None:
        """Do nothing: a chat has no end."""

    def hear(self, event: Event) -> None:
        """Take what happens in long work."""
        if isinstance(event, Compaction):
            self.say(f"{event.messages_before} messages became {event.messages_after}")
        elif isinstance(event, Notice):
            self.say(event.text)


class Commander:
    """The commands of every conversation. `shared` are the terminal's."""

    def __init__(self, shared: Sequence[Command[Any]]) -> None:
        self._commands: Commands[Any] = Commands()
        self._own = {"stop": self._stop, "approve": self._approve, "deny": self._deny}
        for command in shared:
            if command.remote:
                self._commands.add(command)
        for name, text, argument in (
            ("stop", "Stop what is being done, and drop what waits.", ""),
            ("approve", "Allow what waits for a decision.", "[once|session|always]"),
            ("deny", "Deny what waits for a decision.", ""),
        ):
            self._commands.add(Command(name, text, _never, argument, anytime=True, remote=True))

    def parse(self, update: Incoming) -> tuple[str, str] | None:
        """Give a message's command and the rest."""
        return None if update.files else parse(update.text.strip())

    async def run(self, conversation: Conversation, name: str, rest: str) -> None:
        """Run a command and post what it says. Raises WhetError to say no."""
        if name == "start":  # what Telegram sends when somebody opens a bot
            name = "help"
        command = self._commands.get(name)
        chat = await conversation.chat()
        person = await conversation.person(chat)
        if person is None:
            return
        if (own := self._own.get(command.name)) is not None:
            await conversation.say(await own(conversation, person, rest))
            return
        if conversation.is_running and not command.anytime:
            raise WhetError(f"/{command.name} waits for the end of this turn", hint="/stop stops it")
        if command.name == "model" and rest and not person.approves:
            raise WhetError("you may not change the model here")
        await self._shared(conversation, chat, person, (command, rest))

    async def _shared(
        self, conversation: Conversation, chat: Chat, person: Person, what: tuple[Command[Any], str]
    ) -> None:
        command, rest = what
        parts = conversation.parts
        session_id = await conversation.session_id(chat)
        desk = parts.app.learning.desk_of(parts.router.profile(person, chat.place))
        session = parts.hosted.opened(session_id) if conversation.is_running else None
        if session is not None:
            control = GatewayChat(conversation, session, self._commands, desk)
            await command.run(control, rest)
        else:
            async with parts.hosted.using(session_id) as session:
                control = GatewayChat(conversation, session, self._commands, desk)
                await command.run(control, rest)
                for work in control.works:
                    await work(control.hear)
        if control.begins is not None:
            title, warm = control.begins
            await conversation.begin_session(await conversation.chat(), title, warm)
        if control.lines:
            text = "\n".join(control.lines)
            await conversation.say(f"```\n{text}\n```" if _is_table(text) else text)
        for text in control.sends:
            conversation.begin_with(text)

    async def _stop(self, conversation: Conversation, person: Person, rest: str) -> str:
        ran, dropped = await conversation.stop()
        waited = f" {dropped} messages that waited were dropped." if dropped else ""
        return f"{'Stopping.' if ran else 'Nothing was running.'}{waited}"

    async def _approve(self, conversation: Conversation, person: Person, rest: str) -> str:
        mark = _MARKS.get(rest or "once")
        if mark is None:
            raise WhetError(f"{rest!r} is no way to allow", hint="/approve once, session or always")
        return conversation.parts.asking.decide(conversation.chat_id, mark, may=person.approves)

    async def _deny(self, conversation: Conversation, person: Person, rest: str) -> str:
        return conversation.parts.asking.decide(conversation.chat_id, "n", may=person.approves)


def _is_table(text: str) -> bool:
    return text.count("\n") > 1 and "  " in text


async def _never(chat: Any, rest: str) -> None:
    """Stand in the list of commands; the gateway runs its own."""
