"""Connect a Telegram bot, which receives by long polling and sends Telegram's HTML.

Long polling needs no address that the internet can reach. The next poll's offset acknowledges an update, so
it is stored before. Telegram can't recognise a repeated message, so one that may have arrived is not sent
again. A card has other people's text in `<pre>`, in which Telegram makes no links, mentions or commands.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.channels.markup import telegram_html
from whet.channels.telegram_contents import (
    ReactionChange,
    TelegramChat,
    TelegramContents,
    TelegramSource,
    TelegramUser,
    describe,
    list_files,
    list_reactions,
    quote_text,
)
from whet.channels.thread_starts import ThreadStarts
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
from whet.contract.texts import NOT_JSON, from_foreign_json
from whet.vendors.http import read
from whet.vendors.telegram import ChatMoved, TelegramApi

_WANTED: dict[Verb, str] = {
    "message": "message",
    "edit": "edited_message",
    "press": "callback_query",
    "reaction": "message_reaction",
}
# Telegram allows 4096 UTF-16 units without markup. The difference is room for escapes and entities.
_MAX_CHARS = 3_500
_MAX_SHOWN_UNITS = 4_096
_MOVED = "moved:"


class TelegramSettings(msgspec.Struct, frozen=True):
    """The settings of a Telegram `[[channel]]` in gateway.toml."""

    token_env: str = "TELEGRAM_BOT_TOKEN"
    base_url: str = ""


class _Reply(TelegramContents, kw_only=True):
    user: TelegramUser | None = msgspec.field(name="from", default=None)


class _Message(TelegramSource, kw_only=True):
    message_id: int
    chat: TelegramChat
    date: int = 0
    user: TelegramUser | None = msgspec.field(name="from", default=None)
    message_thread_id: int = 0
    is_topic_message: bool = False
    media_group_id: str = ""
    reply_to_message: _Reply | None = None
    migrate_to_chat_id: int = 0
    migrate_from_chat_id: int = 0


class _Query(msgspec.Struct):
    id: str
    user: TelegramUser = msgspec.field(name="from")
    message: _Message | None = None
    data: str = ""


class _Update(msgspec.Struct):
    update_id: int
    message_reaction: ReactionChange | None = None
    message: _Message | None = None
    edited_message: _Message | None = None
    callback_query: _Query | None = None


class _Path(msgspec.Struct):
    file_path: str = ""
    file_size: int = 0


class _MovedChats:
    """The ids of groups that became supergroups. A conversation keeps the id that it began with."""

    def __init__(self) -> None:
        self._new: dict[str, str] = {}
        self._old: dict[str, str] = {}
        self._memo: Memo | None = None

    async def load(self, memo: Memo) -> None:
        """Read the stored ids from `memo`, and store new ones there from now on."""
        self._memo = memo
        for name, new in (await memo.all()).items():
            if name.startswith(_MOVED):
                old = name.removeprefix(_MOVED)
                self._new[old], self._old[new] = new, old

    def current_id(self, chat: str) -> str:
        """Return the id that Telegram uses now."""
        return self._new.get(chat, chat)

    def first_id(self, chat: str) -> str:
        """Return the id that the conversation began with."""
        return self._old.get(chat, chat)

    async def store(self, old: str, new: str) -> None:
        """Store a chat's new id. It is durable on return if `load` was called."""
        old = self.first_id(old)
        if self._new.get(old) == new:
            return
        self._new[old], self._old[new] = new, old
        if self._memo is not None:
            await self._memo.set(new, f"{_MOVED}{old}")


class Telegram:
    """One bot."""

    limits: PlatformLimits = PlatformLimits(
        _MAX_CHARS,
        edit_every_s=1.2,
        group_edit_every_s=3.5,
        shows_cards=True,
        pasted_chars=2_000,
        forward_s=0.35,
        album_files=10,
        caption_chars=1_000,
    )

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        self.name = name
        self._api = TelegramApi(name, token, base_url)
        self._me = TelegramUser(0)
        self._topics = ThreadStarts()
        self._moved = _MovedChats()

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Poll until cancelled, and again after failures. Raises SendFailed if the token is wrong."""

        async def ready() -> None:
            if not self._me.id and "message" in wants:
                self._me = read(await self._api.call("getMe", {}), TelegramUser) or TelegramUser(0)
            await take([])

        await self._moved.load(memo)

        async def handle(updates: list[bytes]) -> None:
            parsed_updates = [update for raw in updates if (update := read(raw, _Update)) is not None]
            for message in filter(None, (update.message for update in parsed_updates)):
                if message.migrate_to_chat_id:
                    await self._moved.store(str(message.chat.id), str(message.migrate_to_chat_id))
                elif message.migrate_from_chat_id:
                    await self._moved.store(str(message.migrate_from_chat_id), str(message.chat.id))
            await take([incoming for update in parsed_updates for incoming in self._list_incoming(update)])

        await self._api.poll([name for verb, name in _WANTED.items() if verb in wants], handle, ready)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send a message, with its files if it has any. If the group has become a supergroup, send it
        there."""
        try:
            return await self._send_to(place, message)
        except ChatMoved as moved:
            await self._moved.store(place.chat, moved.chat)
        return await self._send_to(place, message)

    async def _send_to(self, place: ChatPlace, message: Outgoing) -> str:
        """Send to a chat's topic, or to the chat if the topic was deleted or closed."""
        where: dict[str, Any] = {
            "chat_id": self._moved.current_id(place.chat),
            "disable_notification": message.quiet,
        }
        if place.thread:
            try:
                return await self._send({**where, "message_thread_id": int(place.thread)}, message)
            except SendFailed as error:
                if not re.search("thread not found|TOPIC_DELETED|TOPIC_CLOSED", error.reason):
                    raise
        return await self._send(where, message)

    async def _send(self, where: dict[str, Any], message: Outgoing) -> str:
        if message.file:
            return await self._send_file(where, message)
        sent = await self._write("sendMessage", where, message)
        sent_message = read(sent, _Message)
        return str(sent_message.message_id) if sent_message else ""

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Edit a message, buttons included."""
        where = {"chat_id": self._moved.current_id(place.chat), "message_id": int(ref)}
        try:
            await self._write("editMessageText", where, message)
        except SendFailed as error:
            if "message is not modified" not in error.reason:
                raise

    async def typing(self, place: ChatPlace) -> None:
        """Show the typing indicator for five seconds."""
        body: dict[str, Any] = {"chat_id": self._moved.current_id(place.chat), "action": "typing"}
        if place.thread:
            body["message_thread_id"] = int(place.thread)
        await self._api.call("sendChatAction", body)

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Download a file. Telegram gives bots at most 20 MB."""
        file_info = read(await self._api.call("getFile", {"file_id": file.where}), _Path) or _Path()
        if not file_info.file_path:
            raise SendFailed("Telegram gave no path for the file", is_final=True)
        if file_info.file_size > max_bytes:
            raise SendFailed(f"it is larger than {max_bytes // 1_000_000} MB", is_final=True)
        return await self._api.http.download(f"{self._api.files_url}/{file_info.file_path}", max_bytes)

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """End the button's spinner. An alert stays until it is dismissed."""
        body: dict[str, Any] = {"callback_query_id": press.token, "text": text[:200]}
        await self._api.call("answerCallbackQuery", {**body, "show_alert": True} if is_alert else body)

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    def _list_incoming(self, update: _Update) -> list[Incoming]:
        if update.message_reaction is not None:
            chat = update.message_reaction.chat
            chat = msgspec.structs.replace(chat, id=int(self._moved.first_id(str(chat.id))))
            change = msgspec.structs.replace(update.message_reaction, chat=chat)
            return list_reactions(self.name, update.update_id, change)
        incoming = self._parse_update(update)
        return [] if incoming is None else [incoming]

    def _parse_update(self, update: _Update) -> Incoming | None:
        """Return a press, a message or an edit, or None if a person did nothing that concerns the bot."""
        if (query := update.callback_query) is not None:
            if query.message is None:
                return None
            return Incoming(
                self._chat_place(query.message, query.user),
                f"u{update.update_id}",
                "press",
                query.user.display_name,
                query.data,
                ref=str(query.message.message_id),
                token=query.id,
            )
        message = update.message or update.edited_message
        if message is None or message.user is None or message.user.is_bot:
            return None
        if update.message is None and message.location is not None and message.location.live_period:
            return None  # the person's live location has changed, and nothing was edited
        text, files, described = message.marked_text, list_files(message), describe(message)
        if not (text or files or described):
            return None  # a service message: a pinned message, a new title, people who come and go
        reply = message.reply_to_message
        is_reply = reply is not None and reply.user is not None and reply.user.id == self._me.id
        typed = _without_name(text, self._me.username)
        incoming = Incoming(
            self._chat_place(message, message.user),
            f"u{update.update_id}",
            "message" if update.message else "edit",
            message.user.display_name,
            _join_text(message, typed, described),
            files,
            mentions_us=is_reply or typed != text or mentions(text, self._me.username),
            ref=str(message.message_id),
            at_s=float(message.date if update.message else 0),
            quoted=self._quote(message),
            album=message.media_group_id,
            is_forward=message.is_by_others,
        )
        if reply is not None and reply.forum_topic_created is not None:  # true of each message in a topic
            is_first = self._topics.is_first(incoming, incoming.place.thread)
            topic = f"the topic {reply.forum_topic_created.name}" if is_first else ""
            incoming = msgspec.structs.replace(incoming, quoted=topic)
        return incoming

    def _quote(self, message: _Message) -> str:
        """Return the author and the text of the message that this one answers, or ""."""
        reply, selected = message.reply_to_message, message.quote.text if message.quote else ""
        if reply is None:  # it answers a message of another chat
            return f"?: {selected}" if selected else ""
        text = quote_text(reply, selected)
        if not text:
            return ""
        is_ours = reply.user is not None and reply.user.id == self._me.id
        author = "you" if is_ours else reply.user.display_name if reply.user else "?"
        return f"{author}: {text}"

    def _chat_place(self, message: _Message, user: TelegramUser) -> ChatPlace:
        thread = str(message.message_thread_id) if message.is_topic_message else ""
        return ChatPlace(
            self.name,
            self._moved.first_id(str(message.chat.id)),
            thread,
            str(user.id),
            message.chat.type != "private",
        )

    async def _write(self, method: str, where: dict[str, Any], message: Outgoing) -> bytes:
        """Send text as HTML, or as plain text if Telegram can't parse it."""
        if message.card is not None and _count_units(card_html(message.card)) > _MAX_SHOWN_UNITS:
            message = message.without_approval()
        body = {**where, "link_preview_options": {"is_disabled": True}, **_keyboard_fields(message)}
        text = telegram_html(message.text) if message.card is None else card_html(message.card)
        try:
            return await self._api.call(method, {**body, "text": text or "…", "parse_mode": "HTML"})
        except SendFailed as error:
            if message.card is not None or "parse entities" not in error.reason:
                raise
        return await self._api.call(method, {**body, "text": message.text or "…"})

    async def _send_file(self, where: dict[str, Any], message: Outgoing) -> str:
        fields, caption = {key: str(value) for key, value in where.items()}, message.text
        files = await read_files(message)
        if len(files) > 1:
            return await self._send_album(fields, caption, files)
        content, kind = encode_form({**fields, "caption": caption}, {"document": files[0]})
        sent_message = read(await self._api.upload("sendDocument", content, kind), _Message)
        return str(sent_message.message_id) if sent_message else ""

    async def _send_album(
        self, fields: dict[str, str], caption: str, files: Sequence[tuple[str, bytes]]
    ) -> str:
        """Send files as one album, with the caption under the last one, where it is below all of them."""
        media = [{"type": "document", "media": f"attach://file{number}"} for number in range(len(files))]
        media[-1] |= {"caption": caption} if caption else {}
        fields = {**fields, "media": msgspec.json.encode(media).decode()}
        content, kind = encode_form(fields, {f"file{number}": file for number, file in enumerate(files)})
        answer = await self._api.upload("sendMediaGroup", content, kind)
        try:
            messages = from_foreign_json(answer, list[_Message])
        except NOT_JSON:
            return ""
        return str(messages[0].message_id) if messages else ""


PLATFORM = Platform(
    TelegramSettings, lambda name, settings, tokens: Telegram(name, tokens[0], settings.base_url)
)


def _join_text(message: _Message, typed: str, described: str) -> str:
    """Return the text of a message with lines for its other parts, in a tag if others wrote it."""
    text = "\n".join(filter(None, (typed, described)))
    return wrap_in_tag("forwarded", text) if message.is_by_others and text else text


def _keyboard_fields(message: Outgoing) -> dict[str, Any]:
    """Return the message's buttons, two in a row. Under a card, only approve and deny share a row."""
    buttons = message.buttons
    if not buttons:
        return {}
    if message.card is None:
        rows = [buttons[start : start + 2] for start in range(0, len(buttons), 2)]
    else:
        pair = 2 if buttons[0].style == "good" else 1
        rows = [buttons[:pair], *([button] for button in buttons[pair:])]
    return {"reply_markup": {"inline_keyboard": [[_button_field(button) for button in row] for row in rows]}}


def _button_field(button: MessageButton) -> dict[str, str]:
    return {"text": button.label, **({"url": button.url} if button.url else {"callback_data": button.data})}


def card_html(card: MessageCard) -> str:
    """Write a card as Telegram's HTML."""
    alarm = f"  ⚠️ {_escape(card.alarm)}" if card.alarm else ""
    lines = [f"<b>{_escape(card.title)}</b>{alarm}", f"<code>{_escape(card.subject)}</code>"]
    if card.deadline:
        lines.append(_escape(card.deadline).format(f"<b>{_escape(card.at)}</b>"))
    lines += map(_escape, card.lines)
    ids = " ".join(f"{_escape(name)} <code>{_escape(value)}</code>" for name, value in card.ids)
    lines.append(f"{ids[:1].upper()}{ids[1:]}")
    if card.warning:
        lines.append(f"<b>{_escape(card.warning)}</b>")
    if card.address:
        lines.append(_escape(card.address))
    lines += ["", f"<i>{_escape(card.mark)}</i>", *(f"<pre>{_escape(part)}</pre>" for part in card.quoted)]
    return "\n".join(lines)


def _count_units(markup: str) -> int:
    """Return the UTF-16 units of HTML without its markup, which Telegram's limit counts."""
    return len(html.unescape(re.sub(r"<[^>]*>", "", markup)).encode("utf-16-le", "surrogatepass")) // 2


def _escape(part: str) -> str:
    return html.escape(part, quote=False)


def mentions(text: str, name: str) -> bool:
    """Return whether a text mentions this name, as @name."""
    return bool(name) and re.search(rf"(?<!\w)@{re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def _without_name(text: str, name: str) -> str:
    """Remove the bot's name from a command, which groups write as /stop@name."""
    head, space, arguments = text.partition(" ")
    if name and head.startswith("/") and head.lower().endswith(f"@{name.lower()}"):
        head = head[: -len(name) - 1]
    return f"{head}{space}{arguments}"
