"""Notices in a chat of any platform: a card with buttons that is edited when the request changes.

If a platform has no buttons, the message contains the link to the page. If it does not support cards, the
same content is sent as Markdown, with the agent's text in code blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from whet.contract.channels import (
    TOO_LONG,
    Channel,
    ChatPlace,
    Incoming,
    MessageButton,
    MessageCard,
    Outgoing,
    SendFailed,
    Verb,
)
from whet.markdown import code_block, escape_markdown
from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.notice import AGENT_MARK, HIDDEN, TRIAL_MARK, OnPress, RequestNotice

_LOG = logging.getLogger(__name__)
_WANTS: frozenset[Verb] = frozenset(("press",))
_TONES = {"pending": "open", "approved": "good", "denied": "bad"}


class NoMemo:
    """A store that forgets everything: a press that was missed while the service was down is lost."""

    async def get(self, name: str = "") -> str:
        """Return an empty string."""
        return ""

    async def all(self) -> dict[str, str]:
        """Return an empty dict."""
        return {}

    async def set(self, value: str, name: str = "") -> None:
        """Store nothing."""


class ChatNotices:
    """One chat of a platform, which may share its bot with others."""

    def __init__(self, name: str, channel: Channel, chat: str, buttons: Buttons) -> None:
        self.name: str = name
        self.can_update: bool = channel.limits.can_edit
        self._channel = channel
        self._chat = chat
        self._buttons = buttons

    async def send(self, notice: RequestNotice) -> str:
        """Post the message and return its chat and id. Raises SendFailed."""
        # If the platform drops repetitions, a repeated send after a lost answer returns the first message.
        ref = await self._channel.send(
            ChatPlace(self.name, self._chat), self._message(notice), notice.request_id
        )
        return f"{self._chat}/{ref}" if ref else ""

    async def update(self, message_ref: str, notice: RequestNotice) -> None:
        """Edit the message, including its buttons. Raises SendFailed."""
        chat, _, ref = message_ref.partition("/")
        await self._channel.edit(ChatPlace(self.name, chat), ref, self._message(notice))

    async def listen(self, on_press: OnPress) -> None:
        """Handle presses until cancelled. Raises SendFailed if the platform refuses us for good."""

        async def take(presses: Sequence[Incoming]) -> None:
            for press in presses:
                await self._answer(press, on_press)

        await self._channel.listen(take, NoMemo(), _WANTS)

    async def aclose(self) -> None:
        """Close connections."""
        await self._channel.aclose()

    async def _answer(self, press: Incoming, on_press: OnPress) -> None:
        text = "Something went wrong here; the request is undecided. Use the page."
        try:
            text = await on_press(press)
        finally:  # always: a person is waiting for the button's answer
            try:
                await self._channel.answer(press, text, is_alert=True)
            except SendFailed as error:
                _LOG.warning("channel %s could not answer a press: %s", self.name, error.reason)

    def _message(self, notice: RequestNotice) -> Outgoing:
        limits = self._channel.limits
        card = build_card(notice, has_buttons=limits.has_buttons)
        text = render_markdown(card)
        if len(text) > limits.message_chars and not limits.shows_cards:
            # An approval requires the whole text.
            notice = msgspec.structs.replace(
                notice, was_cut=True, may_approve=False, description="", details=""
            )
            card = build_card(notice, has_buttons=limits.has_buttons)
            text = render_markdown(card)
        buttons = self._buttons.make_buttons(notice) if limits.has_buttons else []
        if notice.has_public_link and limits.has_buttons:
            buttons.append(MessageButton("Open the page", "", url=notice.link))
        return Outgoing(text, tuple(buttons), card=card)


def build_card(notice: RequestNotice, *, has_buttons: bool = True) -> MessageCard:
    """Build a card from a notice. The link is in the text if no button opens it."""
    texts = (f"{notice.requester}: {notice.description}", notice.details)
    is_dangerous = notice.risk.startswith("Dangerous")
    token = "" if notice.is_trial else f"Token: {notice.principal or 'none (open mode)'}"
    offers = "; ".join(offer.text for offer in notice.offers) if notice.may_approve and has_buttons else ""
    granting = f"With an approval, others of this action and token may pass: {offers}." if offers else ""
    lines = (notice.risk, notice.warning, notice.progress, granting, notice.outcome, token)
    address = ""
    if notice.link and not (notice.has_public_link and has_buttons):
        address = f"Page{'' if notice.has_public_link else ' (on that machine)'}: {notice.link}"
    return MessageCard(
        title=notice.headline,
        subject=notice.action,
        tone=_TONES.get(notice.state, "plain"),  # type: ignore[arg-type]
        alarm="HIGH RISK" if notice.is_high_risk else "DANGEROUS" if is_dangerous else "",
        deadline="Decide before {}; silence is a denial." if notice.is_open else "",
        at=notice.deadline,
        at_s=notice.expires_s,
        lines=tuple(filter(None, lines)),
        ids=(("trial", notice.request_id),) if notice.is_trial else _ids(notice),
        warning=_warning(notice) if notice.is_open else "",
        address=address,
        mark=TRIAL_MARK if notice.is_trial else AGENT_MARK,
        quoted=tuple(filter(None, texts)),
    )


def _ids(notice: RequestNotice) -> tuple[tuple[str, str], ...]:
    return ("request", notice.request_id), ("digest", notice.digest[:12])


def _warning(notice: RequestNotice) -> str:
    if notice.was_cut:
        return TOO_LONG
    return HIDDEN if notice.is_hidden else ""


def render_markdown(card: MessageCard) -> str:
    """Format a card as Markdown that none of its content can break out of."""
    ids = " · ".join(f"{name} `{value}`" for name, value in card.ids)
    parts = [
        f"**{card.title}**{f' · **{card.alarm}**' if card.alarm else ''}",
        code_block(card.subject),
        *([card.deadline.format(f"**{card.at}**")] if card.deadline else []),
        *map(escape_markdown, card.lines),
        *([f"**{card.warning}**"] if card.warning else []),
        *([card.address] if card.address else []),
        ids,
        f"*{card.mark}*",
        *map(code_block, card.quoted),
    ]
    return "\n".join(parts)
