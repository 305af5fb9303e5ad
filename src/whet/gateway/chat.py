"""Slash commands in a chat: those of the terminal that affect only the conversation, and the gateway's own.

Most commands wait for the end of a running turn. A command with `anytime` runs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.app.conversations.slash import SlashCommand, announce, parse
from whet.app.conversations.slash_output import CommandReply, find_command, remote_commands
from whet.contract.channels import Incoming
from whet.contract.errors import NotFound, WhetError
from whet.gateway import outbox
from whet.gateway.conversations import Conversation
from whet.gateway.router import ChatUser

_COLUMNS = 60  # about the width of a phone
_MARKS = {"once": "1", "session": "s", "always": "a", "show": "v"}


class ChatCommands:
    """Runs the commands of all conversations. `shared` are the terminal's commands."""

    def __init__(self, shared: Sequence[SlashCommand[Any]]) -> None:
        self._commands = remote_commands(shared)
        self._own = {
            "stop": self._stop,
            "approve": self._approve,
            "deny": self._deny,
            "missing": self._missing,
            "goal": self._goal,
        }
        for name, text, argument in (
            ("stop", "Stop what is being done, and drop what waits.", ""),
            ("approve", "Allow what waits for a decision.", "[NAME] [once|session|always|show]"),
            ("missing", "Show answers that may not have arrived.", ""),
            ("goal", "Work on something until a check proves it.", "TEXT [--verify CMD]"),
            ("deny", "Deny what waits for a decision.", "[NAME] [BECAUSE ...]"),
        ):
            self._commands.add(SlashCommand(name, text, _do_nothing, argument, anytime=True))

    def parse(self, update: Incoming) -> tuple[str, str] | None:
        """Return a message's command and its argument, or None if it is not a command."""
        return None if update.files else parse(update.text.strip())

    async def waits(self, conversation: Conversation, name: str) -> bool:
        """Return whether a command must wait for the end of a turn. An unknown command need not."""
        person = await conversation.record.person()
        try:
            return person is not None and not self._find(conversation, person, name).anytime
        except NotFound:
            return False

    async def run(self, conversation: Conversation, name: str, argument: str) -> None:
        """Run a command and post its output. Raises WhetError if it is refused."""
        person = await conversation.record.person()
        if person is None:
            return
        command = self._find(conversation, person, name)
        if (handler := self._own.get(command.name)) is not None:
            await conversation.record.say(await handler(conversation, person, argument))
            return
        if command.name == "model" and argument and not person.approves:
            raise WhetError("you may not change the model here")
        profile = conversation.parts.router.profile(person, conversation.record.place)
        if command.name == "inbox" and not (profile or person.approves):
            raise WhetError("this memory is somebody else's; only they decide on it")
        await self._run_terminal_command(conversation, person, command, (name, argument))

    def _find(self, conversation: Conversation, person: ChatUser, name: str) -> SlashCommand[Any]:
        """Return a command. The owner's prompt files are found only for people who use the owner's memory."""
        parts = conversation.parts
        is_owners = not parts.router.profile(person, conversation.record.place)
        root = parts.services.home.root if is_owners else None
        # Telegram sends /start when a person opens a bot
        return find_command(
            self._commands, "help" if name == "start" else name, root, parts.services.workspace
        )

    async def _run_terminal_command(
        self,
        conversation: Conversation,
        person: ChatUser,
        command: SlashCommand[Any],
        typed: tuple[str, str],
    ) -> None:
        argument = typed[1]
        parts, record = conversation.parts, conversation.record
        session_id = await record.session_id(person)
        await announce(parts.services.plugins, command, typed, session_id)
        learning = parts.services.learning.service_of(parts.router.profile(person, record.place))
        session = parts.hosted.find_open(session_id) if conversation.is_running else None
        if session is not None:
            reply = CommandReply(parts.hosted, session, self._commands, learning, _COLUMNS)
            await command.run(reply, argument)
        else:
            async with parts.hosted.using(session_id) as session:
                reply = CommandReply(parts.hosted, session, self._commands, learning, _COLUMNS)
                await reply.run(command, argument)
        if reply.begins is not None:
            title, warm = reply.begins
            await record.begin_session(person, title, warm)
        if reply.lines:
            text = "\n".join(reply.lines)
            await conversation.record.say(f"```\n{text}\n```" if is_table(text) else text)
        for text in reply.sends:
            conversation.begin_with(text)

    async def _stop(self, conversation: Conversation, person: ChatUser, argument: str) -> str:
        was_running, dropped = await conversation.stop()
        noun = "message that waited was" if dropped == 1 else "messages that waited were"
        note = f" {dropped} {noun} dropped." if dropped else ""
        return f"{'Stopping.' if was_running else 'Nothing was running.'}{note}"

    async def _missing(self, conversation: Conversation, person: ChatUser, argument: str) -> str:
        parts, chat_id = conversation.parts, conversation.record.chat.id
        now_ms = parts.clock.unix_ms()
        count = await parts.database.append(lambda db: outbox.resend_missing(db, chat_id, now_ms))
        return "That is all." if count else "Nothing is missing here."

    async def _goal(self, conversation: Conversation, person: ChatUser, argument: str) -> str:
        return await _run_goal_command(conversation, person, argument)

    async def _approve(self, conversation: Conversation, person: ChatUser, argument: str) -> str:
        name, option = conversation.parts.asking.split_name(_room(conversation), argument)
        mark = _MARKS.get(option or "once")
        if mark is None:
            raise WhetError(
                f"{option!r} is not a way to allow", hint="/approve once, session, always or show"
            )
        return _decide(conversation, person, mark, name)

    async def _deny(self, conversation: Conversation, person: ChatUser, argument: str) -> str:
        name, words = conversation.parts.asking.split_name(_room(conversation), argument)
        return _decide(conversation, person, "n", name, words)


async def _run_goal_command(conversation: Conversation, person: ChatUser, argument: str) -> str:
    from whet.goals.queue import find_goal, queue_goal, stop_goal  # noqa: PLC0415 - few chats have goals
    from whet.goals.text import parse_goal, result_text  # noqa: PLC0415 - the same

    services, location = conversation.parts.services, conversation.record.place
    if conversation.parts.router.profile(person, location) or not person.approves:
        raise WhetError("goals run with the owner's rights; only the owner begins them, alone with the bot")
    if argument in ("", "show"):
        _, report = await find_goal(services, "")
        return result_text(report) if report is not None else "It waits for a worker."
    if argument == "stop":
        stopped = await stop_goal(services, "")
        return result_text(stopped) if stopped is not None else "It was dropped before it began."
    schedule = await queue_goal(services, parse_goal(argument), f"{location.channel}:{location.chat}")
    return (
        f"A worker begins with {schedule.name}; you are told how it ends. /goal shows it, /goal stop ends it."
    )


def _decide(conversation: Conversation, person: ChatUser, mark: str, name: str, words: str = "") -> str:
    asking, room = conversation.parts.asking, _room(conversation)
    return asking.decide(room, mark, may_approve=person.approves, name=name, words=words)


def _room(conversation: Conversation) -> tuple[str, str]:
    return conversation.record.place.channel, conversation.record.place.chat


def is_table(text: str) -> bool:
    return text.count("\n") > 1 and "  " in text


async def _do_nothing(chat: Any, argument: str) -> None:
    """Do nothing. The gateway's own commands are in the list for /help only; `ChatCommands` runs them."""
