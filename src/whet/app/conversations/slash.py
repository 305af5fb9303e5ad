"""The registry of slash commands: built-in ones and those of plugins."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whet.app.peer_words import SLASH_WORDS, find_meaning, find_near_meaning, find_near_names
from whet.contract.errors import NotFound, WhetError

if TYPE_CHECKING:
    from whet.app.plugins.sessions import PluginParts

C = TypeVar("C")
ELSEWHERE = "type it in the chat at the terminal: whet"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class LateHandler:
    """A command's handler that is imported when it is first called. `path` is module:function."""

    path: str

    def load(self) -> Callable[[Any, str], Coroutine[Any, Any, None]]:
        """Import the handler."""
        module, _, function = self.path.partition(":")
        return getattr(importlib.import_module(module), function)

    async def __call__(self, chat: Any, argument: str) -> None:
        """Run the handler."""
        await self.load()(chat, argument)


@dataclass(frozen=True, slots=True)
class SlashCommand(Generic[C]):
    """One command. `run` takes the chat and the text after the name; it raises WhetError to refuse.

    `argument` is the hint for the text after the name. `anytime`: it also works while a turn runs. `remote`:
    it is also available on chat platforms, because it affects only its own conversation. `local` is the
    reason why another command is not.
    """

    name: str
    help: str
    run: Callable[[C, str], Coroutine[Any, Any, None]]
    argument: str = ""
    aliases: tuple[str, ...] = ()
    anytime: bool = False
    remote: bool = False
    local: str = ""


class Commands(Generic[C]):
    """The commands of one chat, by name and alias. `missing` has a reason for each command that works only
    elsewhere."""

    def __init__(self, missing: Mapping[str, str] | None = None) -> None:
        self._commands: dict[str, SlashCommand[C]] = {}
        self._names: dict[str, str] = {}
        self._missing = missing or {}

    def add(self, command: SlashCommand[C]) -> None:
        """Add a command. Raises WhetError, without adding it, if one of its names is invalid or taken."""
        names = (command.name, *command.aliases)
        for name in names:
            if not _NAME.fullmatch(name):
                raise WhetError(f"/{name} can't be a command", hint="a-z, 0-9 and -, a letter first")
            if name in self._names:
                raise WhetError(f"the command /{name} is taken by /{self._names[name]}")
        self._commands[command.name] = command
        self._names.update(dict.fromkeys(names, command.name))

    def get(self, name: str) -> SlashCommand[C]:
        """Return the command with that name or alias.

        Raises NotFound with a hint: why the command works only elsewhere, which command does the same here,
        or the closest name.
        """
        if owner := self._names.get(name):
            return self._commands[owner]
        near = find_near_names(name, self._names)
        meaning = find_meaning(name, SLASH_WORDS) or ("" if near else find_near_meaning(name, SLASH_WORDS))
        is_command = meaning.startswith("/")
        target = meaning[1:].split()[0] if is_command else name
        if reason := self._missing.get(target):
            raise NotFound(f"there is no /{target} here: {reason}", hint=ELSEWHERE)
        if is_command and target in self._names:
            hint = f"did you mean {meaning}?"
        elif meaning and not is_command:
            hint = meaning
        elif near:
            hint = f"did you mean {', '.join(f'/{candidate}' for candidate in near)}?"
        else:
            hint = "/help lists the commands"
        raise NotFound(f"there is no command /{name}", hint=hint)

    def is_anytime(self, name: str) -> bool:
        """Return whether a command with that name or alias may run during a turn."""
        return name in self._names and self.get(name).anytime

    def __contains__(self, name: object) -> bool:
        """Return whether there is a command with that name or alias."""
        return name in self._names

    def __iter__(self) -> Iterator[SlashCommand[C]]:
        """Iterate over the commands in the order in which they were added."""
        return iter(self._commands.values())


async def announce(
    plugins: PluginParts | None, command: SlashCommand[C], typed: tuple[str, str], session_id: str
) -> SlashCommand[C]:
    """Notify plugins that a command is about to run, and return the command. `typed` is its name and argument
    as typed."""
    if plugins is not None:
        await plugins.sessions.notify_command(command.name, *typed, session_id)
    return command


def parse(text: str) -> tuple[str, str] | None:
    """Split `/name argument`. Returns None if the text is a message, such as `//...` or `/path/like/this`."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    name = text[1:].partition(" ")[0]
    return None if "/" in name or "\n" in name else (name.lower(), argument_of(text))


def argument_of(text: str) -> str:
    """Return the text after a command's name."""
    return text.partition(" ")[2].strip()


def unescape(text: str) -> str:
    """Return a message without its escape: a leading `//` becomes `/`."""
    return text[1:] if text.startswith("//") else text
