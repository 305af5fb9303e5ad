"""What a Telegram message holds besides text: files, places, contacts, polls, stickers, quoted messages."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whet.contract.channels import FileRef
from whet.contract.texts import wrap_in_tag

_MAX_QUOTED_CHARS = 4_000


class TelegramFile(msgspec.Struct):
    """A file of a message; `duration` is in seconds."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    duration: int = 0


class _Location(msgspec.Struct):
    latitude: float = 0.0
    longitude: float = 0.0


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


class _Quote(msgspec.Struct):
    text: str = ""


class TelegramContents(msgspec.Struct, kw_only=True):
    """The contents of a message."""

    text: str = ""
    caption: str = ""
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
    quote: _Quote | None = None

    @property
    def typed_text(self) -> str:
        """The text, or the caption of a file."""
        return self.text or self.caption


def list_files(message: TelegramContents) -> tuple[FileRef, ...]:
    """Return the files of a message, with a name for those that have none."""
    largest = message.photo[-1] if message.photo else None
    named = (
        (message.document or message.animation, "file"),
        (largest, "photo.jpg"),
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


def describe(message: TelegramContents) -> str:
    """Return a line for each part that is neither text nor a file, in tags, as it is data and no request."""
    return "\n".join(wrap_in_tag(tag, " ".join(text.split())) for tag, text in _list_parts(message))


def _list_parts(message: TelegramContents) -> Iterator[tuple[str, str]]:
    place = message.location
    where = f"{place.latitude}, {place.longitude}" if place else ""
    if (venue := message.venue) is not None:
        yield "location", ", ".join(filter(None, (venue.title, venue.address, where)))
    elif where:
        yield "location", where
    if (contact := message.contact) is not None:
        yield "contact", f"{contact.first_name} {contact.last_name} {contact.phone_number}"
    if (poll := message.poll) is not None:
        yield "poll", " | ".join((poll.question, *(option.text for option in poll.options)))
    if message.sticker is not None:
        yield "sticker", message.sticker.emoji or "without an emoji"
    if message.dice is not None:
        yield "dice", f"{message.dice.emoji} {message.dice.value}"
    for spoken, name in ((message.voice, "voice note"), (message.video_note, "video note")):
        if spoken is not None:
            yield "voice", f"a {name} of {spoken.duration} s; it can't be heard here, only its file is kept"


def quote_text(reply: TelegramContents, chosen: str) -> str:
    """Return the words of the message that is answered: the chosen part, or all of it, shortened."""
    text = chosen or "\n".join(filter(None, (reply.typed_text, describe(reply))))
    if not text:
        text = ", ".join(file.name for file in list_files(reply))
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]} …"
