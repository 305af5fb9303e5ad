"""Telegram: the Bot API's calls, and its updates by long polling.

Long polling, because it needs no address that the internet can reach; a webhook would. An update is
acknowledged by the next poll's offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from whet.vendors.http import SendFailed, VendorAnswer, VendorHttp, read, refused

BASE_URL = "https://api.telegram.org"
_POLL_S = 50
_RETRY_S = 3.0
_LONGEST_RETRY_S = 60.0
_LOG = logging.getLogger(__name__)


class _Parameters(msgspec.Struct):
    retry_after: float | None = None


class _Answer(msgspec.Struct):
    ok: bool = False
    description: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Bare(msgspec.Struct):
    update_id: int


class TelegramApi:
    """One bot."""

    def __init__(self, name: str, token: str, base_url: str = "") -> None:
        root = (base_url or BASE_URL).rstrip("/")
        self._name = name
        self._http = VendorHttp("Telegram", f"{root}/bot{token}")
        self.files_url = f"{root}/file/bot{token}"

    @property
    def http(self) -> VendorHttp:
        """The way to the vendor, for files."""
        return self._http

    async def call(self, method: str, body: dict[str, Any], *, timeout_s: float = 15.0) -> bytes:
        """Call a method and give its result. Raises SendFailed."""
        return _checked(await self._http.call("POST", f"/{method}", body, timeout_s=timeout_s))

    async def upload(self, method: str, content: bytes, kind: str) -> bytes:
        """Call a method with a form and give its result. Raises SendFailed."""
        return _checked(await self._http.raw("POST", f"/{method}", content, {"content-type": kind}, 120.0))

    async def hear(
        self,
        wanted: Sequence[str],
        take: Callable[[list[bytes]], Awaitable[None]],
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Hand on updates, as JSON, until cancelled; those that `take` returns from are acknowledged.

        `ready` is awaited before each poll. A failure waits and tries again. Raises SendFailed where
        Telegram refuses the bot for good.
        """
        offset, wait_s = 0, _RETRY_S  # Telegram knows what was acknowledged
        while True:
            body = {"offset": offset, "timeout": _POLL_S, "limit": 50, "allowed_updates": list(wanted)}
            try:
                if ready is not None:
                    await ready()
                answer = await self.call("getUpdates", body, timeout_s=_POLL_S + 10.0)
            except SendFailed as error:
                await self._wait(error, wait_s)
                wait_s = min(wait_s * 2, _LONGEST_RETRY_S)
                continue
            wait_s = _RETRY_S
            updates = [bytes(one) for one in read(answer, list[msgspec.Raw]) or []]
            if not updates:
                continue
            await take(updates)
            numbers = [bare.update_id for one in updates if (bare := read(one, _Bare)) is not None]
            offset = max([offset, *(number + 1 for number in numbers)])

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _wait(self, error: SendFailed, wait_s: float) -> None:
        """Say why nothing is heard and wait. Raises the error where waiting can't help."""
        if error.status == 409:
            _LOG.error("channel %s: another program polls with this bot's token", self._name)
        elif error.is_final:
            raise error
        else:
            _LOG.warning("channel %s hears nothing: %s", self._name, error.reason)
        await asyncio.sleep(error.retry_after_s or wait_s)


def _checked(answer: VendorAnswer) -> bytes:
    said = answer.read(_Answer) or _Answer()
    if answer.status == 200 and said.ok:
        return bytes(said.result)
    raise refused("Telegram", answer, said.description, said.parameters.retry_after)
