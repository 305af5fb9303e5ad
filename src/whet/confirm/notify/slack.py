"""Slack: an app that posts into one channel and hears its buttons in Socket Mode.

Socket Mode is a websocket that we open, so nothing of ours must be reachable from the internet; the other
way, a signed request URL, would put a listener of the confirmation service there. What the agent wrote goes
into `rich_text_preformatted` elements, which Slack does not parse at all: no links, no mentions, no markup.
"""

from __future__ import annotations

import logging
from typing import Any

from whet.confirm.notify import plain
from whet.confirm.notify.buttons import Buttons
from whet.confirm.notify.channel import ButtonPress, OnPress, PressReply
from whet.confirm.notify.notice import AGENT_MARK, RequestNotice
from whet.vendors import slack
from whet.vendors.http import SendFailed, read
from whet.vendors.slack import Acknowledge, SlackApi, SlackEnvelope

_STYLES = {"approve": "primary", "deny": "danger"}
_LOG = logging.getLogger(__name__)


class SlackNotifier:
    """One app in one channel: a bot token (xoxb-) to post, an app token (xapp-) to hear."""

    can_update = True

    def __init__(
        self, name: str, tokens: tuple[str, str], chat: str, buttons: Buttons, base_url: str = ""
    ) -> None:
        self.name = name
        self._chat = chat
        self._buttons = buttons
        self._api = SlackApi(name, tokens, base_url)

    async def send(self, notice: RequestNotice) -> str:
        """Post the message; give channel and time stamp. Raises SendFailed."""
        body = {"channel": self._chat, **self._message(notice)}
        result = await self._api.call("chat.postMessage", body)
        return f"{result.channel}/{result.ts}"

    async def update(self, where: str, notice: RequestNotice) -> None:
        """Change the message, buttons included. Raises SendFailed."""
        chat, _, stamp = where.partition("/")
        await self._api.call("chat.update", {"channel": chat, "ts": stamp, **self._message(notice)})

    async def listen(self, on_press: OnPress) -> None:
        """Hear presses until cancelled. Raises SendFailed when Slack refuses the app for good."""

        async def take(envelope: SlackEnvelope, acknowledge: Acknowledge) -> None:
            # Within three seconds, or Slack sends it again; deciding twice is harmless, a late answer is not.
            await acknowledge()
            press = (
                read(bytes(envelope.payload), slack.SlackPress) if envelope.type == "interactive" else None
            )
            if press is not None and press.data:  # the link button comes as a press too
                await self._answer(press, on_press)

        await self._api.hear(take)

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    async def _answer(self, payload: slack.SlackPress, on_press: OnPress) -> None:
        press = ButtonPress(self.name, "slack", payload.user.id, payload.user.username, payload.data)
        reply = PressReply("Something went wrong here; the request is undecided. Use the page.")
        try:
            reply = await on_press(press)
        finally:
            chat = payload.channel.id or self._chat
            body = {"channel": chat, "user": payload.user.id, "text": escape(reply.text)[:2900]}
            try:
                await self._api.call("chat.postEphemeral", body)
            except SendFailed as error:
                _LOG.warning("channel %s could not answer a press: %s", self.name, error.reason)

    def _message(self, notice: RequestNotice) -> dict[str, Any]:
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


def _blocks(notice: RequestNotice) -> list[dict[str, Any]]:
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
