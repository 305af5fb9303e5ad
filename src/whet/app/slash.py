"""The registry of slash commands.

Built-in commands and those of plugins are added the same way; a name that is taken stays with whoever had
it first. It knows how a command is found, not what it does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whet.contract.errors import NotFound, WhetError

if TYPE_CHECKING:
    from whet.app.build import App

C = TypeVar("C")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class SlashCommand(Generic[C]):
    """One command. `run` takes the chat and the text after the name; it raises WhetError to say no.

    `argument` shows what may follow the name. `anytime`: it also works while a turn runs. `remote`: people on
    chat platforms have it too; it reaches nothing but their own conversation.
    """

    name: str
    help: str
    run: Callable[[C, str], Coroutine[Any, Any, None]]
    argument: str = ""
    aliases: tuple[str, ...] = ()
    anytime: bool = False
    remote: bool = False


class Commands(Generic[C]):
    """The commands of one chat, by name and alias."""

    def __init__(self) -> None:
        self._commands: dict[str, SlashCommand[C]] = {}
        self._names: dict[str, str] = {}

    def add(self, command: SlashCommand[C]) -> None:
        """Add a command. Raises WhetError where a name is unusable or taken; nothing is added then."""
        names = (command.name, *command.aliases)
        for name in names:
            if not _NAME.fullmatch(name):
                raise WhetError(f"/{name} can't be a command", hint="a-z, 0-9 and -, a letter first")
            if name in self._names:
                raise WhetError(f"the command /{name} is taken by /{self._names[name]}")
        self._commands[command.name] = command
        self._names.update(dict.fromkeys(names, command.name))

    def get(self, name: str) -> SlashCommand[C]:
        """Give the command of that name or alias. Raises NotFound, with the nearest name."""
        if owner := self._names.get(name):
            return self._commands[owner]
        near = [one for one in self._names if one.startswith(name)][:3]
        near = near or difflib.get_close_matches(name, self._names, 1, 0.5)
        hint = f"did you mean {', '.join(f'/{one}' for one in near)}?" if near else "/help lists the commands"
        raise NotFound(f"there is no command /{name}", hint=hint)

    def is_anytime(self, name: str) -> bool:
        """Whether a command of that name or alias may run beside a turn."""
        return name in self._names and self.get(name).anytime

    def __contains__(self, name: object) -> bool:
        """Whether there is a command of that name or alias."""
        return name in self._names

    def __iter__(self) -> Iterator[SlashCommand[C]]:
        """Give every command, in the order they were added."""
        return iter(self._commands.values())


async def announced(
    app: App, command: SlashCommand[C], typed: tuple[str, str], session_id: str
) -> SlashCommand[C]:
    """Tell plugins that a command is about to run, and give it; `typed` is the name and the rest as a person
    typed them."""
    if app.plugin_parts is not None:
        await app.plugin_parts.sessions.command_typed(command, *typed, session_id)
    return command


def parse(text: str) -> tuple[str, str] | None:
    """Split `/name rest`; None for text that is a message (so are `//...` and `/path/like/this`)."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    name = text[1:].partition(" ")[0]
    return None if "/" in name or "\n" in name else (name.lower(), argument_of(text))


def argument_of(text: str) -> str:
    """Give what follows the name in the text of a command."""
    return text.partition(" ")[2].strip()


def unescaped(text: str) -> str:
    """Give a message as it is meant: a leading `//` stands for `/`."""
    return text[1:] if text.startswith("//") else text
