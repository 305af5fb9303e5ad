"""The values that the hook `pre_gateway_dispatch` gets for a message from a chat platform.

They have the form that plugins for Hermes Agent expect, but never hold objects of a platform's own library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

Post = Callable[[str, str, str], Awaitable[str]]
"""Queues a text for a chat, given the platform's name and the chat. Returns "", or the reason if that is not
possible."""


class PlatformName(str):
    """A platform's name. Plugins read its `value`, as of an enum."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The name."""
        return str(self)


class ChatSource(msgspec.Struct):
    """The origin of a message. Names are chosen by users and not trusted."""

    platform: Any
    chat_id: str
    chat_type: Literal["dm", "group"]
    user_id: str
    user_name: str = ""
    thread_id: str | None = None
    chat_name: str = ""


class ChatEvent(msgspec.Struct):
    """One message. `internal` is always False: the program's own messages are not passed to the hook."""

    text: str
    source: ChatSource
    message_id: str = ""
    internal: bool = False
    message_type: str = "text"
    media_urls: list[str] = msgspec.field(default_factory=list[str])
    raw_message: object = None


class SendResult(msgspec.Struct, frozen=True):
    """Whether a text was queued, durably, or the reason why not."""

    success: bool
    error: str = ""
    message_id: str = ""


class ChatAdapter:
    """One platform, for sending outside of a conversation."""

    def __init__(self, name: str, post: Post) -> None:
        self.name: str = name
        self._post = post

    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: object = None
    ) -> SendResult:
        """Queue a text for a known chat. Durable on return."""
        del reply_to, metadata
        error = await self._post(self.name, str(chat_id), content)
        return SendResult(not error, error)


class ChatGateway:
    """The gateway as plugins see it. `session_of` returns the session of a platform's chat."""

    def __init__(
        self, adapters: Mapping[str, ChatAdapter], session_of: Callable[[str, str], str] = lambda _p, _c: ""
    ) -> None:
        self.adapters: Mapping[str, ChatAdapter] = adapters
        self._session_of = session_of

    def session_key_for(self, source: ChatSource) -> str:
        """Return the key of a chat: its session's id, or one composed of its names."""
        key = f"agent:main:{source.platform}:{source.chat_type}:{source.chat_id}"
        return self._session_of(str(source.platform), source.chat_id) or key

    _session_key_for_source = session_key_for
