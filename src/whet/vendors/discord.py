"""Discord's API, and its gateway: identify, send heartbeats, resume after a cut, pass on events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from whet.vendors.http import SendFailed, VendorAnswer, VendorHttp, read, refused
from whet.vendors.sockets import Socket, SocketClosed, converse

BASE_URL = "https://discord.com/api/v10"
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
COMPONENT = 3
_EPHEMERAL = 64
_LOG = logging.getLogger(__name__)


class DiscordUser(msgspec.Struct):
    """A user of Discord."""

    id: str = ""
    username: str = ""
    bot: bool = False


class _Member(msgspec.Struct):
    user: DiscordUser = msgspec.field(default_factory=DiscordUser)


class _Component(msgspec.Struct):
    custom_id: str = ""


class _MessageId(msgspec.Struct):
    id: str = ""


class Interaction(msgspec.Struct):
    """A pressed button. It has a `member` if it was pressed in a server's channel, otherwise a `user`."""

    id: str
    token: str
    type: int
    channel_id: str = ""
    guild_id: str = ""
    data: _Component = msgspec.field(default_factory=_Component)
    member: _Member | None = None
    user: DiscordUser | None = None
    message: _MessageId = msgspec.field(default_factory=_MessageId)

    @property
    def presser(self) -> DiscordUser:
        """The user who pressed."""
        return self.member.user if self.member else self.user or DiscordUser()


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


class _Gateway(msgspec.Struct):
    url: str = ""


class _Problem(msgspec.Struct):
    message: str = ""
    retry_after: float | None = None


OnEvent = Callable[[str, bytes], Awaitable[None]]


class DiscordApi:
    """One bot's calls."""

    def __init__(self, token: str, base_url: str = "") -> None:
        self.token = token
        self.http: VendorHttp = VendorHttp("Discord", base_url or BASE_URL, {"authorization": f"Bot {token}"})

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """Make a call with a JSON body and return the answer. Raises SendFailed."""
        return self._check_answer(await self.http.call(method, path, body))

    async def upload(self, path: str, content: bytes, kind: str) -> bytes:
        """Post a form of content type `kind` and return the answer. Raises SendFailed."""
        return self._check_answer(await self.http.raw("POST", path, content, {"content-type": kind}, 120.0))

    async def respond(self, press: str, text: str) -> None:
        """Send a text that only the presser sees. `press` is the interaction's id and token, separated by
        `/`. Raises SendFailed."""
        data: dict[str, object] = {
            "content": text[:1900],
            "flags": _EPHEMERAL,
            "allowed_mentions": {"parse": []},
        }
        await self.call("POST", f"/interactions/{press}/callback", {"type": 4, "data": data})

    def _check_answer(self, answer: VendorAnswer) -> bytes:
        if 200 <= answer.status < 300:
            return answer.body
        problem = answer.read(_Problem) or _Problem()
        raise refused("Discord", answer, problem.message, problem.retry_after)

    async def aclose(self) -> None:
        """Close connections."""
        await self.http.aclose()


class DiscordGateway:
    """One bot's connection to the gateway.

    Without `intents` only presses arrive. `on_event` is called with the name and JSON of every event,
    including the READY of a new session.
    """

    def __init__(self, name: str, api: DiscordApi, on_event: OnEvent, *, intents: int = 0) -> None:
        self._intents = intents
        self._on_event = on_event
        self._name = name
        self._api = api
        self._sequence: int | None = None
        self._session_id = ""
        self._resume_url = ""
        self._is_acknowledged = True

    async def run(self) -> None:
        """Stay connected until cancelled. Raises SendFailed when Discord refuses the bot for good."""
        while True:
            try:
                await converse(self._api.http.client, await self._url() + _VERSION, self._talk)
            except SocketClosed as error:
                if error.code in _FINAL:
                    raise SendFailed(f"Discord: {_FINAL[error.code]}", is_final=True) from error
                if error.code in (0, 4007, 4009):  # the session or its server has ended: start over
                    self._reset_session()
                _LOG.warning("channel %s hears nothing: %s", self._name, error)
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears nothing: %s", self._name, error.reason)
                await asyncio.sleep(error.retry_after_s or 0.0)
            await asyncio.sleep(_RESUME_S if self._session_id else _RETRY_S)

    async def _url(self) -> str:
        if self._resume_url:
            return self._resume_url.rstrip("/") + "/"
        gateway = read(await self._api.call("GET", "/gateway/bot"), _Gateway)
        if gateway is None or not gateway.url:
            raise SendFailed("Discord gave no address for its gateway")
        return gateway.url.rstrip("/") + "/"

    async def _talk(self, socket: Socket) -> None:
        first = read(await socket.receive(30), _Event) or _Event()
        interval_s = (read(bytes(first.d), _Hello) or _Hello()).heartbeat_interval / 1000
        self._is_acknowledged = True
        await socket.send(self._opening())
        heart = asyncio.create_task(self._beat(socket, interval_s))
        try:
            is_open = True
            while is_open:
                text = await socket.receive(interval_s * 2)
                is_open = await self._handle(socket, read(text, _Event) or _Event())
        except TimeoutError:
            pass  # neither events nor acknowledgements: the connection is dead
        finally:
            heart.cancel()
            (end,) = await asyncio.gather(heart, return_exceptions=True)
            if isinstance(end, Exception) and not isinstance(end, SocketClosed):
                raise end

    def _opening(self) -> dict[str, Any]:
        if self._session_id:
            resume = {"token": self._api.token, "session_id": self._session_id, "seq": self._sequence}
            return {"op": _RESUME, "d": resume}
        properties = {"os": "linux", "browser": "whet", "device": "whet"}
        return {
            "op": _IDENTIFY,
            "d": {"token": self._api.token, "intents": self._intents, "properties": properties},
        }

    async def _beat(self, socket: Socket, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if not self._is_acknowledged:
                return  # the reader's timeout ends the connection
            self._is_acknowledged = False
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})

    async def _handle(self, socket: Socket, event: _Event) -> bool:
        """Handle one event. Returns False to end the connection."""
        operation = event.op
        if event.s is not None:
            self._sequence = event.s
        if operation == _ACK:
            self._is_acknowledged = True
        elif operation == _HEARTBEAT:
            await socket.send({"op": _HEARTBEAT, "d": self._sequence})
        elif operation == _INVALID and bytes(event.d) != b"true":
            self._reset_session()
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
        await self._on_event(kind, data)

    def _reset_session(self) -> None:
        self._session_id = self._resume_url = ""
        self._sequence = None
