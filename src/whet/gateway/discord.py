"""Discord: a bot that hears over the gateway's websocket and answers over REST.

Discord does not bring again what was said while nobody was connected, so the last message of each channel is
kept, and what came after it is fetched on every new session. Only what concerns the bot is asked for: private
messages, and messages in servers, whose text Discord shows where the bot is named.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec

from whet.confirm.notify.discord_gateway import Gateway, Interaction
from whet.confirm.notify.vendor_http import VendorHttp, read, refused
from whet.gateway.channel import FileRef, Incoming, Limits, Memo, Outgoing, SendFailed, Take
from whet.gateway.settings import ChannelText
from whet.gateway.transfer import download, form
from whet.store.chats import Place

BASE_URL = "https://discord.com/api/v10"
_INTENTS = 1 << 9 | 1 << 12  # messages in servers, private messages
_SILENT, _NO_PREVIEWS = 1 << 12, 1 << 2
_STYLES = {"good": 3, "bad": 4, "plain": 2}
_WRITTEN = (0, 19)  # a message, a reply
_PAGE = 100
_REMEMBERED = 2_000
_LOG = logging.getLogger("whet.gateway")


class _User(msgspec.Struct):
    id: str = ""
    username: str = ""
    bot: bool = False


class _Attachment(msgspec.Struct):
    url: str = ""
    filename: str = ""
    content_type: str = ""
    size: int = 0


class _Quoted(msgspec.Struct):
    author: _User = msgspec.field(default_factory=_User)


class _Message(msgspec.Struct):
    id: str
    channel_id: str
    guild_id: str = ""
    type: int = 0
    author: _User | None = None
    content: str = ""
    mentions: list[_User] = msgspec.field(default_factory=list[_User])
    attachments: list[_Attachment] = msgspec.field(default_factory=list[_Attachment])
    referenced_message: _Quoted | None = None


class _Member(msgspec.Struct):
    user: _User = msgspec.field(default_factory=_User)


class _Ready(msgspec.Struct):
    user: _User = msgspec.field(default_factory=_User)


class _Component(msgspec.Struct):
    custom_id: str = ""


class _Stands(msgspec.Struct):
    id: str = ""


class _Press(msgspec.Struct):
    id: str
    token: str
    type: int
    channel_id: str = ""
    guild_id: str = ""
    data: _Component = msgspec.field(default_factory=_Component)
    member: _Member | None = None
    user: _User | None = None
    message: _Stands = msgspec.field(default_factory=_Stands)


class _Problem(msgspec.Struct):
    message: str = ""
    retry_after: float | None = None


class Discord:
    """One bot."""

    limits = Limits(1_900, edit_every_s=1.3, group_edit_every_s=1.5, idempotent_s=120.0)

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        self.name = name
        self._token = token
        self._http = VendorHttp("Discord", base_url or BASE_URL, {"authorization": f"Bot {token}"})
        self._me = _User()
        self._seen: OrderedDict[str, Place] = OrderedDict()

    async def listen(self, take: Take, memo: Memo) -> None:
        """Hear until cancelled. Raises SendFailed when Discord refuses the bot for good."""

        async def event(kind: str, data: bytes) -> None:
            if kind == "READY":
                self._me = (read(data, _Ready) or _Ready()).user
                await self._catch_up(take, memo)
            elif kind in ("MESSAGE_CREATE", "MESSAGE_UPDATE"):
                await self._written(kind == "MESSAGE_UPDATE", data, take, memo)
            elif kind == "MESSAGE_DELETE":
                await self._deleted(data, take)
            elif kind == "INTERACTION_CREATE":
                press = read(data, _Press)
                if press is not None and press.type == 3:
                    await take([self._press(press)])

        async def nothing(press: Interaction) -> None:
            """Presses are heard as events."""

        await Gateway(self.name, self._token, self._http, nothing, intents=_INTENTS, on_event=event).run()

    async def send(self, place: Place, message: Outgoing, key: str) -> str:
        """Post a message, or a file with it; the key is Discord's nonce."""
        path = f"/channels/{place.chat}/messages"
        body = {**_body(message), "nonce": key[:25], "enforce_nonce": True}
        if not message.file:
            answer = await self._call("POST", path, body)
        else:
            file = Path(message.file)
            try:
                data = await asyncio.to_thread(file.read_bytes)
            except OSError as error:
                raise SendFailed(f"{file.name}: {error.strerror}", is_final=True) from None
            fields = {"payload_json": msgspec.json.encode(body).decode()}
            content, kind = form(fields, "files[0]", message.file_name or file.name, data)
            answer = await self._call("POST", path, content, kind)
        sent = read(answer, _Message)
        return sent.id if sent else ""

    async def edit(self, place: Place, ref: str, message: Outgoing) -> None:
        """Change a message, buttons included."""
        await self._call("PATCH", f"/channels/{place.chat}/messages/{ref}", _body(message))

    async def typing(self, place: Place) -> None:
        """Show that somebody writes, for ten seconds."""
        with contextlib.suppress(SendFailed):
            await self._call("POST", f"/channels/{place.chat}/typing", {})

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file from Discord's own storage."""
        return await download(self._http.client, file.where, most_bytes, {"authorization": ""})

    async def answer(self, press: Incoming, text: str) -> None:
        """Tell the presser alone."""
        data: dict[str, Any] = {"content": text[:1900], "flags": 64, "allowed_mentions": {"parse": []}}
        with contextlib.suppress(SendFailed):
            await self._call("POST", f"/interactions/{press.token}/callback", {"type": 4, "data": data})

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _written(self, is_edit: bool, data: bytes, take: Take, memo: Memo) -> None:
        message = read(data, _Message)
        update = self._incoming(message, is_edit=is_edit) if message else None
        if message is None or update is None:
            return
        self._seen[message.id] = update.place
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        await take([update])
        if not is_edit:
            await memo.set(message.id, message.channel_id)

    async def _deleted(self, data: bytes, take: Take) -> None:
        gone = read(data, _Message)
        place = self._seen.pop(gone.id, None) if gone else None
        if gone is not None and place is not None:
            await take([Incoming(place, f"x{gone.id}", "edit", ref=gone.id, mentions_us=True)])

    async def _catch_up(self, take: Take, memo: Memo) -> None:
        """Fetch what was said in the channels that we know since we last heard of them."""
        for channel, last in (await memo.all()).items():
            is_full = True
            while is_full:
                try:
                    answer = await self._call(
                        "GET", f"/channels/{channel}/messages?after={last}&limit={_PAGE}", None
                    )
                except SendFailed as error:
                    _LOG.warning("channel %s: what was missed is not known: %s", self.name, error.reason)
                    break
                messages = sorted(read(answer, list[_Message]) or [], key=lambda one: int(one.id))
                updates = [u for one in messages if (u := self._incoming(one, is_edit=False)) is not None]
                await take(updates)
                if messages:
                    last = messages[-1].id
                    await memo.set(last, channel)
                is_full = len(messages) >= _PAGE

    def _incoming(self, message: _Message, *, is_edit: bool) -> Incoming | None:
        author = message.author
        if author is None or author.bot or message.type not in _WRITTEN:
            return None
        quoted = message.referenced_message
        named = any(user.id == self._me.id for user in message.mentions)
        is_reply = quoted is not None and quoted.author.id == self._me.id
        files = tuple(FileRef(a.url, a.filename, a.content_type, a.size) for a in message.attachments)
        return Incoming(
            Place(self.name, message.channel_id, "", author.id, bool(message.guild_id)),
            f"m{message.id}",
            "edit" if is_edit else "message",
            author.username,
            _without_mention(message.content, self._me.id),
            files,
            mentions_us=named or is_reply,
            ref=message.id,
        )

    def _press(self, press: _Press) -> Incoming:
        user = press.member.user if press.member else press.user or _User()
        return Incoming(
            Place(self.name, press.channel_id, "", user.id, bool(press.guild_id)),
            f"p{press.id}",
            "press",
            user.username,
            press.data.custom_id,
            ref=press.message.id,
            token=f"{press.id}/{press.token}",
        )

    async def _call(self, method: str, path: str, body: object, kind: str = "") -> bytes:
        if isinstance(body, bytes):
            answer = await self._http.raw(method, path, body, {"content-type": kind}, 120.0)
        else:
            answer = await self._http.call(method, path, body)
        if 200 <= answer.status < 300:
            return answer.body
        said = answer.read(_Problem) or _Problem()
        raise refused("Discord", answer, said.message, said.retry_after)


def open_channel(name: str, tokens: tuple[str, ...], text: ChannelText) -> Discord:
    """Make the channel."""
    return Discord(name, tokens[0], text.base_url)


def _body(message: Outgoing) -> dict[str, Any]:
    buttons = [
        {"type": 2, "style": _STYLES[button.style], "label": button.label[:80], "custom_id": button.data}
        for button in message.buttons
    ]
    return {
        "content": message.text or ("" if message.file else "…"),
        "allowed_mentions": {"parse": []},
        "flags": _NO_PREVIEWS | (_SILENT if message.quiet else 0),
        "components": [
            {"type": 1, "components": buttons[start : start + 5]} for start in range(0, len(buttons), 5)
        ],
    }


def _without_mention(text: str, us: str) -> str:
    for mention in (f"<@{us}>", f"<@!{us}>"):
        text = text.replace(mention, "")
    return text.strip()
