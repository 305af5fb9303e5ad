"""The contract of a chat platform. A channel receives updates and sends messages, and keeps no durable state
except in its `Memo`. The gateway and the confirmation service use the same channels.

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

    `is_final`: trying again can't help. `maybe_sent`: the platform may have carried out the call.
    `is_barred`: the platform rejects our token. `status`: the HTTP status, or 0 if there was none.
    `retry_after_s`: how long the platform asks us to wait, cut to an hour.
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
    """An action of a person in a chat. The person chose all names and texts in it: never trust them.

    - `update_id`: the same when the platform delivers the update again
    - `ref`: the id of the person's message, of the message with the pressed button, or of the message under
      a reaction; `text` is then the button's data or the emoji
    - `verb` "edit" without text and files: the message was deleted
    - `mentions_us`: the message is addressed to the bot
    - `token`: the value that `Channel.answer` needs
    - `at_s`: when it was sent, by the platform's clock (Unix), or 0 if unknown
    - `quoted`: the message that it answers: the author's name, then the words
    - `album`: the same in each message of an album
    - `is_forward`: the words are another person's
    - `is_removed`: the reaction was taken back
    - `joined`: the ids of all messages that the gateway joined into this one
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
    """A button under a message. A press sends back its `data` (at most 64 bytes), or opens its `url` if it
    has one."""

    label: str
    data: str
    style: Style = "plain"
    url: str = ""


TOO_LONG = "Too long for a message: read it whole on the page to approve it."
_MAX_LINE_CHARS = 300


class MessageCard(msgspec.Struct, frozen=True):
    """A message in parts, for platforms that show which text is ours and which others wrote.

    `title`, `lines` and `warning` are ours. `subject` (one line) and `quoted` come from others and are
    shown verbatim, never as markup; `mark` is the heading of `quoted`. `deadline` is a sentence with a {} for
    the time, which is `at_s` (Unix) or, in words, `at`. `alarm` is shown beside the title. `address` is a
    link that is shown as text. `ids` are pairs of a name and its value.
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
    """The bounds of a file that a message attaches: when it is read, it must lie in `folder`, with no link on
    the path, and have at most `max_bytes`."""

    folder: str
    max_bytes: int


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to send: Markdown, at most as long as the channel's limit.

    - `card`: the same message in parts; channels without cards ignore it
    - `edits`: the id of the message that it replaces
    - `file`: the path of an attached file on this machine; `more_files`: the other files of an album, if the
      channel's limits allow one
    - `bounds`: set if commands can change the file; `channels.transfer.read_files` enforces them
    - `quiet`: sent without a notification sound
    - `since_ms`: the time of the first attempt that may have sent it (Unix), or 0 if none has
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
    """The limits of a platform.

    - `message_chars`: the longest message
    - `edit_every_s`, `group_edit_every_s`: the time between two edits in a chat and in a group
    - `can_edit`: whether messages can be edited at all
    - `idempotent_s`: for how long the platform drops a repeated send with the same key (0: never)
    - `shows_cards`: whether the channel shows a `MessageCard` in the platform's own layout
    - `pasted_chars`: the length at which the platform's app splits a pasted text (0: it does not)
    - `forward_s`: how long after a comment the forward that belongs to it may arrive (0: in one message)
    - `album_files`, `album_bytes`: how many files a message may have, and how large they may be together
    - `caption_chars`: the longest text of a message with files (0: `message_chars`)
    """

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
"""Stores updates, which are durable on return. A call without updates reports that the platform has accepted
the connection and the channel is listening. Raises StoreError."""


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
    """One configured connection to a chat platform. A channel passes updates to `Take` and acknowledges them
    to the platform only after it returns. It knows nothing about conversations, people or turns."""

    @property
    def name(self) -> str:
        """The name in the settings."""
        ...

    @property
    def limits(self) -> PlatformLimits:
        """The limits of the platform."""
        ...

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Receive updates until cancelled. Only verbs in `wants` are used, so a channel need not request the
        others. Raises SendFailed if the platform refuses for good."""
        ...

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send a message and return its id on the platform. If it is sent again, `key` is the same. Raises
        SendFailed, with `maybe_sent` if the platform may have sent it."""
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

    `settings` is the msgspec.Struct of a `[[channel]]` in the settings; each of its fields has a default. The
    value of a field that ends in `_env` is the name of the environment variable that holds a token. `open`
    creates a channel from its name, its settings, and the tokens in the order of those fields, without
    connecting. It raises ConfigError for settings that can't work.
    """

    settings: type[msgspec.Struct]
    open: Callable[[str, Any, tuple[str, ...]], Channel]
