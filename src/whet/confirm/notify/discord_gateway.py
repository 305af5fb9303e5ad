"""Discord's gateway: identify, keep the heartbeat, resume after a cut, hand on each interaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from whet.confirm.notify.channel import SendFailed
from whet.confirm.notify.vendor_http import VendorHttp, read, refused
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
_RESUME_S = 0.5
_COMPONENT = 3
_LOG = logging.getLogger(__name__)


class User(msgspec.Struct):
    """Who pressed."""

    id: str = ""
    username: str = ""


class _Member(msgspec.Struct):
    user: User = msgspec.field(default_factory=User)


class _Component(msgspec.Struct):
    custom_id: str = ""


class Interaction(msgspec.Struct):
    """A press: in a server's channel it has a member, in a private one a user."""

    id: str
    token: str
    type: int
    data: _Component = msgspec.field(default_factory=_Component)
    member: _Member | None = None
    user: User | None = None

    @property
    def who(self) -> User:
        """Give the user who pressed."""
        return self.member.user if self.member else self.user or User()


class _Event(msgspec.Struct):
    op: int = -1
    s: int | None = None
    t: str | None = None
    d: msgspec.Raw = msgspec.Raw(b"null")


class _Hello(msgspec.Struct):
    heartbeat_interval: float = 41_250


class _Ready(msgspec.Struct):
    session_id: str = ""
    resume_gateway_url: str = ""


class _Place(msgspec.Struct):
    url: str = ""
    message: str = ""


OnInteraction = Callable[[Interaction], Awaitable[None]]
OnEvent = Callable[[str, bytes], Awaitable[None]]


class Gateway:
    """One bot's link to the gateway. Without `intents` only presses come; `on_event` hears of every event by
    its name, the READY of a new session included."""

    def __init__(
        self,
        name: str,
        token: str,
        http: VendorHttp,
        on_interaction: OnInteraction,
        *,
        intents: int = 0,
        on_event: OnEvent | None = None,
    ) -> None:
        self._intents = intents
        self._on_event = on_event
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
                if error.code in (0, 4007, 4009):  # the session is over, or its server is: begin anew
                    self._forget()
                _LOG.warning("channel %s hears no presses: %s", self._name, error)
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears no presses: %s", self._name, error.reason)
                await asyncio.sleep(error.retry_after_s or 0.0)
            await asyncio.sleep(_RESUME_S if self._session_id else _RETRY_S)

    async def _url(self) -> str:
        if self._resume_url:
            return self._resume_url.rstrip("/") + "/"
        answer = await self._http.call("GET", "/gateway/bot")
        said = answer.read(_Place) or _Place()
        if answer.status != 200 or not said.url:
            raise refused("Discord", answer, said.message)
        return said.url.rstrip("/") + "/"

    async def _talk(self, socket: Socket) -> None:
        first = read(await socket.receive(30), _Event) or _Event()
        interval_s = (read(bytes(first.d), _Hello) or _Hello()).heartbeat_interval / 1000
        self._acknowledged = True
        await socket.send(self._opening())
        heart = asyncio.create_task(self._beat(socket, interval_s))
        try:
            going = True
            while going:
                text = await socket.receive(interval_s * 2)
                going = await self._handle(socket, read(text, _Event) or _Event())
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
        return {
            "op": _IDENTIFY,
            "d": {"token": self._token, "intents": self._intents, "properties": properties},
        }

    async def _beat(self, socket: Socket, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if not self._acknowledged:
                return  # the reader's time-out ends the connection
            self._acknowledged = False
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})

    async def _handle(self, socket: Socket, event: _Event) -> bool:
        """Take one event in; False ends the connection."""
        operation = event.op
        if event.s is not None:
            self._sequence = event.s
        if operation == _ACK:
            self._acknowledged = True
        elif operation == _HEARTBEAT:
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})
        elif operation == _INVALID and bytes(event.d) != b"true":
            self._forget()
            return False
        elif operation in (_RECONNECT, _INVALID):
            return False
        elif operation == _DISPATCH:
            await self._dispatch(event.t or "", bytes(event.d))
        return True

    async def _dispatch(self, kind: str, data: bytes) -> None:
        if kind == "READY":
            ready = read(data, _Ready) or _Ready()
            self._session_id, self._resume_url = ready.session_id, ready.resume_gateway_url
        elif kind == "INTERACTION_CREATE":
            event = read(data, Interaction)
            if event is not None and event.type == _COMPONENT:
                await self._on_interaction(event)
        if self._on_event is not None:
            await self._on_event(kind, data)

    def _forget(self) -> None:
        self._session_id = self._resume_url = ""
        self._sequence = None
