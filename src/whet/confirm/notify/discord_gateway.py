"""Discord's gateway: identify, keep the heartbeat, resume after a cut, hand on each interaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from whet.confirm.notify.channel import SendFailed
from whet.confirm.notify.vendor_http import VendorHttp, refused
from whet.confirm.notify.vendor_socket import Socket, SocketClosed, converse

_VERSION = "?v=10&encoding=json"
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT, _INVALID, _HELLO, _ACK = 0, 1, 2, 6, 7, 9, 10, 11
_FINAL = {
    4004: "the bot's token is wrong",
    4010: "invalid shard",
    4013: "invalid intents",
    4014: "intents not allowed",
}
_RETRY_S = 5.0
_COMPONENT = 3
_LOG = logging.getLogger(__name__)

OnInteraction = Callable[[dict[str, Any]], Awaitable[None]]


class Gateway:
    """One bot's link to the gateway. It asks for no intents: presses come without any."""

    def __init__(self, name: str, token: str, http: VendorHttp, on_interaction: OnInteraction) -> None:
        self._name = name
        self._token = token
        self._http = http
        self._on_interaction = on_interaction
        self._sequence: int | None = None
        self._session_id = ""
        self._resume_url = ""
        self._acknowledged = True

    async def run(self) -> None:
        """Stay connected until cancelled. Raises SendFailed when Discord refuses the bot for good."""
        while True:
            try:
                await converse(self._http.client, await self._url() + _VERSION, self._talk)
            except SocketClosed as error:
                if error.code in _FINAL:
                    raise SendFailed(f"Discord: {_FINAL[error.code]}", is_final=True) from error
                if error.code in (4007, 4009):  # the session is over; begin a new one
                    self._forget()
                _LOG.warning("channel %s hears no presses: %s", self._name, error)
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears no presses: %s", self._name, error.reason)
                await asyncio.sleep(error.retry_after_s or 0.0)
            await asyncio.sleep(_RETRY_S)

    async def _url(self) -> str:
        if self._resume_url:
            return self._resume_url.rstrip("/") + "/"
        answer = await self._http.call("GET", "/gateway/bot")
        url = answer.body.get("url")
        if answer.status != 200 or not isinstance(url, str):
            raise refused("Discord", answer, str(answer.body.get("message", "")))
        return url.rstrip("/") + "/"

    async def _talk(self, socket: Socket) -> None:
        hello = await socket.receive(30)
        interval_s = float((hello.get("d") or {}).get("heartbeat_interval", 41_250)) / 1000
        self._acknowledged = True
        await socket.send(self._opening())
        heart = asyncio.create_task(self._beat(socket, interval_s))
        try:
            while await self._handle(socket, await socket.receive(interval_s * 2)):
                pass
        except TimeoutError:
            pass  # neither events nor acknowledgements: a dead connection
        finally:
            heart.cancel()
            with contextlib.suppress(asyncio.CancelledError, SocketClosed):
                await heart

    def _opening(self) -> dict[str, Any]:
        if self._session_id:
            resume = {"token": self._token, "session_id": self._session_id, "seq": self._sequence}
            return {"op": _RESUME, "d": resume}
        properties = {"os": "linux", "browser": "whet", "device": "whet"}
        return {"op": _IDENTIFY, "d": {"token": self._token, "intents": 0, "properties": properties}}

    async def _beat(self, socket: Socket, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if not self._acknowledged:
                return  # the reader's time-out ends the connection
            self._acknowledged = False
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})

    async def _handle(self, socket: Socket, event: dict[str, Any]) -> bool:
        """Take one event in; False ends the connection."""
        operation = event.get("op")
        if isinstance(event.get("s"), int):
            self._sequence = event["s"]
        if operation == _ACK:
            self._acknowledged = True
        elif operation == _HEARTBEAT:
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})
        elif operation == _INVALID and not event.get("d"):
            self._forget()
            return False
        elif operation in (_RECONNECT, _INVALID):
            return False
        elif operation == _DISPATCH:
            await self._dispatch(str(event.get("t")), event.get("d") or {})
        return True

    async def _dispatch(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "READY":
            self._session_id = str(data.get("session_id", ""))
            self._resume_url = str(data.get("resume_gateway_url", ""))
        elif kind == "INTERACTION_CREATE" and data.get("type") == _COMPONENT:
            await self._on_interaction(data)

    def _forget(self) -> None:
        self._session_id = self._resume_url = ""
        self._sequence = None
