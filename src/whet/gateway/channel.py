"""What a channel is: it brings updates in, sends messages out, and keeps nothing that must last.

Updates are handed to `Take`, which returns when they are stored; only then may a channel tell its platform
that it has them. It does not know conversations, people or turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from whet.store.chats import ChatPlace
from whet.vendors.http import SendFailed

__all__ = ["SendFailed"]

Verb = Literal["message", "press", "edit"]


class FileRef(msgspec.Struct, frozen=True):
    """A file that somebody sent: where the platform has it, the name and type that they gave it, its size (0
    where unknown)."""

    where: str
    name: str = ""
    mime: str = ""
    size_bytes: int = 0


class Incoming(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody did in a place. Names and texts are theirs: data, and never trusted.

    `update_id` is the same when the platform brings it again. `mentions_us`: it is addressed to the bot.
    `ref` names their message; for a press the message with the button, and `text` is the button's data.
    `at_s`: when it was said, by the platform's clock (Unix); 0 where that is not known.
    """

    place: ChatPlace
    update_id: str
    verb: Verb
    user_name: str = ""
    text: str = ""
    files: tuple[FileRef, ...] = ()
    mentions_us: bool = False
    ref: str = ""
    token: str = ""
    at_s: float = 0.0


class MessageButton(msgspec.Struct, frozen=True):
    """A button under a message; `data` comes back with the press (at most 64 bytes)."""

    label: str
    data: str
    style: Literal["good", "bad", "plain"] = "plain"


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as the gateway writes it: Markdown, at most as long as the channel takes at once.

    `edits` names the message that it takes the place of. `file` is a path on this machine that goes along.
    `quiet`: nobody's telephone rings. `since_ms`: since when (Unix) it may have got through, 0 where it
    surely has not.
    """

    text: str = ""
    buttons: tuple[MessageButton, ...] = ()
    edits: str = ""
    file: str = ""
    file_name: str = ""
    quiet: bool = False
    since_ms: int = 0


class PlatformLimits(msgspec.Struct, frozen=True):
    """What a platform takes: characters in a message, seconds between two edits in a chat and in a group
    (`can_edit`: whether at all), and for how long a repeated send with the same key is one message (0: not
    at all)."""

    message_chars: int
    edit_every_s: float
    group_edit_every_s: float
    idempotent_s: float = 0.0
    can_edit: bool = True


Take = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Stores updates; durable on return. Raises StoreError."""


class Memo(Protocol):
    """A little text that a channel keeps between runs, such as how far it has read."""

    async def get(self, name: str = "") -> str:
        """Give it; empty at first."""
        ...

    async def all(self) -> dict[str, str]:
        """Give everything, by name."""
        ...

    async def set(self, value: str, name: str = "") -> None:
        """Keep it; durable on return."""
        ...


class GatewayChannel(Protocol):
    """One configured way to people."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def limits(self) -> PlatformLimits:
        """What its platform takes."""
        ...

    async def listen(self, take: Take, memo: Memo) -> None:
        """Bring updates in, until cancelled. Raises SendFailed where the platform refuses for good."""
        ...

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send it and give its name on the platform. `key` is the same where the same message is sent again.
        Raises SendFailed; with `maybe_sent` where it may have got through."""
        ...

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Make a sent message say this instead; a repetition does nothing. Raises SendFailed."""
        ...

    async def typing(self, place: ChatPlace) -> None:
        """Show that an answer is being written, for some seconds. Never raises."""
        ...

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file that somebody sent. Raises SendFailed, also where it is larger."""
        ...

    async def answer(self, press: Incoming, text: str) -> None:
        """Tell whoever pressed a button what came of it. Never raises."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
