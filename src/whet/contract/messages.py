"""The messages of a conversation, as frozen values.

A `Message` is one row of a transcript. Engines, plugins and exports receive it as an OpenAI chat dict
(`to_dict`, `from_dict`); the codecs in `providers/` encode it for a server. A model's output is kept as
received: `ToolCall.arguments` is the JSON text itself, and `VendorReplay` keeps the vendor's own blocks if
they must be sent back unchanged.
"""

from __future__ import annotations

import binascii
from typing import Any, Literal

import msgspec

from whet.contract.images import image_fault

Role = Literal["user", "assistant", "tool"]
TextOrigin = Literal["", "typed", "brought"]
"""Who wrote the text of a message that is in no marked tag (`brought_text`).

typed: the person. brought: somebody or something else, such as a pipe, a helper or a client's tool. Empty:
unknown; for a person's words their structure decides, for a result its tool.
"""
WireFormat = Literal["chat_completions", "anthropic_messages", "responses"]


class TextPart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """A run of text in a message of several parts."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image", tag_field="type"):
    """An image: `media_type` such as image/png, and its bytes in base64."""

    media_type: str
    data_base64: str


Part = TextPart | ImagePart
NO_IMAGE = TextPart("[an image that can't be read]")
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(head: bytes) -> str:
    """Return the media type of a file from its first 16 bytes, or an empty string if it is not an image that
    models read."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    for magic, media_type in _IMAGES:
        if head.startswith(magic):
            return media_type
    return ""


def image_in(data_base64: str) -> ImagePart | None:
    """Return an untrusted image as a part, or None if the data is not base64 or not an image that models
    accept. Its media type comes from its bytes: a model would refuse a wrong type in every later request."""
    try:
        data = binascii.a2b_base64(data_base64, strict_mode=True)
    except ValueError:
        return None
    media_type = image_type(data[:16])
    return ImagePart(media_type, data_base64) if media_type and not image_fault(data) else None


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that the model asked for. `arguments` is JSON text as received and may be invalid."""

    id: str
    name: str
    arguments: str


class VendorReplay(msgspec.Struct, frozen=True, omit_defaults=True):
    """A vendor's own form of an assistant message, to be sent back unchanged to the same wire format.

    `blocks_json`: the JSON text of the content blocks (Anthropic), of the output items (Responses) or of
    extra message fields such as reasoning_details (Chat Completions). `server`: the name of the server that
    sent it, empty if unknown. It is not sent in another format or to another server.
    """

    format: WireFormat
    blocks_json: str
    server: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """One row of a transcript. Compared by identity: the wire cache relies on it.

    `note` is text that Whet adds to a person's message (time, folder): the model reads it after the content,
    people and searches don't see it. `cache_until`: a vendor whose cache needs marks is asked to keep
    everything up to this message. `origin` is that of the text outside of marked tags.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    reasoning: str = ""
    replay: VendorReplay | None = None
    note: str = ""
    cache_until: bool = False
    origin: TextOrigin = ""

    @property
    def text(self) -> str:
        """The message's text. If it has several parts, the text parts joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The message's images, in order."""
        parts = () if isinstance(self.content, str) else self.content
        return tuple(part for part in parts if isinstance(part, ImagePart))

    @property
    def is_final(self) -> bool:
        """Whether this is an assistant message that asks for no tool."""
        return self.role == "assistant" and not self.tool_calls


def sent_content(message: Message) -> str | tuple[Part, ...]:
    """Return the content that the model reads: the message's content, then its note."""
    if not message.note:
        return message.content
    if isinstance(message.content, str):
        return f"{message.content}\n\n{message.note}" if message.content else message.note
    return (*message.content, TextPart(message.note))


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one or more model calls in the canonical buckets.

    `prompt_tokens` = input + cache_read + cache_write; `output_tokens` = completion_tokens and includes
    reasoning. `cost_usd` is None while any part's price is unknown. `estimated_tokens`: how many of
    `total_tokens` Whet counted itself, because the server reported none or too few.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = 0.0
    estimated_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        is_known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if is_known else None,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
        )

    @property
    def is_prompt_estimated(self) -> bool:
        """Whether the prompt's tokens of this one call are Whet's estimate."""
        return self.estimated_tokens >= self.prompt_tokens > 0

    @property
    def cache_hit_ratio(self) -> float:
        """Share of the prompt tokens that were read from the provider's cache; 0 without a prompt."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def to_dict(message: Message) -> dict[str, Any]:
    """Return the message as an OpenAI chat dict, as engines, plugins and exports see it."""
    content: Any = sent_content(message)
    if not isinstance(content, str):
        content = [_part_to_dict(part) for part in content]
    row: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        row["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        row["tool_call_id"] = message.tool_call_id
        row["name"] = row["tool_name"] = message.tool_name
    if message.reasoning:
        row["reasoning"] = message.reasoning
    return row


def _part_to_dict(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    url = f"data:{part.media_type};base64,{part.data_base64}"
    return {"type": "image_url", "image_url": {"url": url}}


def from_dict(row: dict[str, Any]) -> Message:
    """Parse an OpenAI chat dict. Unknown keys are ignored. Raises ValueError for a wrong role or content."""
    role = row.get("role")
    if role not in ("user", "assistant", "tool"):
        raise ValueError(f"role must be user, assistant or tool, not {role!r}")
    return Message(
        role=role,
        content=_content_from(row.get("content")),
        tool_calls=tuple(_call_from(call) for call in row.get("tool_calls") or ()),
        tool_call_id=str(row.get("tool_call_id") or ""),
        tool_name=str(row.get("tool_name") or row.get("name") or ""),
        reasoning=str(row.get("reasoning") or ""),
    )


def _content_from(content: Any) -> str | tuple[Part, ...]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("content must be text or a list of parts")
    return tuple(_part_from(part) for part in content)  # pyright: ignore[reportUnknownVariableType]


def _part_from(part: Any) -> Part:
    if isinstance(part, str):
        return TextPart(part)
    if part.get("type") == "image_url":
        head, _, data = str(part["image_url"]["url"]).partition(";base64,")
        if not data:
            raise ValueError("an image must be a data: URL in base64")
        return ImagePart(head.removeprefix("data:"), data)
    return TextPart(str(part.get("text", "")))


def _call_from(call: Any) -> ToolCall:
    function = call["function"]
    return ToolCall(id=str(call["id"]), name=str(function["name"]), arguments=str(function["arguments"]))
