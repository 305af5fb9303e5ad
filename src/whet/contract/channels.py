"""What a chat platform is to us: a channel that brings updates in, sends messages out, and keeps nothing that
must last. The gateway and the confirmation service use the same ones.

A package adds a platform by an entry point in the group `whet.channels` that names a `Platform`;
docs/channels.md shows a whole one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

Verb = Literal["message", "press", "edit"]
Style = Literal["good", "bad", "plain"]
_LONGEST_WAIT_S = 3600.0


class SendFailed(Exception):
    """A call did not do what it was for. People see the reason.

    `is_final`: trying again can't help. `maybe_sent`: it may have been done all the same. `is_barred`: the
    platform does not take our token (any more). `status`: HTTP's, 0 where there was none. `retry_after_s`:
    how long the platform asks to be left alone, at most an hour: it is asked again then.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_final: bool = False,
        retry_after_s: float | None = None,
        maybe_sent: bool = False,
        is_barred: bool = False,
        status: int = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final
        self.retry_after_s: float | None = (
            None if retry_after_s is None else min(retry_after_s, _LONGEST_WAIT_S)
        )
        self.maybe_sent = maybe_sent
        self.is_barred = is_barred
        self.status = status


class ChatPlace(msgspec.Struct, frozen=True):
    """Where a person talks: a thread of a chat of a channel."""

    channel: str
    chat: str
    thread: str = ""
    user: str = ""
    is_group: bool = False


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
    `token` is what `Channel.answer` needs. `at_s`: when it was said, by the platform's clock (Unix); 0 where
    that is not known.
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
    """A button under a message; `data` comes back with the press (at most 64 bytes). One with a `url` opens
    that address instead."""

    label: str
    data: str
    style: Style = "plain"
    url: str = ""


class MessageCard(msgspec.Struct, frozen=True):
    """A message in parts, what we say apart from what others wrote, for platforms that show the difference.

    `title`, `lines` and `warning` are ours. `subject` (one line) and `quoted` are others' and stand as they
    are, never as markup; `mark` stands above `quoted`. `deadline` has a {} for the time, which is `at_s`
    (Unix) or, in words, `at`. `alarm` is put beside the title. `address` is a link that stands as text. `ids`
    are names with their values.
    """

    title: str
    subject: str
    tone: Literal["open", "good", "bad", "plain"] = "plain"
    alarm: str = ""
    deadline: str = ""
    at: str = ""
    at_s: float = 0.0
    lines: tuple[str, ...] = ()
    ids: tuple[tuple[str, str], ...] = ()
    warning: str = ""
    address: str = ""
    mark: str = ""
    quoted: tuple[str, ...] = ()


class FileBounds(msgspec.Struct, frozen=True):
    """Where a file that goes along must lie when it is read, with no link on the way, and how large it may
    be."""

    folder: str
    most_bytes: int


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as we write it: Markdown, at most as long as the channel takes at once.

    `card` says the same in parts; a channel that does not know cards leaves it alone. `edits` names the
    message that it takes the place of. `file` is a path on this machine that goes along; `bounds` are set if
    commands can change what is there, and `channels.transfer.read_file` keeps to them. `quiet`: nobody's
    telephone rings. `since_ms`: since when (Unix) it may have got through, 0 where it surely has not.
    """

    text: str = ""
    buttons: tuple[MessageButton, ...] = ()
    edits: str = ""
    file: str = ""
    file_name: str = ""
    bounds: FileBounds | None = None
    quiet: bool = False
    since_ms: int = 0
    card: MessageCard | None = None


class PlatformLimits(msgspec.Struct, frozen=True):
    """What a platform takes: characters in a message, seconds between two edits in a chat and in a group
    (`can_edit`: whether at all), for how long a repeated send with the same key is one message (0: not at
    all), whether it has buttons, and whether it shows cards in its own way."""

    message_chars: int
    edit_every_s: float
    group_edit_every_s: float
    idempotent_s: float = 0.0
    can_edit: bool = True
    has_buttons: bool = True
    shows_cards: bool = False


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


class Channel(Protocol):
    """One configured way to people. Updates are handed to `Take`, which returns when they are stored; only
    then may a channel tell its platform that it has them. It does not know conversations, people or turns."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def limits(self) -> PlatformLimits:
        """What its platform takes."""
        ...

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Bring updates in, until cancelled. Only those in `wants` are read, so others need not be asked for.
        Raises SendFailed where the platform refuses for good."""
        ...

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send it and give its name on the platform. `key` is the same where the same message is sent again.
        Raises SendFailed; with `maybe_sent` where it may have got through."""
        ...

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Make a sent message say this instead; a repetition does nothing. Raises SendFailed."""
        ...

    async def typing(self, place: ChatPlace) -> None:
        """Show that an answer is being written, for some seconds. Raises SendFailed."""
        ...

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file that somebody sent. Raises SendFailed, also where it is larger."""
        ...

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Tell whoever pressed a button what came of it, in plain text; `is_alert`: so that they have to see
        it. Raises SendFailed."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Platform(msgspec.Struct, frozen=True):
    """What an entry point in the group `whet.channels` names; the entry's name is the `kind` in the files.

    `settings` is a msgspec.Struct of what its `[[channel]]` takes, each field with a default. A field whose
    name ends in `_env` names the environment variable that holds a token. `open` makes a channel of its name,
    its settings, and the tokens in the order of those fields. It raises ConfigError for settings that can't
    work, and connects to nothing.
    """

    settings: type[msgspec.Struct]
    open: Callable[[str, Any, tuple[str, ...]], Channel]
