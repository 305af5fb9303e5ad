"""Send messages to devices through their push services (RFC 8030), each device as a channel of the notifier.

The push service's address comes from the browser of a signed-in person. Like every address from outside, it
is resolved once and must be public and https. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from urllib.parse import urlsplit

import msgspec

from whet.contract.channels import SendFailed
from whet.contract.errors import ConfigError, NotFound
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet_confirm.addresses import AddressRefused, check_literal, resolve, split_callback_url
from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.notice import OnPress, RequestNotice
from whet_confirm.push import devices
from whet_confirm.push.devices import PushDevice
from whet_confirm.push.encryption import ServiceIdentity, encrypt_message
from whet_confirm.push.message import MAX_PAYLOAD_BYTES, PushMessage, build_message
from whet_confirm.push.settings import PushSettings
from whet_confirm.service import ConfirmService

MAX_ENDPOINT_CHARS = 2_000
_TIMEOUT_S, _DEADLINE_S, _IDLE_S = 15.0, 25.0, 3.0
_OUTCOME_TTL_S = 24 * 3600
_SHORTEST_TTL_S = 5


def check_endpoint(url: str, settings: PushSettings) -> None:
    """Raise ValueError if an address can't belong to a push service. Each message checks its host again."""
    try:
        parts = split_callback_url(url)
        check_literal(url, allow_private=settings.allow_private)
    except AddressRefused as error:
        raise ValueError(f"the push service's address is refused: {error.message}") from error
    if len(url) > MAX_ENDPOINT_CHARS or (parts.scheme != "https" and not settings.allow_private):
        raise ValueError("the push service's address is not a short https address")


class PushSender:
    """Sends messages to devices. All devices of a service share one, and so its connections."""

    def __init__(self, service: ConfirmService, settings: PushSettings) -> None:
        self.service = service
        self.settings = settings
        self.identity: ServiceIdentity = ServiceIdentity(service.key)
        limits = Limits(_TIMEOUT_S, silence_s=_TIMEOUT_S, idle_s=_IDLE_S, max_idle=8)
        self._client = HttpClient(limits, uses_proxy=False)

    async def send(self, device: PushDevice, message: PushMessage, ttl_s: int) -> None:
        """Send a message. Returns when the push service has accepted it. Raises SendFailed."""
        body = msgspec.json.encode(message)
        if len(body) > MAX_PAYLOAD_BYTES:
            raise SendFailed("the message is too long for a push service", is_final=True)
        parts = urlsplit(device.endpoint)
        origin, now_s = f"{parts.scheme}://{parts.netloc}", self.service.timeline.now_s()
        headers = {
            "authorization": self.identity.authorize(origin, self.settings.contact, now_s),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(max(ttl_s, _SHORTEST_TTL_S)),
            "urgency": "high" if message.is_open else "normal",
            "user-agent": "whet",
        }
        if message.request:  # a newer message about the request replaces one that waits at the push service
            headers["topic"] = message.request[:32]
        try:
            target = await resolve(device.endpoint, allow_private=self.settings.allow_private)
            request = Request(
                "POST",
                target.url,
                headers,
                encrypt_message(body, device.public_key, device.secret),
                host=target.host_header,
                server_name=target.server_name,
            )
            async with asyncio.timeout(_DEADLINE_S), self._client.exchange(request) as answer:
                text = (await answer.read(2_000)).decode("utf-8", "replace")
        except AddressRefused as error:
            raise SendFailed(error.message, is_final=True) from error
        except TimeoutError as error:
            raise SendFailed("the push service did not answer in time", maybe_sent=True) from error
        except (ConfigError, HttpFailed, OSError, ValueError) as error:
            raise SendFailed(f"{type(error).__name__}: {error}"[:300]) from error
        if not 200 <= answer.status < 300:
            raise _build_error(answer.status, answer.headers.get("retry-after", ""), text)

    async def aclose(self) -> None:
        """Close connections."""
        async with aclosing(self._client):
            pass


def _build_error(status: int, retry_after: str, text: str) -> SendFailed:
    wait_s = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else None
    line = " ".join(text.split())[:150]
    return SendFailed(
        f"the push service answered {status}{f': {line}' if line else ''}",
        is_final=400 <= status < 500 and status not in (408, 425, 429),
        retry_after_s=wait_s,
        status=status,
    )


class DeviceChannel:
    """One device as a channel of the notifier."""

    can_update = True

    def __init__(self, sender: PushSender, device: PushDevice, buttons: Buttons) -> None:
        self.name: str = device.channel
        self.device = device
        self._sender = sender
        self._buttons = buttons

    async def send(self, notice: RequestNotice) -> str:
        """Send the request, or a trial, and return a reference. Raises SendFailed."""
        service = self._sender.service
        message = build_message(notice, self.device, service.key, self._buttons)
        left_s = notice.expires_s - service.timeline.now_s()
        try:
            await self._sender.send(self.device, message, int(left_s) if notice.is_open else _OUTCOME_TTL_S)
        except SendFailed as error:
            if error.status in (404, 410):
                await self._forget(error.status)
            raise
        return notice.request_id

    async def update(self, message_ref: str, notice: RequestNotice) -> None:
        """Replace the notification with the request's new state. Raises SendFailed."""
        await self.send(notice)

    async def listen(self, on_press: OnPress) -> None:
        """Return at once: the device sends presses to the web page."""

    async def aclose(self) -> None:
        """Do nothing: the connections are the sender's."""

    async def _forget(self, status: int) -> None:
        """Remove a device whose subscription has ended, because the person withdrew the permission."""
        service, reason = self._sender.service, f"its push service answered {status}"
        try:
            await service.change(
                lambda tx: devices.remove(tx, self.device.id, by="system:notify", why=reason)
            )
        except NotFound:
            return  # removed meanwhile
