"""Parse the contents of a Telegram message besides its text, and reactions to messages.

Contents are files, locations, contacts, polls, stickers, quoted messages and the like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import ChatPlace, FileRef, Incoming

_MAX_QUOTED_CHARS = 4_000
_TAGS_BY_ENTITY = {"blockquote": "quoted", "expandable_blockquote": "quoted", "pre": "code", "code": ""}


class TelegramFile(msgspec.Struct):
    """A file of a message. `duration` is in seconds."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    duration: int = 0


class _Location(msgspec.Struct):
    latitude: float = 0.0
    longitude: float = 0.0
    live_period: int = 0


class _Venue(msgspec.Struct):
    title: str = ""
    address: str = ""


class _Contact(msgspec.Struct):
    first_name: str = ""
    last_name: str = ""
    phone_number: str = ""


class _Option(msgspec.Struct):
    text: str = ""


class _Poll(msgspec.Struct):
    question: str = ""
    options: list[_Option] = msgspec.field(default_factory=list[_Option])


class _Sticker(msgspec.Struct):
    emoji: str = ""


class _Dice(msgspec.Struct):
    emoji: str = ""
    value: int = 0


class _Task(msgspec.Struct):
    text: str = ""
    completion_date: int = 0


class _Checklist(msgspec.Struct):
    title: str = ""
    tasks: list[_Task] = msgspec.field(default_factory=list[_Task])


class _Quote(msgspec.Struct):
    text: str = ""


class _Entity(msgspec.Struct):
    """Markup of a stretch of text; offset and length are in UTF-16 units."""

    type: str = ""
    offset: int = 0
    length: int = 0


class _Topic(msgspec.Struct):
    name: str = ""


class TelegramChat(msgspec.Struct):
    """A chat."""

    id: int
    type: str = "private"


class TelegramUser(msgspec.Struct):
    """A person or a bot."""

    id: int
    username: str = ""
    first_name: str = ""
    is_bot: bool = False

    @property
    def display_name(self) -> str:
        """The name that people see."""
        return self.username or self.first_name


class _Reaction(msgspec.Struct, frozen=True):
    type: str = ""
    emoji: str = ""
    custom_emoji_id: str = ""

    @property
    def text(self) -> str:
        return self.emoji or {"paid": "⭐"}.get(self.type, "an emoji of a sticker set")


class ReactionChange(msgspec.Struct):
    """A person's reactions to a message, before and now. `user` is None if the group hides it."""

    chat: TelegramChat
    message_id: int
    user: TelegramUser | None = None
    old_reaction: list[_Reaction] = msgspec.field(default_factory=list[_Reaction])
    new_reaction: list[_Reaction] = msgspec.field(default_factory=list[_Reaction])


class TelegramContents(msgspec.Struct, kw_only=True):
    """The contents of a message."""

    text: str = ""
    caption: str = ""
    entities: list[_Entity] = msgspec.field(default_factory=list[_Entity])
    caption_entities: list[_Entity] = msgspec.field(default_factory=list[_Entity])
    document: TelegramFile | None = None
    photo: list[TelegramFile] = msgspec.field(default_factory=list[TelegramFile])
    voice: TelegramFile | None = None
    audio: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: TelegramFile | None = None
    animation: TelegramFile | None = None
    location: _Location | None = None
    venue: _Venue | None = None
    contact: _Contact | None = None
    poll: _Poll | None = None
    sticker: _Sticker | None = None
    dice: _Dice | None = None
    checklist: _Checklist | None = None
    story: dict[str, Any] | None = None
    game: dict[str, Any] | None = None
    invoice: dict[str, Any] | None = None
    paid_media: dict[str, Any] | None = None
    quote: _Quote | None = None
    forum_topic_created: _Topic | None = None

    @property
    def typed_text(self) -> str:
        """The text, or the caption of a file."""
        return self.text or self.caption

    @property
    def marked_text(self) -> str:
        """The typed text with quotations and code blocks in tags, and code in backquotes."""
        return _mark_entities(self.typed_text, self.entities if self.text else self.caption_entities)


class TelegramSource(TelegramContents, kw_only=True):
    """What Telegram tells of a message's author besides the sender. Before version 7.0 of its API, forwards
    had a `forward_date` and no `forward_origin`."""

    forward_origin: dict[str, Any] | None = None
    forward_date: int = 0
    is_automatic_forward: bool = False
    via_bot: TelegramUser | None = None
    sender_chat: TelegramChat | None = None
    sender_business_bot: TelegramUser | None = None

    @property
    def is_by_others(self) -> bool:
        """Whether another than the sender wrote it: its first author, a bot, or a channel."""
        first_author, bot = self.forward_origin, self.via_bot or self.sender_business_bot
        is_forward = first_author is not None or bool(self.forward_date) or self.is_automatic_forward
        return is_forward or bot is not None or self.sender_chat is not None


def _mark_entities(text: str, entities: Sequence[_Entity]) -> str:
    units, end = text.encode("utf-16-le", "surrogatepass"), 0
    pieces: list[str] = []

    def cut(start: int, stop: int) -> str:
        return units[2 * start : 2 * stop].decode("utf-16-le", "surrogatepass")

    for entity in sorted(entities, key=lambda entity: (entity.offset, -entity.length)):
        tag, inside_end = _TAGS_BY_ENTITY.get(entity.type), entity.offset + entity.length
        if tag is None or entity.length < 1 or entity.offset < end:
            continue  # inside of the one before
        inside = cut(entity.offset, inside_end)
        pieces += [cut(end, entity.offset), wrap_in_tag(tag, inside) if tag else f"`{inside}`"]
        end = inside_end
    return "".join((*pieces, cut(end, len(units) // 2)))


def list_files(message: TelegramContents) -> tuple[FileRef, ...]:
    """Return the files of a message, each with a name."""
    largest_photo = message.photo[-1] if message.photo else None
    named = (
        (message.document or message.animation, "file"),
        (largest_photo, "photo.jpg"),
        (message.voice, "voice.ogg"),
        (message.audio, "audio.mp3"),
        (message.video, "video.mp4"),
        (message.video_note, "video.mp4"),
    )
    return tuple(
        FileRef(file.file_id, file.file_name or name, file.mime_type, file.file_size)
        for file, name in named
        if file is not None
    )


def list_reactions(channel: str, update_id: int, change: ReactionChange) -> list[Incoming]:
    """Return an update for each reaction that was added or removed."""
    user, before, now = change.user, change.old_reaction, change.new_reaction
    if user is None or user.is_bot:
        return []
    place = ChatPlace(channel, str(change.chat.id), "", str(user.id), change.chat.type != "private")
    changed = [reaction for reaction in (*before, *now) if (reaction in before) != (reaction in now)]
    return [
        Incoming(
            place,
            f"u{update_id}-{number}",
            "reaction",
            user.display_name,
            reaction.text,
            mentions_us=True,
            ref=str(change.message_id),
            is_removed=reaction in before,
        )
        for number, reaction in enumerate(changed)
    ]


def describe(message: TelegramContents) -> str:
    """Return a line for each part that is not text, in tags that mark it as data and not a request."""
    return "\n".join(wrap_in_tag(tag, " ".join(text.split())) for tag, text in _list_parts(message))


def _list_parts(message: TelegramContents) -> Iterator[tuple[str, str]]:
    location = message.location
    coordinates = f"{location.latitude}, {location.longitude}" if location else ""
    if (venue := message.venue) is not None:
        yield "location", ", ".join(filter(None, (venue.title, venue.address, coordinates)))
    elif coordinates:
        yield "location", coordinates
    if (contact := message.contact) is not None:
        yield "contact", f"{contact.first_name} {contact.last_name} {contact.phone_number}"
    if (poll := message.poll) is not None:
        yield "poll", " | ".join((poll.question, *(option.text for option in poll.options)))
    if message.sticker is not None:
        yield "sticker", message.sticker.emoji or "without an emoji"
    if message.dice is not None:
        yield "dice", f"{message.dice.emoji} {message.dice.value}"
    yield from _list_rare_parts(message)
    for recording, name in ((message.voice, "voice note"), (message.video_note, "video note")):
        if recording is not None:
            yield "voice", f"a {name} of {recording.duration} s"


def _list_rare_parts(message: TelegramContents) -> Iterator[tuple[str, str]]:
    if (checklist := message.checklist) is not None:
        tasks = (f"[{'x' if task.completion_date else ' '}] {task.text}" for task in checklist.tasks)
        yield "checklist", " | ".join((checklist.title, *tasks))
    for kind in ("story", "game", "invoice", "paid_media"):
        if getattr(message, kind) is not None:
            yield "message", f"of a kind that can't be read here: {kind}"


def quote_text(reply: TelegramContents, selected: str) -> str:
    """Return the text of an answered message, or the part that the person selected, shortened."""
    text = selected or "\n".join(filter(None, (reply.typed_text, describe(reply))))
    if not text:
        text = ", ".join(file.name for file in list_files(reply))
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]} …"
