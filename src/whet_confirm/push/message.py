"""Build a push message: the text and buttons of a notification, and the codes with which the device answers.

A notification can decide a request only if it shows all of it, the request is not high risk, and Whet does
not read its commands as dangerous. Any other notification opens the page.
"""

from __future__ import annotations

import hmac

import msgspec

from whet_confirm.keys import SigningKey, base64url
from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.notice import RequestNotice, agent_lines
from whet_confirm.push.devices import PushDevice, Receipt
from whet_confirm.shown import count_units

SHOWN_CHARS, SHOWN_LINES = 180, 4  # every system shows at least this much of an opened notification
MAX_PAYLOAD_BYTES = 3_900
_TITLE_CHARS = 32
_TOO_LONG = "Open it to see all of it."


class PushAction(msgspec.Struct, frozen=True):
    """A button of a notification. `press` is its code; empty for a button that opens the page."""

    action: str
    title: str
    press: str = ""


class PushMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message that the service worker of a device reads. `receipts` are its codes by kind of receipt."""

    device: str
    request: str
    title: str
    body: str
    path: str = "/"
    actions: tuple[PushAction, ...] = ()
    receipts: dict[str, str] = {}
    is_open: bool = False
    is_urgent: bool = False


def receipt_code(key: SigningKey, request_id: str, device_id: str, receipt: Receipt) -> str:
    """Return the code with which only this device can acknowledge this request."""
    text = f"whet-receipt/1\n{request_id}\n{device_id}\n{receipt}"
    return base64url(key.make_code(text.encode())[:16])


def is_receipt_code(key: SigningKey, names: tuple[str, str], receipt: Receipt, code: str) -> bool:
    """Return whether a code is the receipt code of `names`, a request id and a device id."""
    expected = receipt_code(key, *names, receipt)
    return hmac.compare_digest(expected.encode(), code.encode("utf-8", "replace"))


def build_message(
    notice: RequestNotice, device: PushDevice, key: SigningKey, buttons: Buttons
) -> PushMessage:
    """Build the message about a request in its current state for one device."""
    receipts = {kind: receipt_code(key, notice.request_id, device.id, kind) for kind in ("delivered", "seen")}
    alarm = "HIGH RISK: " if notice.is_high_risk else ""
    message = PushMessage(
        device=device.id,
        request=notice.request_id,
        title=f"{alarm}{notice.headline}: {notice.action}"[:120],
        body=notice.outcome if not notice.is_open else "",
        path=f"/r/{notice.request_id}",
        receipts={} if notice.is_trial else receipts,
        is_open=notice.is_open,
        is_urgent=notice.is_high_risk,
    )
    if notice.is_trial:
        return msgspec.structs.replace(message, body=notice.description, path="/devices")
    if not notice.is_open:
        return message
    body, is_whole = _body(notice)
    actions = (PushAction("open", "Open"),)
    if is_whole and may_decide(notice):
        codes = {button.data.partition(":")[0]: button.data for button in buttons.make_buttons(notice)}
        actions = (
            PushAction("approve", "Approve", codes["a"]),
            PushAction("deny", "Deny", codes["d"]),
        )
    return msgspec.structs.replace(message, body=body, actions=actions)


def may_decide(notice: RequestNotice) -> bool:
    """Return whether a notification's buttons may decide a request."""
    is_plain = not (notice.is_high_risk or notice.warning or notice.is_alarming)
    return notice.is_open and notice.may_approve and is_plain


def _body(notice: RequestNotice) -> tuple[str, bool]:
    """Return the text of a notification, and whether it shows the whole request."""
    details = " ".join(line.strip() for line in notice.details.split("\n"))
    agent_text = "\n".join(filter(None, (notice.description, details)))
    name = notice.principal or "anonymous"
    if notice.requester not in ("", notice.principal):
        name = f"{name} (calls itself {notice.requester})"
    text = f"{name} asks, in its own words:\n{agent_lines(agent_text)}"
    title_fits = count_units(notice.action) <= _TITLE_CHARS
    if title_fits and count_units(text) <= SHOWN_CHARS and text.count("\n") < SHOWN_LINES:
        return text, True
    lines = (f"{name[:80]} asks.", notice.risk[:150] if notice.is_alarming else "", _TOO_LONG)
    return "\n".join(filter(None, lines)), False
