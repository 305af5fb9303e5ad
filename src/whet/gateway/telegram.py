"""Telegram: a bot that hears by long polling and answers in Telegram's HTML.

Long polling, because it needs no address that the internet can reach. An update is acknowledged (by the next
poll's offset) only after it was stored. Sends are not idempotent here: what may have arrived is not sent
again.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec

from whet.gateway.channel import FileRef, Incoming, Memo, Outgoing, PlatformLimits, SendFailed, Take
from whet.gateway.markup import telegram_html
from whet.gateway.router import mentions
from whet.gateway.settings import GatewayChannelText
from whet.gateway.transfer import download, form
from whet.store.chats import ChatPlace
from whet.vendors.http import read
from whet.vendors.telegram import TelegramApi

_WANTED = ["message", "edited_message", "callback_query"]
# 4096 UTF-16 units after the markup is taken out; half the room covers what escapes and entities add.
_MOST_CHARS = 3_500


class _Chat(msgspec.Struct):
    id: int
    type: str = "private"


class _User(msgspec.Struct):
    id: int
    username: str = ""
    first_name: str = ""
    is_bot: bool = False

    @property
    def shown(self) -> str:
        return self.username or self.first_name


class _File(msgspec.Struct):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0


class _Reply(msgspec.Struct):
    user: _User | None = msgspec.field(name="from", default=None)


class _Message(msgspec.Struct):
    message_id: int
    chat: _Chat
    date: int = 0
    user: _User | None = msgspec.field(name="from", default=None)
    message_thread_id: int = 0
    is_topic_message: bool = False
    text: str = ""
    caption: str = ""
    document: _File | None = None
    photo: list[_File] = msgspec.field(default_factory=list[_File])
    reply_to_message: _Reply | None = None


class _Query(msgspec.Struct):
    id: str
    user: _User = msgspec.field(name="from")
    message: _Message | None = None
    data: str = ""


class _Update(msgspec.Struct):
    update_id: int
    message: _Message | None = None
    edited_message: _Message | None = None
    callback_query: _Query | None = None


class _Path(msgspec.Struct):
    file_path: str = ""
    file_size: int = 0


class TelegramChannel:
    """One bot."""

    limits = PlatformLimits(_MOST_CHARS, edit_every_s=1.2, group_edit_every_s=3.5)

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        self.name = name
        self._api = TelegramApi(name, token, base_url)
        self._me = _User(0)

    async def listen(self, take: Take, memo: Memo) -> None:
        """Poll until cancelled. A failure waits and tries again; a wrong token ends it."""

        async def ready() -> None:
            if not self._me.id:
                self._me = read(await self._api.call("getMe", {}), _User) or _User(0)

        async def heard(updates: list[bytes]) -> None:
            known = [update for one in updates if (update := read(one, _Update)) is not None]
            await take([one for update in known if (one := self._incoming(update)) is not None])

        await self._api.hear(_WANTED, heard, ready)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send a message, or a file with it."""
        where: dict[str, Any] = {"chat_id": place.chat, "disable_notification": message.quiet}
        if place.thread:
            where["message_thread_id"] = int(place.thread)
        if message.file:
            return await self._send_file(where, message)
        sent = await self._write("sendMessage", where, message)
        found = read(sent, _Message)
        return str(found.message_id) if found else ""

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Change a message, buttons included."""
        try:
            await self._write("editMessageText", {"chat_id": place.chat, "message_id": int(ref)}, message)
        except SendFailed as error:
            if "message is not modified" not in error.reason:
                raise

    async def typing(self, place: ChatPlace) -> None:
        """Show that somebody writes, for five seconds."""
        body: dict[str, Any] = {"chat_id": place.chat, "action": "typing"}
        if place.thread:
            body["message_thread_id"] = int(place.thread)
        with contextlib.suppress(SendFailed):
            await self._api.call("sendChatAction", body)

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file; bots can have 20 MB."""
        found = read(await self._api.call("getFile", {"file_id": file.where}), _Path) or _Path()
        if not found.file_path:
            raise SendFailed("Telegram gave no path for the file", is_final=True)
        if found.file_size > most_bytes:
            raise SendFailed(f"it is larger than {most_bytes // 1_000_000} MB", is_final=True)
        return await download(self._api.http.client, f"{self._api.files_url}/{found.file_path}", most_bytes)

    async def answer(self, press: Incoming, text: str) -> None:
        """End the button's spinning."""
        with contextlib.suppress(SendFailed):
            await self._api.call(
                "answerCallbackQuery", {"callback_query_id": press.token, "text": text[:200]}
            )

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    def _incoming(self, update: _Update) -> Incoming | None:
        if (query := update.callback_query) is not None:
            if query.message is None:
                return None
            place = self._place(query.message, query.user)
            return Incoming(
                place,
                f"u{update.update_id}",
                "press",
                query.user.shown,
                query.data,
                ref=str(query.message.message_id),
                token=query.id,
            )
        message = update.message or update.edited_message
        if message is None or message.user is None or message.user.is_bot:
            return None
        files = [message.document] if message.document else message.photo[-1:]
        refs = tuple(FileRef(f.file_id, f.file_name or "photo.jpg", f.mime_type, f.file_size) for f in files)
        text = message.text or message.caption
        reply = message.reply_to_message
        is_reply = reply is not None and reply.user is not None and reply.user.id == self._me.id
        without = _without_name(text, self._me.username)
        return Incoming(
            self._place(message, message.user),
            f"u{update.update_id}",
            "message" if update.message else "edit",
            message.user.shown,
            without,
            refs,
            mentions_us=is_reply or without != text or mentions(text, [self._me.username]),
            ref=str(message.message_id),
            at_s=float(message.date if update.message else 0),
        )

    def _place(self, message: _Message, user: _User) -> ChatPlace:
        thread = str(message.message_thread_id) if message.is_topic_message else ""
        return ChatPlace(
            self.name, str(message.chat.id), thread, str(user.id), message.chat.type != "private"
        )

    async def _write(self, method: str, where: dict[str, Any], message: Outgoing) -> bytes:
        """Write text as HTML; where Telegram can't read that, as it stands."""
        body = {**where, "link_preview_options": {"is_disabled": True}, **_keyboard(message)}
        try:
            return await self._api.call(
                method, {**body, "text": telegram_html(message.text) or "…", "parse_mode": "HTML"}
            )
        except SendFailed as error:
            if "parse entities" not in error.reason:
                raise
        return await self._api.call(method, {**body, "text": message.text or "…"})

    async def _send_file(self, where: dict[str, Any], message: Outgoing) -> str:
        path = Path(message.file)
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise SendFailed(f"{path.name}: {error.strerror}", is_final=True) from None
        fields = {**{key: str(value) for key, value in where.items()}, "caption": message.text[:1000]}
        content, kind = form(fields, "document", message.file_name or path.name, data)
        found = read(await self._api.upload("sendDocument", content, kind), _Message)
        return str(found.message_id) if found else ""


def open_channel(name: str, tokens: tuple[str, ...], text: GatewayChannelText) -> TelegramChannel:
    """Make the channel."""
    return TelegramChannel(name, tokens[0], text.base_url)


def _keyboard(message: Outgoing) -> dict[str, Any]:
    if not message.buttons:
        return {}
    row = [{"text": button.label, "callback_data": button.data} for button in message.buttons]
    return {"reply_markup": {"inline_keyboard": [row[start : start + 2] for start in range(0, len(row), 2)]}}


def _without_name(text: str, name: str) -> str:
    """Take the bot's name off a command: in groups it is written /stop@name."""
    head, space, rest = text.partition(" ")
    if name and head.startswith("/") and head.lower().endswith(f"@{name.lower()}"):
        head = head[: -len(name) - 1]
    return f"{head}{space}{rest}"
