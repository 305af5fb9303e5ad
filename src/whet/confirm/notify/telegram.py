"""Telegram: a bot that sends to one chat and hears its buttons by long polling.

Long polling, because it needs no address that the internet can reach; a webhook would. Texts are HTML, where
three characters are special; what the agent wrote stands in `<pre>`, where Telegram makes no links, mentions
or commands of it.
"""

from __future__ import annotations

import contextlib
import html
from typing import Any

import msgspec

from whet.confirm.notify.buttons import Buttons
from whet.confirm.notify.channel import ButtonPress, OnPress, PressReply
from whet.confirm.notify.notice import AGENT_MARK, RequestNotice
from whet.vendors.http import SendFailed, read
from whet.vendors.telegram import TelegramApi


class _Chat(msgspec.Struct):
    id: int


class _Message(msgspec.Struct):
    message_id: int
    chat: _Chat


class _User(msgspec.Struct):
    id: int
    username: str = ""
    first_name: str = ""


class _Query(msgspec.Struct):
    id: str
    user: _User = msgspec.field(name="from")
    data: str = ""


class _Update(msgspec.Struct):
    update_id: int
    callback_query: _Query | None = None


class TelegramNotifier:
    """One bot in one chat."""

    can_update = True

    def __init__(self, name: str, token: str, chat: str, buttons: Buttons, base_url: str = "") -> None:
        self.name = name
        self._chat = chat
        self._buttons = buttons
        self._api = TelegramApi(name, token, base_url)

    async def send(self, notice: RequestNotice) -> str:
        """Send the message; give its number. Raises SendFailed."""
        body = {"chat_id": self._chat, **self._message(notice)}
        sent = read(await self._api.call("sendMessage", body), _Message)
        return f"{sent.chat.id}/{sent.message_id}" if sent else ""

    async def update(self, where: str, notice: RequestNotice) -> None:
        """Change the message, buttons included. Raises SendFailed."""
        chat, _, number = where.partition("/")
        body = {"chat_id": chat, "message_id": int(number), **self._message(notice)}
        try:
            await self._api.call("editMessageText", body)
        except SendFailed as error:
            if "message is not modified" not in error.reason:
                raise

    async def listen(self, on_press: OnPress) -> None:
        """Poll for presses until cancelled. A failure waits and tries again; a wrong token ends it."""

        async def take(updates: list[bytes]) -> None:
            # Acknowledged afterwards: a press that a crash interrupts comes again and decides once.
            for one in updates:
                update = read(one, _Update)
                if update is not None and update.callback_query is not None:
                    await self._answer(update.callback_query, on_press)

        await self._api.hear(["callback_query"], take)

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    async def _answer(self, query: _Query, on_press: OnPress) -> None:
        user = query.user
        press = ButtonPress(self.name, "telegram", str(user.id), user.username or user.first_name, query.data)
        reply = PressReply("Something went wrong here; the request is undecided. Use the page.")
        try:
            reply = await on_press(press)
        finally:
            # Always, or the button spins for the person; too old a query can't be answered, which is no harm.
            with contextlib.suppress(SendFailed):
                body = {"callback_query_id": query.id, "text": reply.text[:200], "show_alert": True}
                await self._api.call("answerCallbackQuery", body)

    def _message(self, notice: RequestNotice) -> dict[str, Any]:
        row = [{"text": b.label, "callback_data": b.data} for b in self._buttons.of(notice)]
        keyboard = [row[:2], *([button] for button in row[2:])] if notice.may_approve else [[b] for b in row]
        if notice.has_public_link:
            keyboard.append([{"text": "Open the page", "url": notice.link}])
        return {
            "text": text(notice),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
            "reply_markup": {"inline_keyboard": [line for line in keyboard if line]},
        }


def text(notice: RequestNotice) -> str:
    """Write a notice as Telegram's HTML."""
    risk = "  ⚠️ HIGH RISK" if notice.is_high_risk else ""
    lines = [f"<b>{_e(notice.headline)}</b>{risk}", f"<code>{_e(notice.action)}</code>"]
    if notice.is_open:
        lines.append(f"Decide before <b>{_e(notice.deadline)}</b>; silence is a denial.")
    lines += [_e(line) for line in (notice.progress, notice.outcome) if line]
    lines.append(f"Token: {_e(notice.principal or 'none (open mode)')}")
    lines.append(f"Request <code>{_e(notice.request_id)}</code> digest <code>{_e(notice.digest[:12])}</code>")
    if notice.was_cut and notice.is_open:
        lines.append("<b>Too long for a message: read it whole on the page to approve it.</b>")
    if notice.link and not notice.has_public_link:
        lines.append(f"Page (on that machine): {_e(notice.link)}")
    lines += ["", f"<i>{_e(AGENT_MARK)}</i>"]
    said = [f"{notice.requester}: {notice.description}", notice.details]
    lines += [f"<pre>{_e(part)}</pre>" for part in said if part]
    return "\n".join(lines)


def _e(part: str) -> str:
    return html.escape(part, quote=False)
