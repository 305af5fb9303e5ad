"""Buttons: the data in each, and how a press is parsed.

A button's data is `verb:id:mac`. The MAC binds verb, id, digest, channel and deny reason with a key of
this service, so a press is refused if it was forged, moved to another request or channel, or if its deny
reason has changed since. No state is stored for a button.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Literal

import msgspec

from whet.contract.channels import MessageButton
from whet_confirm.notify.notice import RequestNotice

MAX_BYTES = 64  # Telegram's limit for callback_data; the others allow more
DENY_REASONS = ("too broad", "wrong target", "not now")
_GRANT_VERBS = {"gs": "session", "gh": "hour", "go": "host", "gt": "times"}
_VERBS = {kind: verb for verb, kind in _GRANT_VERBS.items()}
_STOP = "gx"
_MAC_BYTES = 16

Verdict = Literal["approve", "deny"]


class ButtonPress(msgspec.Struct, frozen=True):
    """The parsed data of a press; trusted only after `Buttons.is_ours`."""

    verb: str
    request_id: str
    mac: str


class PressMeaning(msgspec.Struct, frozen=True):
    """The meaning of a button: a verdict, with a deny reason or a grant; or the end of a running grant."""

    verdict: Verdict
    reason: str = ""
    grant: str = ""
    is_stop: bool = False


class Buttons:
    """Creates the buttons of one channel and verifies presses."""

    def __init__(self, key: bytes, channel: str, reasons: Sequence[str] = DENY_REASONS) -> None:
        self._key = key
        self._channel = channel
        self._reasons = tuple(reasons)[:3]

    def make_buttons(self, notice: RequestNotice) -> list[MessageButton]:
        """Return the buttons of a notice.

        An open request has approve and its grants (if that is allowed here), deny, and deny with each reason.
        A running grant has the button that stops it.
        """
        if notice.grant_id:
            return [MessageButton("■ Stop the grant", self._data(_STOP, notice), "bad")]
        if not notice.is_open:
            return []
        buttons: list[MessageButton] = []
        if notice.may_approve:
            buttons.append(MessageButton("✓ Approve", self._data("a", notice), "good"))
            for offer in notice.offers:
                data = self._data(_VERBS[offer.kind], notice)
                buttons.append(MessageButton(f"✓ {offer.label}", data, "good"))
        buttons.append(MessageButton("✗ Deny", self._data("d", notice), "bad"))
        for number, reason in enumerate(self._reasons):
            buttons.append(MessageButton(f"✗ {reason}"[:40], self._data(f"d{number}", notice), "bad"))
        return buttons

    def parse_press(self, data: str) -> ButtonPress | None:
        """Parse a press. Returns None if it can't be from one of our buttons."""
        parts = data.split(":")
        if len(data) > MAX_BYTES or len(parts) != 3 or not all(parts):
            return None
        verb, request_id, mac = parts
        is_verb = verb in ("a", _STOP) or verb in _GRANT_VERBS or self._reason(verb) is not None
        return ButtonPress(verb, request_id, mac) if is_verb else None

    def is_ours(self, pressed: ButtonPress, digest: str) -> bool:
        """Return whether this service made the button, on this channel, for a request with this digest."""
        expected = self._mac(pressed.verb, pressed.request_id, digest)
        return hmac.compare_digest(expected.encode(), pressed.mac.encode("utf-8", "replace"))

    def meaning_of(self, pressed: ButtonPress) -> PressMeaning:
        """Return the meaning of a button."""
        if pressed.verb == "a" or pressed.verb in _GRANT_VERBS:
            return PressMeaning("approve", grant=_GRANT_VERBS.get(pressed.verb, ""))
        if pressed.verb == _STOP:
            return PressMeaning("deny", is_stop=True)
        return PressMeaning("deny", self._reason(pressed.verb) or "")

    def _reason(self, verb: str) -> str | None:
        if verb == "d":
            return ""
        number = "012".find(verb[1:]) if len(verb) == 2 and verb[0] == "d" else -1
        return self._reasons[number] if 0 <= number < len(self._reasons) else None

    def _data(self, verb: str, notice: RequestNotice) -> str:
        return f"{verb}:{notice.request_id}:{self._mac(verb, notice.request_id, notice.digest)}"

    def _mac(self, verb: str, request_id: str, digest: str) -> str:
        text = "\n".join((self._channel, verb, self._reason(verb) or "", request_id, digest))
        mac = hmac.digest(self._key, text.encode(), hashlib.sha256)[:_MAC_BYTES]
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
