"""The contract of a chat platform. A channel receives updates and sends messages, and stores nothing that
must last. The gateway and the confirmation service use the same channels.

A package adds a platform by an entry point in the group `whet.channels` that names a `Platform`.
docs/channels.md shows a complete example.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

Verb = Literal["message", "press", "edit", "reaction"]
Style = Literal["good", "bad", "plain"]
_MAX_WAIT_S = 3600.0


class SendFailed(Exception):
    """A call to the platform failed. The reason is shown to people.

    `is_final`: trying again can't help. `maybe_sent`: it may have been done all the same. `is_barred`: the
    platform rejects our token. `status`: the HTTP status, or 0 if there was none. `retry_after_s`: how
    long the platform asks us to wait, at most an hour; after that it is tried again.
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
        self.retry_after_s: float | None = None if retry_after_s is None else min(retry_after_s, _MAX_WAIT_S)
        self.maybe_sent = maybe_sent
        self.is_barred = is_barred
        self.status = status


class ChatPlace(msgspec.Struct, frozen=True):
    """The location of a conversation: a thread in a chat of a channel."""

    channel: str
    chat: str
    thread: str = ""
    user: str = ""
    is_group: bool = False


class FileRef(msgspec.Struct, frozen=True):
    """A file that a person sent: its reference on the platform, the name and type that they gave it, and its
    size in bytes (0 if unknown)."""

    where: str
    name: str = ""
    mime: str = ""
    size_bytes: int = 0


class Incoming(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action of a person in a chat. Names and texts are theirs: treat them as data and never trust them.

    `update_id` is the same when the platform delivers the update again. `mentions_us`: it is addressed to
    the bot. `ref` names their message; for a press, the message with the button, and `text` is the
    button's data; for a reaction, the message that it is under, and `text` is the emoji. An edit without
    text and files is a deletion. `token` is the value that `Channel.answer` needs. `at_s`: when it was sent,
    by the platform's clock (Unix), or 0 if unknown. `quoted`: the words of the message that it answers, after
    the name of their author. `album` is the same in each message of an album. `is_forward`: its words are
    another person's. `is_removed`: the reaction was taken back. `joined` are the ids of all messages of an
    act whose parts were joined; the gateway sets it.
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
    quoted: str = ""
    album: str = ""
    is_forward: bool = False
    is_removed: bool = False
    joined: tuple[str, ...] = ()


class MessageButton(msgspec.Struct, frozen=True):
    """A button under a message. `data` comes back with the press (at most 64 bytes). A button with a `url`
    opens that address instead."""

    label: str
    data: str
    style: Style = "plain"
    url: str = ""


TOO_LONG = "Too long for a message: read it whole on the page to approve it."
_MAX_LINE_CHARS = 300


class MessageCard(msgspec.Struct, frozen=True):
    """A message in parts that keeps our text apart from text that others wrote, for platforms that show the
    difference.

    `title`, `lines` and `warning` are ours. `subject` (one line) and `quoted` come from others and are
    shown verbatim, never as markup; `mark` is shown above `quoted`. `deadline` has a {} for the time,
    which is `at_s` (Unix) or, in words, `at`. `alarm` is shown beside the title. `address` is a link that
    is shown as text. `ids` are names with their values.
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
    max_bytes: int


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as we write it: Markdown, at most as long as the channel takes at once.

    `card` says the same in parts; a channel that does not know cards leaves it alone. `edits` names the
    message that it takes the place of. `file` is a path on this machine that goes along; `bounds` are set if
    commands can change what is there, and `channels.transfer.read_files` keeps to them. `more_files` are the
    other files of an album, on channels whose limits allow one. `quiet`: nobody's
    telephone rings. `since_ms`: since when (Unix) it may have got through, 0 where it surely has not.
    """

    text: str = ""
    buttons: tuple[MessageButton, ...] = ()
    edits: str = ""
    file: str = ""
    file_name: str = ""
    bounds: FileBounds | None = None
    more_files: tuple[str, ...] = ()
    quiet: bool = False
    since_ms: int = 0
    card: MessageCard | None = None

    def without_approval(self) -> Outgoing:
        """Return the message for a platform that can't show its card whole: without the texts of others, and
        without the button that approves."""
        card = self.card
        if card is not None:
            lines = tuple(line[:_MAX_LINE_CHARS] for line in card.lines)
            card = msgspec.structs.replace(card, quoted=(), lines=lines, warning=TOO_LONG)
        buttons = tuple(button for button in self.buttons if button.style != "good")
        return msgspec.structs.replace(self, card=card, buttons=buttons)


class PlatformLimits(msgspec.Struct, frozen=True):
    """The limits of a platform: characters in a message, seconds between two edits in a chat and in a group
    (`can_edit`: whether messages can be edited at all), how many seconds a repeated send with the same key
    counts as one message (0: never), whether it has buttons, and whether it shows cards in its own way.

    `pasted_chars`: a text of this length may be a part of a paste that the platform's app has split (0:
    never). `forward_s`: how long a forward may come after the comment on it (0: they are one message).
    `album_files`: how many files one message may hold, `album_bytes` how large they may be together.
    `caption_chars`: how long the text of a message with files may be (0: as long as any other)."""

    message_chars: int
    edit_every_s: float
    group_edit_every_s: float
    idempotent_s: float = 0.0
    can_edit: bool = True
    has_buttons: bool = True
    shows_cards: bool = False
    pasted_chars: int = 0
    forward_s: float = 0.0
    album_files: int = 1
    album_bytes: int = 45_000_000
    caption_chars: int = 0


Take = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Stores updates, which are durable on return. Called with none, it notes that the platform has accepted the
channel, which listens from then on. Raises StoreError."""


class Memo(Protocol):
    """Small texts that a channel keeps between runs, such as its read position."""

    async def get(self, name: str = "") -> str:
        """Return the text, or an empty string if it was never set."""
        ...

    async def all(self) -> dict[str, str]:
        """Return all texts by name."""
        ...

    async def set(self, value: str, name: str = "") -> None:
        """Store the text. It is durable on return."""
        ...


class Channel(Protocol):
    """One configured connection to people. Updates are passed to `Take`, which returns when they are stored;
    only then may a channel acknowledge them to its platform. A channel knows nothing about conversations,
    people or turns."""

    @property
    def name(self) -> str:
        """The name in the settings."""
        ...

    @property
    def limits(self) -> PlatformLimits:
        """The limits of the platform."""
        ...

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Receive updates until cancelled. Only those in `wants` are read, so the others need not be
        requested. Raises SendFailed if the platform refuses for good."""
        ...

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send a message and return its id on the platform. `key` is the same if the same message is sent
        again. Raises SendFailed, with `maybe_sent` if the message may have got through."""
        ...

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Replace the content of a sent message. Repeating it does nothing. Raises SendFailed."""
        ...

    async def typing(self, place: ChatPlace) -> None:
        """Show for a few seconds that an answer is being written. Raises SendFailed."""
        ...

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Download a file that a person sent. Raises SendFailed, also if the file is larger than
        `max_bytes`."""
        ...

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Show the person who pressed a button the result, as plain text. `is_alert`: they must dismiss it.
        Raises SendFailed."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Platform(msgspec.Struct, frozen=True):
    """The object that an entry point in the group `whet.channels` names. The entry's name is the `kind` in
    the settings.

    `settings` is a msgspec.Struct of the settings in its `[[channel]]`, each field with a default. A field
    whose name ends in `_env` names the environment variable that holds a token. `open` creates a channel
    from its name, its settings, and the tokens in the order of those fields. It raises ConfigError for
    settings that can't work, and connects to nothing.
    """

    settings: type[msgspec.Struct]
    open: Callable[[str, Any, tuple[str, ...]], Channel]
