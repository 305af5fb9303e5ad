"""Slack: an app that posts into one channel and hears its buttons in Socket Mode.

Socket Mode is a websocket that we open, so nothing of ours must be reachable from the internet; the other
way, a signed request URL, would put a listener of the confirmation service there. What the agent wrote goes
into `rich_text_preformatted` elements, which Slack does not parse at all: no links, no mentions, no markup.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from whet.confirm.notify import plain
from whet.confirm.notify.buttons import Buttons
from whet.confirm.notify.channel import OnPress, Press, Reply, SendFailed
from whet.confirm.notify.notice import AGENT_MARK, Notice
from whet.confirm.notify.vendor_http import VendorHttp, read, refused
from whet.confirm.notify.vendor_socket import Socket, SocketClosed, converse

BASE_URL = "https://slack.com/api"
_RETRY_S = 5.0
_TRANSIENT = frozenset(
    ("ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
)
_STYLES = {"approve": "primary", "deny": "danger"}
_LOG = logging.getLogger(__name__)


class _Answer(msgspec.Struct):
    ok: bool = False
    error: str = ""
    channel: str = ""
    ts: str = ""
    url: str = ""


class _User(msgspec.Struct):
    id: str = ""
    username: str = ""


class _Action(msgspec.Struct):
    value: str = ""


class _Room(msgspec.Struct):
    id: str = ""


class _Payload(msgspec.Struct):
    type: str = ""
    user: _User = msgspec.field(default_factory=_User)
    channel: _Room = msgspec.field(default_factory=_Room)
    actions: list[_Action] = msgspec.field(default_factory=list[_Action])


class _Envelope(msgspec.Struct):
    type: str = ""
    envelope_id: str = ""
    payload: _Payload = msgspec.field(default_factory=_Payload)


class Slack:
    """One app in one channel: a bot token (xoxb-) to post, an app token (xapp-) to hear."""

    can_update = True

    def __init__(
        self, name: str, tokens: tuple[str, str], chat: str, buttons: Buttons, base_url: str = BASE_URL
    ) -> None:
        self.name = name
        self._chat = chat
        self._buttons = buttons
        self._bot = VendorHttp("Slack", base_url, {"authorization": f"Bearer {tokens[0]}"})
        self._app = VendorHttp("Slack", base_url, {"authorization": f"Bearer {tokens[1]}"})

    async def send(self, notice: Notice) -> str:
        """Post the message; give channel and time stamp. Raises SendFailed."""
        body = {"channel": self._chat, **self._message(notice)}
        result = await _call(self._bot, "chat.postMessage", body)
        return f"{result.channel}/{result.ts}"

    async def update(self, where: str, notice: Notice) -> None:
        """Change the message, buttons included. Raises SendFailed."""
        chat, _, stamp = where.partition("/")
        await _call(self._bot, "chat.update", {"channel": chat, "ts": stamp, **self._message(notice)})

    async def listen(self, on_press: OnPress) -> None:
        """Hear presses until cancelled. Raises SendFailed when Slack refuses the app for good."""

        async def talk(socket: Socket) -> None:
            while await self._hear(socket, read(await socket.receive(), _Envelope), on_press):
                pass

        while True:
            try:
                opened = await _call(self._app, "apps.connections.open", {})
                await converse(self._app.client, opened.url, talk)
                continue  # Slack asked for a new connection, as it does every few hours
            except SocketClosed as error:
                _LOG.warning("channel %s hears no presses: %s", self.name, error)
                delay_s = _RETRY_S
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears no presses: %s", self.name, error.reason)
                delay_s = error.retry_after_s or _RETRY_S
            await asyncio.sleep(delay_s)

    async def aclose(self) -> None:
        """Close connections."""
        await self._bot.aclose()
        await self._app.aclose()

    async def _hear(self, socket: Socket, envelope: _Envelope | None, on_press: OnPress) -> bool:
        if envelope is None:
            return True
        if envelope.type == "disconnect":
            return False
        if envelope.envelope_id:
            # Within three seconds, or Slack sends it again; deciding twice is harmless, a late answer is not.
            await socket.send({"envelope_id": envelope.envelope_id})
        if envelope.type == "interactive":
            await self._answer(envelope.payload, on_press)
        return True

    async def _answer(self, payload: _Payload, on_press: OnPress) -> None:
        data = payload.actions[0].value if payload.actions else ""
        if payload.type != "block_actions" or not data:
            return  # the link button comes as a press too
        press = Press(self.name, "slack", payload.user.id, payload.user.username, data)
        reply = Reply("Something went wrong here; the request is undecided. Use the page.")
        try:
            reply = await on_press(press)
        finally:
            chat = payload.channel.id or self._chat
            body = {"channel": chat, "user": payload.user.id, "text": escape(reply.text)[:2900]}
            try:
                await _call(self._bot, "chat.postEphemeral", body)
            except SendFailed as error:
                _LOG.warning("channel %s could not answer a press: %s", self.name, error.reason)

    def _message(self, notice: Notice) -> dict[str, Any]:
        elements: list[dict[str, Any]] = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": b.label},
                "action_id": f"press-{number}",
                "value": b.data,
                "style": _STYLES[b.verdict],
            }
            for number, b in enumerate(self._buttons.of(notice))
        ]
        if notice.has_public_link:
            label = {"type": "plain_text", "text": "Open the page"}
            elements.append({"type": "button", "text": label, "action_id": "page", "url": notice.link})
        blocks = _blocks(notice)
        if elements:
            blocks.append({"type": "actions", "elements": elements})
        return {
            "text": escape(plain.title(notice))[:2900],
            "blocks": blocks,
            "unfurl_links": False,
            "unfurl_media": False,
            "parse": "none",
            "link_names": False,
        }


def _blocks(notice: Notice) -> list[dict[str, Any]]:
    risk = "  :warning: HIGH RISK" if notice.is_high_risk else ""
    lines: list[str] = []
    if notice.is_open:
        # Slack shows this in the reader's own time.
        at = f"<!date^{int(notice.expires_s)}^{{time_secs}}|{escape(notice.deadline)}>"
        lines.append(f"Decide before *{at}*; silence is a denial.")
    lines += [escape(line) for line in (notice.progress, notice.outcome) if line]
    lines.append(f"Token: {escape(notice.principal or 'none (open mode)')}")
    if notice.was_cut and notice.is_open:
        lines.append("*Too long for a message: read it whole on the page to approve it.*")
    if notice.link and not notice.has_public_link:
        lines.append(f"Page (on that machine): {escape(notice.link)}")
    said = [f"{notice.requester}: {notice.description}", notice.details]
    # Letters and digits of ours; escaping would put unseen characters into what is copied.
    footer = f"request `{notice.request_id}` digest `{notice.digest[:12]}`"
    return [
        {"type": "header", "text": {"type": "plain_text", "text": f"{notice.headline}{risk}"[:150]}},
        {"type": "rich_text", "elements": [_verbatim(notice.action)]},
        {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)[:3000], "verbatim": True}},
        {"type": "context", "elements": [{"type": "plain_text", "text": AGENT_MARK}]},
        {"type": "rich_text", "elements": [_verbatim(part) for part in said if part]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": footer, "verbatim": True}]},
    ]


def _verbatim(text: str) -> dict[str, Any]:
    return {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text or " "}]}


def escape(text: str) -> str:
    """Write text for mrkdwn so that none of it is a mention, a link or markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Slack has no escape for these; a zero-width space after each keeps them as they look.
    return "".join(f"{c}\u200b" if c in "*_~`@" else c for c in text)


async def _call(http: VendorHttp, method: str, body: dict[str, Any]) -> _Answer:
    answer = await http.call("POST", f"/{method}", body)
    said = answer.read(_Answer) or _Answer()
    if answer.status == 200 and said.ok:
        return said
    reason = said.error
    if answer.status == 200:  # Slack says most errors with 200
        raise SendFailed(
            f"Slack answered: {reason or 'something that is not its protocol'}",
            is_final=bool(reason) and reason not in _TRANSIENT,
            retry_after_s=answer.retry_after_s,
        )
    raise refused("Slack", answer, reason)
