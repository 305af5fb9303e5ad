"""Slack's Socket Mode: connect, pass on each envelope, and connect again when Slack asks for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from whet.vendors.http import SendFailed, VendorHttp, read
from whet.vendors.slack_web import BASE_URL, SlackAnswer, call_method, check_answer
from whet.vendors.sockets import Socket, SocketClosed, converse

_RETRY_S = 5.0
_PAGE, _MAX_PAGES = 200, 500  # the newest come first: reading only some pages would leave a gap
_LOG = logging.getLogger(__name__)


class _Cursor(msgspec.Struct):
    next_cursor: str = ""


class _Page(msgspec.Struct):
    messages: list[msgspec.Raw] = msgspec.field(default_factory=list[msgspec.Raw])
    response_metadata: _Cursor = msgspec.field(default_factory=_Cursor)


class SlackUser(msgspec.Struct):
    """A user of Slack, of the workspace `team_id`."""

    id: str = ""
    username: str = ""
    team_id: str = ""


def user_from(user: str, team: str, own_team: str) -> str:
    """Return a user's id. For a user of another workspace, the workspace's id precedes it, because another
    person of our own workspace may have the same id."""
    return f"{team}:{user}" if team and own_team and team != own_team else user


class SlackAction(msgspec.Struct):
    """A pressed button."""

    value: str = ""


class SlackConversation(msgspec.Struct):
    """A channel."""

    id: str = ""


class SlackMessage(msgspec.Struct):
    """A message, identified by its time stamp."""

    ts: str = ""
    thread_ts: str = ""


class SlackPress(msgspec.Struct):
    """The payload of an `interactive` envelope."""

    type: str = ""
    user: SlackUser = msgspec.field(default_factory=SlackUser)
    channel: SlackConversation = msgspec.field(default_factory=SlackConversation)
    actions: list[SlackAction] = msgspec.field(default_factory=list[SlackAction])
    message: SlackMessage = msgspec.field(default_factory=SlackMessage)

    @property
    def data(self) -> str:
        """The data of the pressed button, or an empty string if this is not a press of one of our buttons."""
        return self.actions[0].value if self.type == "block_actions" and self.actions else ""


class SlackEnvelope(msgspec.Struct):
    """A message on the socket. Only a `hello` has `num_connections`."""

    type: str = ""
    envelope_id: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    num_connections: int = 1


Acknowledge = Callable[[], Awaitable[None]]
HandleEnvelope = Callable[[SlackEnvelope, Acknowledge], Awaitable[None]]


class SlackApi:
    """One app: a bot token (xoxb-) for sending, an app token (xapp-) for receiving."""

    def __init__(self, name: str, tokens: tuple[str, ...], base_url: str = "") -> None:
        root = base_url or BASE_URL
        self._name = name
        self.bearer: str = f"Bearer {tokens[0]}"
        self.bot: VendorHttp = VendorHttp("Slack", root, {"authorization": self.bearer})
        self._app = VendorHttp("Slack", root, {"authorization": f"Bearer {tokens[1]}"})

    async def call(self, method: str, body: dict[str, Any]) -> SlackAnswer:
        """Call a method as the bot. Raises SendFailed."""
        return await call_method(self.bot, method, body)

    async def list_messages(self, method: str, query: Mapping[str, str | int]) -> list[msgspec.Raw]:
        """Return all `messages` that a method lists, from all pages, in Slack's order. Raises SendFailed."""
        messages: list[msgspec.Raw] = []
        cursor = ""
        for _ in range(_MAX_PAGES):
            parameters = {**query, "limit": _PAGE, **({"cursor": cursor} if cursor else {})}
            answer = await self.bot.call("GET", f"/{method}?{urlencode(parameters)}")
            check_answer(answer)
            page = answer.read(_Page) or _Page()
            messages += page.messages
            cursor = page.response_metadata.next_cursor
            if not cursor:
                break
        return messages

    async def read_first_reply(self, channel: str, thread: str) -> bytes | None:
        """Return the first message of a thread as JSON, or None. Raises SendFailed."""
        query = urlencode({"channel": channel, "ts": thread, "oldest": "0", "limit": 1})
        answer = await self.bot.call("GET", f"/conversations.replies?{query}")
        check_answer(answer)
        messages = (answer.read(_Page) or _Page()).messages
        return bytes(messages[0]) if messages else None

    async def receive_envelopes(
        self, take: HandleEnvelope, ready: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Pass envelopes to `take` until cancelled. Slack repeats each until it is acknowledged.

        `ready` is awaited before each connection. Raises SendFailed if Slack refuses the app for good.
        """

        async def talk(socket: Socket) -> None:
            while await self._handle_next(socket, take):
                pass

        while True:
            try:
                if ready is not None:
                    await ready()
                connection = await call_method(self._app, "apps.connections.open", {})
                await converse(self._app.client, connection.url, talk)
                continue  # Slack asked for a new connection, as it does every few hours
            except SocketClosed as error:
                _LOG.warning("channel %s hears nothing: %s", self._name, error)
                delay_s = _RETRY_S
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears nothing: %s", self._name, error.reason)
                delay_s = _RETRY_S if error.retry_after_s is None else error.retry_after_s
            await asyncio.sleep(delay_s)

    async def aclose(self) -> None:
        """Close connections."""
        await self.bot.aclose()
        await self._app.aclose()

    async def _handle_next(self, socket: Socket, handle: HandleEnvelope) -> bool:
        envelope = read(await socket.receive(), SlackEnvelope)
        if envelope is None:
            return True
        if envelope.type == "hello" and envelope.num_connections > 1:
            _LOG.warning(
                "channel %s: %d connections use this app's token, and each event goes to one of them",
                self._name,
                envelope.num_connections,
            )

        async def acknowledge() -> None:
            if envelope.envelope_id:
                await socket.send({"envelope_id": envelope.envelope_id})

        if envelope.type not in ("hello", "disconnect"):
            await handle(envelope, acknowledge)
        return envelope.type != "disconnect"
