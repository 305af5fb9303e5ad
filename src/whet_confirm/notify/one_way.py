"""One-way channels: e-mail and many others through Apprise, a signed webhook, and the log.

A person can't decide in them: a message contains the link to the page, and a webhook the data for a program.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.channels.loading import missing_extra
from whet.contract.channels import SendFailed
from whet.contract.errors import ConfigError
from whet.lanes import LaneTimeout, PluginLane
from whet.vendors.http import CALL_TIMEOUT_S, VendorHttp, refused
from whet.vendors.signing import sign_headers, webhook_key
from whet_confirm.notify import plain
from whet_confirm.notify.notice import OnPress, RequestNotice

_LOG = logging.getLogger(__name__)


class OneWay:
    """The base of channels that receive nothing. `failure` is the reason why one is off, or empty."""

    can_update = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: str = ""

    async def update(self, message_ref: str, notice: RequestNotice) -> None:
        """Do nothing: a sent message can't be changed."""

    async def listen(self, on_press: OnPress) -> None:
        """Return: no presses come from here."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


class Log(OneWay):
    """The service's own log: the last resort, and the only channel if none is configured."""

    async def send(self, notice: RequestNotice) -> str:
        """Write one record."""
        text = plain.format_body(notice).replace("\n", " / ")
        _LOG.warning("no channel reached a person: %s / %s", plain.format_title(notice), text)
        return ""


class Apprise(OneWay):
    """Everything that Apprise can reach, by its URLs. Apprise is synchronous and runs on its own thread.

    If Apprise is not installed, every send raises SendFailed.
    """

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        super().__init__(name)
        self._lane = PluginLane(f"apprise-{name}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # not ours to fix
            self._sender: Any = None
            try:
                self._sender = _sender(name, urls)
            except SendFailed as error:
                self.failure: str = error.reason
        if not urls:
            raise ConfigError(f"channel {name} has no Apprise URL", hint="name a variable with urls_env")

    async def send(self, notice: RequestNotice) -> str:
        """Send to all URLs. Raises SendFailed if one of them failed; Apprise does not report which."""
        if self.failure:
            raise SendFailed(self.failure, is_final=True)
        body = plain.format_body(notice)

        def notify() -> Any:
            return self._sender.notify(title=plain.format_title(notice)[:200], body=body, body_format="text")

        try:
            outcome = await self._lane.run(notify, CALL_TIMEOUT_S * 2)
        except LaneTimeout as error:
            raise SendFailed("Apprise did not come back in time") from error
        if outcome.error is not None:
            raise SendFailed(f"Apprise failed: {type(outcome.error).__name__}")
        if not outcome.value:  # True, or an object that is true, in newer versions of Apprise
            raise SendFailed("Apprise could not deliver to every address")
        return ""

    async def aclose(self) -> None:
        """End the thread when it is idle."""
        self._lane.close()


def _sender(name: str, urls: Sequence[str]) -> Any:
    try:
        apprise: Any = importlib.import_module("apprise")
    except ImportError as error:
        raise missing_extra("apprise", "notify") from error
    sender: Any = apprise.Apprise()
    for number, url in enumerate(urls, start=1):
        if not sender.add(url):
            raise ConfigError(f"channel {name}: Apprise does not understand URL {number} of its list")
    return sender


class WebhookNotifier(OneWay):
    """A POST of JSON, signed as specified by Standard Webhooks 1.0."""

    can_update = True  # outcomes are separate messages

    def __init__(self, name: str, url: str, secret: str) -> None:
        super().__init__(name)
        self._http = VendorHttp("the webhook", url)
        self._key = webhook_key(name, secret)

    async def send(self, notice: RequestNotice) -> str:
        """Post the request. Raises SendFailed unless it is answered with 2xx."""
        await self._post(notice, notice.state, "")
        return notice.request_id

    async def update(self, message_ref: str, notice: RequestNotice) -> None:
        """Post a vote or the outcome."""
        if notice.is_open:
            await self._post(notice, "voted", f"_{hashlib.sha256(notice.progress.encode()).hexdigest()[:8]}")
        else:
            await self._post(notice, notice.state, "")

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _post(self, notice: RequestNotice, state: str, version: str) -> None:
        at_s = int(time.time())
        body = msgspec.json.encode(
            {"type": f"confirmation.{state}", "timestamp": at_s, "data": msgspec.to_builtins(notice)}
        )
        # The id is the same for the same notice, so that a receiver can drop repetitions.
        message_id = f"msg_{notice.request_id}_{state}_{notice.digest[:8]}{version}"
        headers = {"content-type": "application/json", **sign_headers(self._key, message_id, at_s, body)}
        answer = await self._http.raw("POST", "", body, headers, CALL_TIMEOUT_S)
        if not 200 <= answer.status < 300:
            raise refused("the webhook", answer, "")
