"""Telegram's Bot API: calls, uploads and long polling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from whet.contract.channels import SendFailed
from whet.vendors.http import VendorAnswer, VendorHttp, read, refused

_BASE_URL = "https://api.telegram.org"
_POLL_S = 50
_RETRY_S = 3.0
_LONGEST_RETRY_S = 60.0
_LOG = logging.getLogger(__name__)


class ChatMoved(SendFailed):
    """The group became a supergroup, which has another id."""

    def __init__(self, failure: SendFailed, chat: str) -> None:
        super().__init__(failure.reason, is_final=True, status=failure.status)
        self.chat = chat


class _Parameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int = 0


class _ApiAnswer(msgspec.Struct):
    ok: bool = False
    description: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)
    result: msgspec.Raw = msgspec.Raw(b"null")


class _UpdateId(msgspec.Struct):
    update_id: int


class TelegramApi:
    """One bot."""

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        root = (base_url or _BASE_URL).rstrip("/")
        self._name = name
        self.http: VendorHttp = VendorHttp("Telegram", f"{root}/bot{token}")
        self.files_url: str = f"{root}/file/bot{token}"

    async def call(self, method: str, body: dict[str, Any], *, timeout_s: float = 15.0) -> bytes:
        """Call a method and return its result. Raises SendFailed."""
        return _read_result(await self.http.call("POST", f"/{method}", body, timeout_s=timeout_s))

    async def upload(self, method: str, content: bytes, kind: str) -> bytes:
        """Call a method with a form of content type `kind` and return its result. Raises SendFailed."""
        return _read_result(await self.http.raw("POST", f"/{method}", content, {"content-type": kind}, 120.0))

    async def poll(
        self,
        kinds: Sequence[str],
        take: Callable[[list[bytes]], Awaitable[None]],
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Pass updates of these `kinds` to `take`, as JSON, until cancelled. They are acknowledged once
        `take` returns.

        `ready` is awaited before each poll. Waits and tries again after a failure. Raises SendFailed if
        Telegram refuses the bot for good.
        """
        offset, wait_s = 0, _RETRY_S  # Telegram remembers the acknowledged offset
        while True:
            body = {"offset": offset, "timeout": _POLL_S, "limit": 50, "allowed_updates": list(kinds)}
            try:
                if ready is not None:
                    await ready()
                answer = await self.call("getUpdates", body, timeout_s=_POLL_S + 10.0)
            except SendFailed as error:
                await self._wait(error, wait_s)
                wait_s = min(wait_s * 2, _LONGEST_RETRY_S)
                continue
            wait_s = _RETRY_S
            updates = [bytes(raw) for raw in read(answer, list[msgspec.Raw]) or []]
            if not updates:
                continue
            await take(updates)
            for raw in updates:
                update = read(raw, _UpdateId)
                if update is not None:
                    offset = max(offset, update.update_id + 1)

    async def aclose(self) -> None:
        """Close connections."""
        await self.http.aclose()

    async def _wait(self, error: SendFailed, wait_s: float) -> None:
        """Log why nothing is received, and wait. Raises the error if waiting can't help."""
        if error.status == 409:
            _LOG.error("channel %s: another program polls with this bot's token", self._name)
        elif error.is_final:
            raise error
        else:
            _LOG.warning("channel %s hears nothing: %s", self._name, error.reason)
        await asyncio.sleep(error.retry_after_s or wait_s)


def _read_result(answer: VendorAnswer) -> bytes:
    reply = answer.read(_ApiAnswer) or _ApiAnswer()
    if answer.status == 200 and reply.ok:
        return bytes(reply.result)
    failure = refused("Telegram", answer, reply.description, reply.parameters.retry_after)
    if reply.parameters.migrate_to_chat_id:
        raise ChatMoved(failure, str(reply.parameters.migrate_to_chat_id))
    raise failure
