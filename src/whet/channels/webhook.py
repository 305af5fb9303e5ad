"""Connect any program as a channel by a signed webhook: it posts messages to us, and we post to its address.

Both directions are signed according to Standard Webhooks 1.0, with one secret. A message is stored and then
answered with 202. The same `webhook-id` means the same message. An outgoing message that is sent again keeps
its id, so that the receiver can drop it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import time
from typing import Any, Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from whet.channels.transfer import read_file
from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.contract.errors import ConfigError, StoreError
from whet.contract.texts import from_foreign_json
from whet.vendors.http import VendorHttp, refused
from whet.vendors.signing import sign_headers, webhook_key
from whet.web.listening import SiteServer, listen, make_config

_TOLERANCE_S = 300
_MAX_BYTES = 8_000_000
_MAX_QUOTED_CHARS = 4_000
_LOG = logging.getLogger(__name__)


class WebhookSettings(msgspec.Struct, frozen=True):
    """The settings of a webhook `[[channel]]`: the address to listen on, and the URL to post to."""

    token_env: str = "GATEWAY_WEBHOOK_SECRET"
    listen: str = "127.0.0.1:6090"
    url: str = ""


class _File(msgspec.Struct):
    base64: str
    name: str = ""
    type: str = ""


class _Data(msgspec.Struct):
    conversation: str
    user: str
    text: str = ""
    thread: str = ""
    name: str = ""
    message: str = ""
    group: bool = False
    mentions_us: bool = True
    files: list[_File] = msgspec.field(default_factory=list[_File])
    quoted: str = ""
    album: str = ""
    forwarded: bool = False
    removed: bool = False


class _Body(msgspec.Struct):
    data: _Data
    type: Literal["message", "press", "edit", "reaction"] = "message"


class Webhook:
    """A channel to one program."""

    limits: PlatformLimits = PlatformLimits(
        60_000,
        edit_every_s=1.0,
        group_edit_every_s=1.0,
        idempotent_s=86_400.0,
        can_edit=False,
        pasted_chars=1_500,
        forward_s=0.35,
    )

    def __init__(self, name: str, secret: str, settings: WebhookSettings) -> None:
        self.name = name
        self._key = webhook_key(name, secret)
        self._http = VendorHttp("the webhook", settings.url)
        host, _, port = settings.listen.rpartition(":")
        if not port.isdecimal() or not host or not settings.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"channel {name} needs listen and url", hint='listen = "127.0.0.1:6090", url = "https://..."'
            )
        self._address = (host.strip("[]"), int(port))
        self._take: Take | None = None

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Serve until cancelled. Raises SendFailed if the address can't be used."""
        self._take = take
        try:
            listener = listen(*self._address)
        except ConfigError as error:
            raise SendFailed(error.message, is_final=True) from error
        site = Starlette(routes=[Route("/", self._receive, methods=["POST"])])
        config = make_config(site, 1.0)
        server = SiteServer(config, lambda: None, lambda: None, takes_signals=False)
        try:
            await take([])
            await server.serve([listener])
        finally:
            server.stop()
            listener.close()

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Post a message. Raises SendFailed if the answer is not 2xx."""
        data: dict[str, Any] = {
            "id": key,
            "conversation": place.chat,
            "thread": place.thread,
            "user": place.user,
            "text": message.text,
            "quiet": message.quiet,
            "buttons": [{"label": button.label, "data": button.data} for button in message.buttons],
        }
        if message.file:
            content = await read_file(message)
            data["file"] = {"name": message.file_name, "base64": base64.b64encode(content).decode()}
        at_s = int(time.time())
        body = msgspec.json.encode({"type": "message", "timestamp": at_s, "data": data})
        headers = {"content-type": "application/json", **sign_headers(self._key, f"msg_{key}", at_s, body)}
        answer = await self._http.raw("POST", "", body, headers, 30.0)
        if not 200 <= answer.status < 300:
            raise refused("the webhook", answer, "")
        return key

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Refuse: a webhook's messages can't be edited."""
        raise SendFailed("a webhook's message can't be changed", is_final=True)

    async def typing(self, place: ChatPlace) -> None:
        """Do nothing."""

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Return a file that came with its message."""
        try:
            data = base64.b64decode(file.where, validate=True)
        except binascii.Error:
            raise SendFailed("it is not base64", is_final=True) from None
        if len(data) > max_bytes:
            raise SendFailed(f"it is larger than {max_bytes // 1_000_000} MB", is_final=True)
        return data

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Do nothing: the press was answered with 202."""

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _receive(self, request: Request) -> JSONResponse:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BYTES:
                return _error_response(413, f"more than {_MAX_BYTES:,} bytes")
        headers = request.headers
        message_id = headers.get("webhook-id", "")
        if not self._is_signed(message_id, headers, bytes(body)):
            return _error_response(401, "the signature is missing, wrong or too old")
        try:
            message = from_foreign_json(bytes(body), _Body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _error_response(400, str(error)[:200])
        if not message.data.conversation or not message.data.user:
            return _error_response(400, "conversation and user may not be empty")
        assert self._take is not None  # set before the socket listens
        try:
            await self._take([self._make_incoming(message_id, message)])
        except StoreError as error:
            _LOG.warning("channel %s: %s", self.name, error.message)
            return _error_response(503, "it could not be stored; try again")
        return JSONResponse({"stored": True}, 202)

    def _is_signed(self, message_id: str, headers: Any, body: bytes) -> bool:
        stamp = headers.get("webhook-timestamp", "")
        if not message_id or len(message_id) > 200 or not stamp.isdecimal() or len(stamp) > 12:
            return False
        if abs(time.time() - int(stamp)) > _TOLERANCE_S:
            return False
        expected = sign_headers(self._key, message_id, int(stamp), body)["webhook-signature"]
        signatures = headers.get("webhook-signature", "").split()
        return any(
            hmac.compare_digest(expected.encode(), signature.encode()) for signature in signatures[:10]
        )

    def _make_incoming(self, message_id: str, message: _Body) -> Incoming:
        data = message.data
        return Incoming(
            ChatPlace(self.name, data.conversation[:200], data.thread[:200], data.user[:200], data.group),
            message_id,
            message.type,
            data.name[:200],
            wrap_in_tag("forwarded", data.text) if data.forwarded and data.text else data.text,
            tuple(FileRef(file.base64, file.name, file.type) for file in data.files),
            mentions_us=data.mentions_us,
            ref=data.message or message_id,
            quoted=data.quoted[:_MAX_QUOTED_CHARS],
            album=data.album[:200],
            is_forward=data.forwarded,
            is_removed=data.removed,
        )


PLATFORM = Platform(WebhookSettings, lambda name, settings, tokens: Webhook(name, tokens[0], settings))


def _error_response(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)
