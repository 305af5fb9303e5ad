"""Helpers that the three wire formats share: an answer's metadata, events, and splitting of text."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from whet_lab.practice.cache import TokenTally, tokens
from whet_lab.practice.script import ScriptedReply

_encode = msgspec.json.Encoder().encode


class AnswerEnvelope(msgspec.Struct, frozen=True):
    """The metadata of an answer: ids, the model, token counts. `created` is seconds since 1970."""

    id: str
    model: str
    created: int
    tally: TokenTally
    completion_tokens: int
    reasoning_tokens: int
    wants_usage: bool
    body: dict[str, object]


def count_output_tokens(reply: ScriptedReply) -> tuple[int, int]:
    """Estimate a reply's output tokens: all, and those of its reasoning."""
    reasoning = len(reply.reasoning)
    answer_chars = len(reply.text) + sum(len(call.name) + len(call.arguments) for call in reply.tool_calls)
    return tokens(answer_chars + reasoning), tokens(reasoning)


def encode_event(kind: str, data: dict[str, Any]) -> bytes:
    """Return a server-sent event whose data begins with its type."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **data}))


def join_text(content: Any) -> str:
    """Return the text of a message's content, in any of its forms."""
    if not isinstance(content, list):
        return content or ""
    parts = cast("list[dict[str, Any]]", content)
    return "\n".join(str(part["text"]) for part in parts if "text" in part)


def split_text(text: str, count: int) -> list[str]:
    """Split `text` into `count` pieces of about the same length. An empty text has no pieces."""
    if count <= 1 or not text:
        return [text] if text else []
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]
