"""Parse the contents of a Discord message: its text, files, cards, stickers and poll, and quoted messages."""

from __future__ import annotations

import re

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.vendors.discord import DiscordUser

_QUOTATION = re.compile(r"(?m)^[ \t]*>>> ")


class _Attachment(msgspec.Struct):
    url: str = ""
    filename: str = ""
    content_type: str = ""
    size: int = 0


class _Media(msgspec.Struct):
    text: str = ""


class _PollAnswer(msgspec.Struct):
    poll_media: _Media = msgspec.field(default_factory=_Media)


class _Poll(msgspec.Struct):
    question: _Media = msgspec.field(default_factory=_Media)
    answers: list[_PollAnswer] = msgspec.field(default_factory=list[_PollAnswer])


class _Sticker(msgspec.Struct):
    name: str = ""


class _Embed(msgspec.Struct):
    title: str = ""
    description: str = ""


class DiscordContents(msgspec.Struct, kw_only=True):
    """The contents of a message."""

    content: str = ""
    attachments: list[_Attachment] = msgspec.field(default_factory=list[_Attachment])
    embeds: list[_Embed] = msgspec.field(default_factory=list[_Embed])
    sticker_items: list[_Sticker] = msgspec.field(default_factory=list[_Sticker])
    poll: _Poll | None = None


class QuotedMessage(DiscordContents, kw_only=True):
    """A message that another one answers."""

    author: DiscordUser = msgspec.field(default_factory=DiscordUser)


class MessageSnapshot(msgspec.Struct):
    """A message that was forwarded."""

    message: DiscordContents = msgspec.field(default_factory=DiscordContents)


def describe(message: DiscordContents) -> str:
    """Return a line for each sticker and poll, in tags that mark it as data and not a request."""
    lines = [wrap_in_tag("sticker", sticker.name) for sticker in message.sticker_items]
    if (poll := message.poll) is not None:
        texts = (poll.question.text, *(answer.poll_media.text for answer in poll.answers))
        lines.append(wrap_in_tag("poll", " | ".join(texts)))
    return "\n".join(lines)


def mark_quotation(text: str) -> str:
    """Return a message's text with what stands behind `>>> `, a quotation up to its end, in a tag."""
    if (start := _QUOTATION.search(text)) is None:
        return text
    return text[: start.start()] + wrap_in_tag("quoted", text[start.end() :])


def all_text(message: DiscordContents) -> str:
    """Return all text of a message: its own, and that of cards, stickers and polls, or else its files'
    names."""
    cards = [text for embed in message.embeds for text in (embed.title, embed.description)]
    text = "\n".join(filter(None, (message.content, *cards, describe(message))))
    return text or ", ".join(file.filename for file in message.attachments)
