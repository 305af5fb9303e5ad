"""A request body whose bytes are made once: request n without its tail is a prefix of request n + 1.

`WireCache` keeps the messages of the last request and the bytes they became; the next request encodes only
what was added after the common prefix (compared by identity), so that a call costs almost the same at step
1,000 as at step 1. `WireCodec` and `Decoder` are what a wire format gives; this module knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import ImagePart, Message, Part, sent_content
from whet.contract.protocols import ModelInfo, ModelReply
from whet.contract.tools import ToolSpec
from whet.providers.json_text import quote

Effort = Literal["", "none", "minimal", "low", "medium", "high"]
Deltas = Sequence[TextDelta | ReasoningDelta]


class ServerDialect(msgspec.Struct, frozen=True):
    """What differs between servers that speak one wire format.

    `effort`: how reasoning effort is asked for. `replay_fields`: extra message fields that the server
    wants back. `cache_key`: whether it takes prompt_cache_key. `short_ids`: Mistral's nine characters.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking"] = "reasoning_effort"
    replay_fields: tuple[str, ...] = ()
    cache_key: bool = False
    short_ids: bool = False


class RequestOptions(msgspec.Struct, frozen=True):
    """What of a session's requests never changes. `max_output_tokens` 0: the server's own limit."""

    model: str
    session_id: str = ""
    max_output_tokens: int = 0
    reasoning_effort: Effort = ""


class Decoder(Protocol):
    """Turns one stream's SSE data into deltas and a Reply. No I/O."""

    @property
    def is_done(self) -> bool:
        """Whether the answer is whole; a stream that ends before was cut."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether the terminal event was seen: nothing that matters comes after it."""
        ...

    def feed(self, data: bytes) -> Deltas:
        """Take one event's data. Raises ProviderError: an error inside the stream, unreadable data."""
        ...

    def reply(self, taken: Iterable[str]) -> ModelReply:
        """Give the whole answer, once. `taken`: call ids in use. Raises ModelRefused, WireError."""
        ...


class WireCodec(Protocol):
    """One wire format. Pure; the same input always gives the same bytes."""

    @property
    def path(self) -> str:
        """Where the request goes, below the base URL."""
        ...

    def head(self, system: str, tools: Sequence[ToolSpec], options: RequestOptions) -> bytes:
        """Give everything up to the first message; ends with `[` or with the system message."""
        ...

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        """Encode messages[index], given what stands before it; opens with a comma."""
        ...

    def tail(self, messages: Sequence[Message]) -> bytes:
        """Close the body after `messages`."""
        ...

    def decoder(self, info: ModelInfo) -> Decoder:
        """Give a decoder for one answer."""
        ...


class WireCache:
    """One session's request body, growing. `call_ids` holds every call id it has encoded."""

    def __init__(self, codec: WireCodec, head: bytes) -> None:
        self._codec = codec
        self._body = bytearray(head)
        self._messages: list[Message] = []
        self._ends: list[int] = []
        self._head_size = len(head)
        self.call_ids: set[str] = set()

    def body(self, messages: Sequence[Message]) -> bytes:
        """Give the whole body for `messages`; the same objects as last time stay as they are."""
        self._cut(self._common(messages))
        for index in range(len(self._messages), len(messages)):
            fragment = self._codec.fragment(messages, index)
            # The first element of an array has no comma before it.
            self._body += fragment[1:] if self._body[-1] == 0x5B else fragment
            self._messages.append(messages[index])
            self._ends.append(len(self._body))
            for call in messages[index].tool_calls:
                self.call_ids.add(call.id)
        return b"".join((self._body, self._codec.tail(messages)))

    def _common(self, messages: Sequence[Message]) -> int:
        kept = len(self._messages)
        # Messages compare by identity, so this is one fast pass for the usual case: the list only grew.
        if len(messages) >= kept and list(messages[:kept]) == self._messages:
            return kept
        for index, (old, new) in enumerate(zip(self._messages, messages, strict=False)):
            if old is not new:
                return index
        return min(kept, len(messages))

    def _cut(self, count: int) -> None:
        if count < len(self._messages):
            del self._body[self._ends[count - 1] if count else self._head_size :]
            del self._messages[count:]
            del self._ends[count:]


def images_before(messages: Sequence[Message], end: int) -> list[ImagePart]:
    """Give the images of the run of tool results that ends before `end`, in order."""
    images: list[ImagePart] = []
    start = end
    while start and messages[start - 1].role == "tool":
        start -= 1
    for message in messages[start:end]:
        if not isinstance(message.content, str):
            images.extend(part for part in message.content if isinstance(part, ImagePart))
    return images


def content_json(message: Message, part: Callable[[Part], bytes]) -> bytes:
    """Give what the model reads as the content: a string, or a list of parts that `part` encodes."""
    content = sent_content(message)
    if isinstance(content, str):
        return quote(content)
    return b"[" + b",".join(map(part, content)) + b"]" if content else b'""'
