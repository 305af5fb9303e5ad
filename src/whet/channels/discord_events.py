"""Parse Discord's events about reactions and deletions, and read the first message of a thread."""

from __future__ import annotations

import secrets
from contextlib import suppress

import msgspec

from whet.channels.discord_contents import QuotedMessage
from whet.contract.channels import ChatPlace, Incoming, SendFailed
from whet.vendors.discord import DiscordApi
from whet.vendors.http import read

_THREAD_TYPES = (10, 11, 12)


class _Channel(msgspec.Struct):
    type: int = 0
    parent_id: str | None = None
    name: str = ""


class _Deletions(msgspec.Struct):
    ids: list[str] = msgspec.field(default_factory=list[str])


class _Emoji(msgspec.Struct):
    id: str | None = None
    name: str | None = None


class _Reaction(msgspec.Struct):
    user_id: str
    channel_id: str
    message_id: str
    guild_id: str = ""
    emoji: _Emoji = msgspec.field(default_factory=_Emoji)


def list_reactions(channel: str, own_id: str, data: bytes, *, is_removed: bool) -> list[Incoming]:
    """Return the update for a reaction that a person added or removed, or an empty list if it was our own."""
    reaction = read(data, _Reaction)
    if reaction is None or reaction.user_id == own_id:
        return []
    emoji = reaction.emoji
    return [
        Incoming(
            ChatPlace(channel, reaction.channel_id, "", reaction.user_id, bool(reaction.guild_id)),
            f"r{reaction.message_id}-{secrets.token_hex(8)}",  # Discord neither numbers nor repeats reactions
            "reaction",
            text=f":{emoji.name}:" if emoji.id and emoji.name else emoji.name or "an emoji",
            mentions_us=True,
            ref=reaction.message_id,
            is_removed=is_removed,
        )
    ]


def list_deleted_ids(data: bytes) -> list[str]:
    """Return the ids of messages that were deleted together."""
    return (read(data, _Deletions) or _Deletions()).ids


async def read_thread_root(api: DiscordApi, channel_id: str) -> tuple[QuotedMessage | None, str]:
    """Return a thread's first message and a name for the thread.

    The message is None if it can't be read. The name is "" if the channel is not a thread or can't be read.
    """
    with suppress(SendFailed):  # the person's message must not be lost for this
        channel = read(await api.call("GET", f"/channels/{channel_id}"), _Channel) or _Channel()
        if channel.type not in _THREAD_TYPES:
            return None, ""
        name = f"the thread {channel.name}"
        # That message has the thread's id. It is in the parent channel, or for a forum's post in the thread.
        for parent_id in (channel.parent_id or channel_id, channel_id):
            with suppress(SendFailed):
                path = f"/channels/{parent_id}/messages/{channel_id}"
                return read(await api.call("GET", path), QuotedMessage), name
        return None, name
    return None, ""
