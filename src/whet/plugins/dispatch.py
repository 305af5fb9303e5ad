"""What `pre_gateway_dispatch` is given of a message from a chat platform, in the shape that plugins expect.

Plain values, and a gateway that can be asked to send; nothing of a platform's own library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

Post = Callable[[str, str, str], Awaitable[str]]
"""Queues a text for a chat of a platform, by both names; gives why that can't be, or ""."""


class PlatformName(str):
    """A platform's name; plugins ask it for its `value`, as of an enum."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The name."""
        return str(self)


class ChatSource(msgspec.Struct):
    """Where a message comes from. Names are what people call themselves."""

    platform: Any
    chat_id: str
    chat_type: Literal["dm", "group"]
    user_id: str
    user_name: str = ""
    thread_id: str | None = None
    chat_name: str = ""


class ChatEvent(msgspec.Struct):
    """One message. `internal` is never true: what the program says to itself is not asked about."""

    text: str
    source: ChatSource
    message_id: str = ""
    internal: bool = False
    message_type: str = "text"
    media_urls: list[str] = msgspec.field(default_factory=list[str])
    raw_message: object = None


class SendResult(msgspec.Struct, frozen=True):
    """What became of a send: queued durably, or why not."""

    success: bool
    error: str = ""
    message_id: str = ""


class ChatAdapter:
    """One platform, for sending beside the conversation."""

    def __init__(self, name: str, post: Post) -> None:
        self.name: str = name
        self._post = post

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: object = None
    ) -> SendResult:
        """Queue a text for a chat that is known here; it is on disk when this returns."""
        del reply_to, metadata
        why = await self._post(self.name, str(chat_id), content)
        return SendResult(not why, why)


class ChatGateway:
    """The gateway as plugins see it. `session_of` gives a chat's session, by platform and chat."""

    def __init__(
        self, adapters: Mapping[str, ChatAdapter], session_of: Callable[[str, str], str] = lambda _p, _c: ""
    ) -> None:
        self.adapters: Mapping[str, ChatAdapter] = adapters
        self._session_of = session_of

    def session_key_for(self, source: ChatSource) -> str:
        """Give the key of a place: its session's id, else one made of its names."""
        made = f"agent:main:{source.platform}:{source.chat_type}:{source.chat_id}"
        return self._session_of(str(source.platform), source.chat_id) or made

    _session_key_for_source = session_key_for
