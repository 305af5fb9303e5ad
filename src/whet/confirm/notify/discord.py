"""Discord: a bot that posts into one channel and hears its buttons over the gateway.

The gateway is a websocket that we open, so nothing of ours must be reachable from the internet; the other
way, an interactions endpoint, would put a listener of the confirmation service there. Everything the agent
wrote stands in code blocks, and mentions are switched off for the whole message.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from whet.confirm.notify.buttons import Buttons
from whet.confirm.notify.channel import ButtonPress, OnPress, PressReply
from whet.confirm.notify.notice import AGENT_MARK, RequestNotice
from whet.vendors.discord import COMPONENT, DiscordApi, DiscordGateway, Interaction
from whet.vendors.http import SendFailed, read

_LOG = logging.getLogger(__name__)
_STYLES = {"approve": 3, "deny": 4}
_COLORS = {"pending": 0xD97706, "approved": 0x15803D, "denied": 0xB91C1C}
_GREY = 0x6B7280


class _Message(msgspec.Struct):
    id: str


class DiscordNotifier:
    """One bot in one channel."""

    can_update = True

    def __init__(self, name: str, token: str, chat: str, buttons: Buttons, base_url: str = "") -> None:
        self.name = name
        self._chat = chat
        self._buttons = buttons
        self._api = DiscordApi(token, base_url)

    async def send(self, notice: RequestNotice) -> str:
        """Post the message; give its number. Raises SendFailed."""
        # With the nonce a retry after a lost answer gives back the first message instead of a second one.
        body = {**self._message(notice), "nonce": notice.request_id[:25], "enforce_nonce": True}
        sent = read(await self._api.call("POST", f"/channels/{self._chat}/messages", body), _Message)
        return f"{self._chat}/{sent.id}" if sent else ""

    async def update(self, where: str, notice: RequestNotice) -> None:
        """Change the message, buttons included. Raises SendFailed."""
        chat, _, number = where.partition("/")
        await self._api.call("PATCH", f"/channels/{chat}/messages/{number}", self._message(notice))

    async def listen(self, on_press: OnPress) -> None:
        """Hear presses until cancelled. Raises SendFailed when Discord refuses the bot for good."""

        async def event(kind: str, data: bytes) -> None:
            press = read(data, Interaction) if kind == "INTERACTION_CREATE" else None
            if press is not None and press.type == COMPONENT:
                await self._answer(press, on_press)

        await DiscordGateway(self.name, self._api, event).run()

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    async def _answer(self, event: Interaction, on_press: OnPress) -> None:
        user = event.who
        press = ButtonPress(self.name, "discord", user.id, user.username, event.data.custom_id)
        reply = PressReply("Something went wrong here; the request is undecided. Use the page.")
        try:
            reply = await on_press(press)
        finally:
            try:
                await self._api.respond(f"{event.id}/{event.token}", plain(reply.text))
            except SendFailed as error:
                _LOG.warning("channel %s could not answer a press: %s", self.name, error.reason)

    def _message(self, notice: RequestNotice) -> dict[str, Any]:
        buttons: list[dict[str, Any]] = [
            {"type": 2, "style": _STYLES[b.verdict], "label": b.label, "custom_id": b.data}
            for b in self._buttons.of(notice)
        ]
        if notice.has_public_link:
            buttons.append({"type": 2, "style": 5, "label": "Open the page", "url": notice.link})
        rows = [buttons[start : start + 5] for start in range(0, len(buttons), 5)]
        return {
            "content": "",
            "embeds": [_embed(notice)],
            "components": [{"type": 1, "components": row} for row in rows],
            "allowed_mentions": {"parse": []},
        }


def _embed(notice: RequestNotice) -> dict[str, Any]:
    risk = " · HIGH RISK" if notice.is_high_risk else ""
    lines = [block(notice.action)]
    if notice.is_open:
        # Discord shows these in the reader's own time, the second as a countdown.
        at = int(notice.expires_s)
        lines.append(f"Decide before <t:{at}:T> (<t:{at}:R>); silence is a denial.")
    lines += [plain(line) for line in (notice.progress, notice.outcome) if line]
    lines.append(f"Token: {plain(notice.principal or 'none (open mode)')}")
    if notice.was_cut and notice.is_open:
        lines.append("**Too long for a message: read it whole on the page to approve it.**")
    if notice.link and not notice.has_public_link:
        lines.append(f"Page (on that machine): {plain(notice.link)}")
    said = [f"{notice.requester}: {notice.description}", notice.details]
    lines += ["", f"*{AGENT_MARK}*", *(block(part) for part in said if part)]
    return {
        "title": f"{notice.headline}{risk}"[:256],
        "description": "\n".join(lines)[:4096],
        "color": _COLORS.get(notice.state, _GREY),
        "footer": {"text": f"request {notice.request_id} · digest {notice.digest[:12]}"},
    }


def plain(text: str) -> str:
    """Write text so that Discord's Markdown takes every character as it stands."""
    return "".join(f"\\{c}" if c in "\\`*_~|>#-[]()<@:+." else c for c in text)


def block(text: str) -> str:
    """Put text into a code block that it can't end: the third back-tick of a run is written as its code."""
    kept: list[str] = []
    run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        kept.append("<U+0060>" if run == 3 else character)
        run = 0 if run == 3 else run
    # A back-tick at either end would join the fence.
    return "```\n" + "".join(kept) + "\n```"
