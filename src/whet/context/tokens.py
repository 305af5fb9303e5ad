"""Rough token counts, for decisions before the server has counted.

Latin text has about four characters a token; other scripts fewer, which their UTF-8 length follows well.
A server's own count is always preferred (`context/host.py`). It does not know any vendor's tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable

from whet.contract.messages import ImagePart, Message, sent_content

IMAGE_TOKENS = 1_200
_ROW_TOKENS = 4


def text_tokens(text: str) -> int:
    """Estimate the tokens of `text`."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def message_tokens(message: Message) -> int:
    """Estimate what a message adds to a request, its calls and images included."""
    content = sent_content(message)
    total = _ROW_TOKENS
    if isinstance(content, str):
        total += text_tokens(content)
    else:
        total += sum(
            IMAGE_TOKENS if isinstance(part, ImagePart) else text_tokens(part.text) for part in content
        )
    for call in message.tool_calls:
        total += _ROW_TOKENS + text_tokens(call.name) + text_tokens(call.arguments)
    if message.replay is not None and message.reasoning:
        total += text_tokens(message.reasoning)
    return total


def list_tokens(messages: Iterable[Message]) -> int:
    """Estimate a list of messages, without system prompt and tools."""
    return sum(map(message_tokens, messages))
