"""Connect a Discord bot, which receives over the gateway's websocket and sends over REST.

Discord does not repeat messages that were sent while the bot was disconnected. So the last message of each
channel is stored, and later ones are fetched on every new session. The bot requests events about messages
and reactions only. Discord includes the text of a message in a server only if it mentions the bot. Mentions
are disabled in everything that is sent. A card has other people's text in code blocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any

import msgspec

from whet.channels.discord_contents import (
    DiscordContents,
    MessageSnapshot,
    QuotedMessage,
    all_text,
    describe,
    mark_quotation,
)
from whet.channels.discord_events import list_deleted_ids, list_reactions, read_thread_root
from whet.channels.markup import discord_markdown
from whet.channels.thread_starts import ThreadStarts, add_root
from whet.channels.transfer import encode_form, read_files
from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    MessageButton,
    MessageCard,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.markdown import escape_fences
from whet.vendors.discord import COMPONENT, DiscordApi, DiscordGateway, DiscordUser, Interaction
from whet.vendors.http import read

# Messages and reactions in servers, private messages and reactions to them.
_INTENTS = 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13
_SILENT, _NO_PREVIEWS = 1 << 12, 1 << 2
_STYLES = {"good": 3, "bad": 4, "plain": 2}
_LINK = 5
_COLORS = {"open": 0xD97706, "good": 0x15803D, "bad": 0xB91C1C, "plain": 0x6B7280}
_MESSAGE_TYPES = (0, 19)  # a message, a reply
_PAGE = 100
_MAX_CONTENT_CHARS = 2_000
_MAX_EMBED_CHARS = 4_096
_MAX_QUOTED_CHARS = 4_000
_EPOCH_MS = 1_420_070_400_000  # 2015, the start of Discord's time
_MAX_REMEMBERED = 2_000
_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0
_LOG = logging.getLogger(__name__)


class DiscordSettings(msgspec.Struct, frozen=True):
    """The settings of a Discord `[[channel]]` in gateway.toml."""

    token_env: str = "DISCORD_BOT_TOKEN"
    base_url: str = ""


class _Message(DiscordContents, kw_only=True):
    id: str
    channel_id: str
    guild_id: str = ""
    type: int = 0
    author: DiscordUser | None = None
    edited_timestamp: str | None = None
    mentions: list[DiscordUser] = msgspec.field(default_factory=list[DiscordUser])
    referenced_message: QuotedMessage | None = None
    message_snapshots: list[MessageSnapshot] = msgspec.field(default_factory=list[MessageSnapshot])


class _Ready(msgspec.Struct):
    user: DiscordUser = msgspec.field(default_factory=DiscordUser)


class Discord:
    """One bot."""

    limits: PlatformLimits = PlatformLimits(
        1_900,
        edit_every_s=1.3,
        group_edit_every_s=1.5,
        idempotent_s=120.0,
        shows_cards=True,
        pasted_chars=1_500,
        album_files=10,
    )

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        self.name = name
        self._api = DiscordApi(token, base_url)
        self._me = DiscordUser()
        self._seen: OrderedDict[str, ChatPlace] = OrderedDict()
        self._threads = ThreadStarts()

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Receive until cancelled. Raises SendFailed if Discord refuses the bot for good."""
        wants_messages = "message" in wants
        backlog = _Backlog(self, take, memo)

        async def handle(kind: str, data: bytes) -> None:
            if kind == "READY":
                self._me = (read(data, _Ready) or _Ready()).user
                await take([])
                if wants_messages:
                    await backlog.begin()
            else:
                await self._handle_event(kind, data, backlog)

        gateway = DiscordGateway(self.name, self._api, handle, intents=_INTENTS if wants_messages else 0)
        tasks = [asyncio.create_task(gateway.run()), asyncio.create_task(backlog.fetch_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Post a message, with its files if it has any. The key is Discord's nonce."""
        path = f"/channels/{place.chat}/messages"
        body = {**_message_fields(message), "nonce": key[:25], "enforce_nonce": True}
        if not message.file:
            answer = await self._api.call("POST", path, body)
        else:
            files = {f"files[{number}]": file for number, file in enumerate(await read_files(message))}
            content, kind = encode_form({"payload_json": msgspec.json.encode(body).decode()}, files)
            answer = await self._api.upload(path, content, kind)
        sent = read(answer, _Message)
        return sent.id if sent else ""

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Change a message, buttons included."""
        await self._api.call("PATCH", f"/channels/{place.chat}/messages/{ref}", _message_fields(message))

    async def typing(self, place: ChatPlace) -> None:
        """Show the typing indicator for ten seconds."""
        await self._api.call("POST", f"/channels/{place.chat}/typing", {})

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Download a file from Discord's own storage."""
        return await self._api.http.download(file.where, max_bytes, {"authorization": ""})

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Reply only to the person who pressed the button."""
        await self._api.respond(press.token, plain(text))

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    async def read_history(self, chat: _ReadPosition, take: Take) -> _ReadPosition | None:
        """Take one page of a channel's messages after the last one that was read.

        Returns the new position, or None if there are no more messages. Raises SendFailed, StoreError.
        """
        path = f"/channels/{chat.channel}/messages?after={chat.last}&limit={_PAGE}"
        page = read(await self._api.call("GET", path), list[_Message]) or []
        messages = sorted(page, key=lambda message: int(message.id))
        updates: list[Incoming] = []
        for message in messages:
            # Unlike the events, the history does not include a channel's server.
            message.guild_id = chat.guild
            update = self._parse_message(message, is_edit=False)
            if update is not None:
                updates.append(update)
        await take(updates)
        return msgspec.structs.replace(chat, last=messages[-1].id) if messages else None

    async def take_message(self, message: _Message, take: Take, memo: Memo) -> None:
        """Take a message and store its id as the channel's read position. Raises StoreError."""
        update = self._parse_message(message, is_edit=False)
        if update is None:
            return
        update = await self._add_root(update)
        self._seen[message.id] = update.place
        while len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        await take([update])
        position = _ReadPosition(message.channel_id, message.id, message.guild_id)
        await memo.set(position.text, message.channel_id)

    async def _handle_event(self, kind: str, data: bytes, backlog: _Backlog) -> None:
        """Handle a press, a reaction, or a message that was sent, edited or deleted."""
        if kind == "INTERACTION_CREATE":
            press = read(data, Interaction)
            if press is not None and press.type == COMPONENT:
                await backlog.take([self._parse_press(press)])
        elif kind in ("MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"):
            is_removed = kind.endswith("REMOVE")
            await backlog.take(list_reactions(self.name, self._me.id, data, is_removed=is_removed))
        elif kind == "MESSAGE_DELETE_BULK":
            await backlog.take(self._list_deletions(list_deleted_ids(data)))
        elif (message := read(data, _Message)) is not None:
            await self._handle_message(kind, message, backlog)

    async def _handle_message(self, kind: str, message: _Message, backlog: _Backlog) -> None:
        if kind == "MESSAGE_CREATE" and not backlog.hold_back(message):
            await self.take_message(message, backlog.take, backlog.memo)
        elif kind == "MESSAGE_UPDATE" and message.edited_timestamp:  # otherwise Discord has added a preview
            update = self._parse_message(message, is_edit=True)
            await backlog.take([update] if update is not None else [])
        elif kind == "MESSAGE_DELETE":
            await backlog.take(self._list_deletions([message.id]))

    def _list_deletions(self, message_ids: list[str]) -> list[Incoming]:
        """Return an update for each message that this process has seen."""
        updates: list[Incoming] = []
        for message_id in message_ids:
            place = self._seen.pop(message_id, None)
            if place is not None:
                updates.append(Incoming(place, f"x{message_id}", "edit", ref=message_id, mentions_us=True))
        return updates

    async def _add_root(self, update: Incoming) -> Incoming:
        """Add a thread's first message, or the thread's name, to a person's first message in it."""
        thread = update.place.chat
        if not update.place.is_group or not self._threads.is_first(update, thread):
            return update
        root, name = await read_thread_root(self._api, thread)
        return add_root(update, self._quote(root) or name)

    def _parse_message(self, message: _Message, *, is_edit: bool) -> Incoming | None:
        """Return the update for a message, or None if a person did not write it."""
        author = message.author
        if author is None or author.bot or message.type not in _MESSAGE_TYPES:
            return None
        quoted = message.referenced_message
        is_named = any(user.id == self._me.id for user in message.mentions)
        is_reply = quoted is not None and quoted.author.id == self._me.id
        forwarded = [snapshot.message for snapshot in message.message_snapshots]
        attachments = [file for part in (message, *forwarded) for file in part.attachments]
        content = mark_quotation(_without_mention(message.content, self._me.id))
        typed = "\n".join(filter(None, (content, describe(message))))
        texts = [typed, *(wrap_in_tag("forwarded", text) for part in forwarded if (text := all_text(part)))]
        return Incoming(
            ChatPlace(self.name, message.channel_id, "", author.id, bool(message.guild_id)),
            f"e{message.id}-{message.edited_timestamp}" if is_edit else f"m{message.id}",
            "edit" if is_edit else "message",
            author.username,
            "\n".join(filter(None, texts)),
            tuple(FileRef(a.url, a.filename, a.content_type, a.size) for a in attachments),
            mentions_us=is_named or is_reply,
            ref=message.id,
            at_s=0.0 if is_edit else _sent_at_s(message.id),
            quoted=self._quote(quoted),
            is_forward=bool(forwarded),
        )

    def _quote(self, quoted: QuotedMessage | None) -> str:
        """Return the author and the text of a quoted message, or "" if there is none."""
        text = all_text(quoted) if quoted is not None else ""
        if quoted is None or not text:
            return ""
        author = "you" if quoted.author.id == self._me.id else quoted.author.username
        return f"{author}: {text[:_MAX_QUOTED_CHARS]}"

    def _parse_press(self, press: Interaction) -> Incoming:
        user = press.presser
        return Incoming(
            ChatPlace(self.name, press.channel_id, "", user.id, bool(press.guild_id)),
            f"p{press.id}",
            "press",
            user.username,
            press.data.custom_id,
            ref=press.message.id,
            token=f"{press.id}/{press.token}",
        )


class _ReadPosition(msgspec.Struct, frozen=True):
    """The last message that was read in a channel, and the channel's server."""

    channel: str
    last: str
    guild: str = ""

    @property
    def text(self) -> str:
        """The position as it is stored: `last` or `last:guild`."""
        return f"{self.last}:{self.guild}" if self.guild else self.last

    @classmethod
    def parse(cls, channel: str, text: str) -> _ReadPosition:
        last, _, guild = text.partition(":")
        return cls(channel, last, guild)


class _Backlog:
    """Fetches the messages that were missed while disconnected, channel by channel, while events arrive.

    New messages of a channel are held back until its missed ones were taken, so that the order stays.
    """

    def __init__(self, discord: Discord, take: Take, memo: Memo) -> None:
        self._discord = discord
        self.take = take
        self.memo = memo
        self._behind: dict[str, _ReadPosition] = {}
        self._held: dict[str, list[_Message]] = {}
        self._is_behind = asyncio.Event()

    async def begin(self) -> None:
        """Start to catch up with every known channel."""
        positions = await self.memo.all()
        self._behind = {channel: _ReadPosition.parse(channel, text) for channel, text in positions.items()}
        self._is_behind.set()

    def hold_back(self, message: _Message) -> bool:
        """Hold a message back if earlier ones must be fetched first. Returns whether it was."""
        if message.channel_id not in self._behind:
            return False
        self._held.setdefault(message.channel_id, []).append(message)
        return True

    async def fetch_all(self) -> None:
        """Fetch missed messages, now and after each new session, until cancelled. Raises StoreError."""
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            wait_s = _RETRY_S
            while channels := list(self._behind):
                caught_up = [channel for channel in channels if await self._catch_up(channel)]
                if len(caught_up) < len(channels):  # some failed; the others did not wait for them
                    wait_s = _RETRY_S if caught_up else min(wait_s * 2, _LONGEST_RETRY_S)
                    await asyncio.sleep(wait_s)

    async def _catch_up(self, channel: str) -> bool:
        """Take the missed messages of a channel, then those held back. Returns False to try again later."""
        if not await self._fetch(channel):
            return False
        while messages := self._held.pop(channel, []):
            for message in messages:
                await self._discord.take_message(message, self.take, self.memo)
        self._behind.pop(channel, None)
        return True

    async def _fetch(self, channel: str) -> bool:
        """Take all missed messages of a channel. Returns False to try again later."""
        while (chat := self._behind.get(channel)) is not None:
            try:
                read_to = await self._discord.read_history(chat, self.take)
            except SendFailed as error:
                name = self._discord.name
                if error.is_final:
                    _LOG.warning("channel %s: %s can't be read: %s", name, channel, error.reason)
                    break
                _LOG.warning("channel %s: missed messages come later: %s", name, error.reason)
                if error.retry_after_s is None:
                    return False
                await asyncio.sleep(error.retry_after_s)
                continue
            if read_to is None:
                break
            await self.memo.set(read_to.text, channel)
            self._behind[channel] = read_to
        return True


PLATFORM = Platform(
    DiscordSettings, lambda name, settings, tokens: Discord(name, tokens[0], settings.base_url)
)


def _sent_at_s(message_id: str) -> float:
    """Return the time at which a message was sent, which its id contains."""
    return ((int(message_id) >> 22) + _EPOCH_MS) / 1000 if message_id.isdecimal() else 0.0


def _message_fields(message: Outgoing) -> dict[str, Any]:
    if message.card is not None and len(_describe_card(message.card)) > _MAX_EMBED_CHARS:
        message = message.without_approval()
    buttons = [_button_fields(button) for button in message.buttons]
    if message.card is not None:
        content: dict[str, Any] = {"content": "", "embeds": [_embed_fields(message.card)]}
    else:
        flags = _NO_PREVIEWS | (_SILENT if message.quiet else 0)
        text = discord_markdown(message.text, _MAX_CONTENT_CHARS)
        content = {"content": text or ("" if message.file else "…"), "flags": flags}
    return {
        **content,
        "allowed_mentions": {"parse": []},
        "components": [
            {"type": 1, "components": buttons[start : start + 5]} for start in range(0, len(buttons), 5)
        ],
    }


def _button_fields(button: MessageButton) -> dict[str, Any]:
    fields = {"type": 2, "label": button.label[:80]}
    if button.url:
        return {**fields, "style": _LINK, "url": button.url}
    return {**fields, "style": _STYLES[button.style], "custom_id": button.data}


def _describe_card(card: MessageCard) -> str:
    lines = [block(card.subject)]
    if card.deadline:
        # Discord shows these in the reader's own time, the second as a countdown.
        at_s = int(card.at_s)
        lines.append(card.deadline.format(f"<t:{at_s}:T> (<t:{at_s}:R>)"))
    lines += map(plain, card.lines)
    if card.warning:
        lines.append(f"**{card.warning}**")
    if card.address:
        lines.append(plain(card.address))
    lines += ["", f"*{card.mark}*", *map(block, card.quoted)]
    return "\n".join(lines)


def _embed_fields(card: MessageCard) -> dict[str, Any]:
    return {
        "title": f"{card.title}{f' · {card.alarm}' if card.alarm else ''}"[:256],
        "description": _describe_card(card)[:_MAX_EMBED_CHARS],
        "color": _COLORS[card.tone],
        "footer": {"text": " · ".join(f"{name} {value}" for name, value in card.ids)},
    }


def plain(text: str) -> str:
    """Escape text so that Discord's Markdown shows every character literally."""
    return "".join(f"\\{c}" if c in "\\`*_~|>#-[]()<@:+." else c for c in text)


def block(text: str) -> str:
    """Put text into a code block that it can't end."""
    # A backtick at either end of the text would join the fence without the line breaks.
    return f"```\n{escape_fences(text)}\n```"


def _without_mention(text: str, user_id: str) -> str:
    for mention in (f"<@{user_id}>", f"<@!{user_id}>"):
        text = text.replace(mention, "")
    return text.strip()
