"""Whet's own count of tokens, beside the one that a server reports: what was sent is never counted as less.

Servers report usage in different ways, too little or not at all. `Reported` reads a server's numbers by their
arithmetic. `checked` compares them with the text that was sent and received: a number below the fewest tokens
that any tokenizer makes of that text is replaced by an estimate, and marked as one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from whet.contract.messages import ImagePart, Message, Usage, sent_content
from whet.contract.protocols import ModelInfo

# Tokenizers split text at changes between letters, digits and the rest before they merge anything, and digits
# into groups of three at most. So each match is one token at least; spaces and punctuation are left out.
_LEAST = re.compile(rb"[A-Za-z]{1,16}|[0-9]{1,3}|[\x80-\xff]{1,16}")
_BYTES_PER_TOKEN = 3
_ABOVE_LEAST = 1.25
_IMAGE_TOKENS = 1_600
# A report of one token for five bytes of the request is plausible; then the text is not looked at.
_PLAUSIBLE_BYTES = 5
# Servers render the schemas of tools in shorter forms than JSON, and not the request's own fields.
_HEAD_SHARE = 0.25
_FIELDS_LEAST = 20


class Reported(msgspec.Struct, frozen=True):
    """What a server reports of one call, 0 for what it does not report."""

    prompt: int
    output: int
    total: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def usage(self, info: ModelInfo) -> Usage:
        """Return the usage. Reasoning is part of the output at some servers, beside it at others, and only in
        the total at a third kind; the cached part of the prompt is beside the rest at a few."""
        prompt, output, reasoning = max(self.prompt, 0), max(self.output, 0), max(self.reasoning, 0)
        cached = max(self.cache_read, 0)
        rest = self.total - prompt - output
        if cached and (cached > prompt or rest in (cached, cached + reasoning)):
            prompt += cached
        output = max(output, self.total - prompt, output + reasoning if reasoning > output else 0)
        return info.usage(
            prompt=prompt,
            output=output,
            cache_read=cached,
            cache_write=max(self.cache_write, 0),
            reasoning=reasoning,
        )


class TextSize(msgspec.Struct, frozen=True):
    """How large a text is: bytes, the fewest tokens that these can be, and the images in it."""

    size_bytes: int = 0
    least: int = 0
    images: int = 0

    def __add__(self, other: TextSize) -> TextSize:
        return TextSize(
            self.size_bytes + other.size_bytes, self.least + other.least, self.images + other.images
        )

    @property
    def estimate(self) -> int:
        """A cautious estimate of its tokens."""
        text = max(-(-self.size_bytes // _BYTES_PER_TOKEN), int(self.least * _ABOVE_LEAST))
        return text + self.images * _IMAGE_TOKENS


def size_of(text: str) -> TextSize:
    """Measure a text."""
    data = text.encode("utf-8", "surrogatepass")
    return TextSize(len(data), _least(data))


class PromptSizes:
    """Measures the requests of one session; of each only what is new against the one before."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._head_least = -1
        self._messages: list[Message] = []
        self._sums: list[TextSize] = []

    def measure(self, messages: Sequence[Message], body: bytes) -> TextSize:
        """Measure a request: `least` counts the messages and a part of what stands before them."""
        if self._head_least < 0:
            self._head_least = max(int(_least(self._head) * _HEAD_SHARE) - _FIELDS_LEAST, 0)
        kept = 0
        for kept_message, message in zip(self._messages, messages, strict=False):
            if kept_message is not message:
                break
            kept += 1
        del self._messages[kept:], self._sums[kept:]
        for message in messages[kept:]:
            before = self._sums[-1] if self._sums else TextSize()
            self._messages.append(message)
            self._sums.append(before + _message_size(message))
        total = self._sums[-1] if self._sums else TextSize()
        # The body as sent is the better measure of the bytes; images in it are counted apart.
        size = len(body) - sum(map(_image_bytes, messages)) if total.images else len(body)
        return TextSize(max(size, total.size_bytes), total.least + self._head_least, total.images)


def is_plausible(usage: Usage, body: bytes) -> bool:
    """Whether the reported prompt is clearly large enough for a request of that size."""
    return usage.prompt_tokens * _PLAUSIBLE_BYTES >= len(body)


def answer_size(message: Message, *, without_reasoning: bool) -> TextSize:
    """Measure an answer's text, its calls, and the reasoning that was shown."""
    size = size_of(message.text) if message.text else TextSize()
    for call in message.tool_calls:
        size += size_of(f"{call.name} {call.arguments}")
    return size if without_reasoning or not message.reasoning else size + size_of(message.reasoning)


def checked(info: ModelInfo, usage: Usage, prompt: TextSize | None, answer: TextSize) -> Usage:
    """Return `usage` with estimates in place of what can't be right. `prompt` None: it is plausible. `answer`
    leaves reasoning out where the server reports it, since that may come on top."""
    sent, output, estimated = usage.prompt_tokens, usage.output_tokens, 0
    if prompt is not None and sent < max(prompt.least, 1):
        estimated = sent = max(sent, prompt.estimate)
    if output < max(answer.least, min(answer.size_bytes, 1)):
        output = max(output, answer.estimate)
        estimated += output
    elif usage.reasoning_tokens and output < usage.reasoning_tokens + answer.least:
        output += usage.reasoning_tokens  # beside the output: both together do not fit into it
    if (sent, output) == (usage.prompt_tokens, usage.output_tokens):
        return usage
    counted = info.usage(
        prompt=sent,
        output=output,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.reasoning_tokens,
    )
    reported_usd = usage.cost_usd or 0.0
    cost = counted.cost_usd if counted.cost_usd is None else max(counted.cost_usd, reported_usd)
    return msgspec.structs.replace(counted, cost_usd=cost, estimated_tokens=estimated)


def lost(info: ModelInfo, usage: Usage, prompt: TextSize, answer: TextSize) -> Usage:
    """Return the usage of an attempt without a whole answer: what the server reported of it until then, at
    least the estimate of what was sent and came."""
    if usage.prompt_tokens < max(prompt.least, 1):
        counted = info.usage(prompt=prompt.estimate, output=answer.estimate)
        return msgspec.structs.replace(counted, estimated_tokens=counted.total_tokens)
    output = max(usage.output_tokens, answer.estimate)
    counted = info.usage(
        prompt=usage.prompt_tokens,
        output=output,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.reasoning_tokens,
    )
    return msgspec.structs.replace(counted, estimated_tokens=output - usage.output_tokens)


def _least(data: bytes) -> int:
    return sum(1 for _ in _LEAST.finditer(data))


def _message_size(message: Message) -> TextSize:
    size = size_of(message.text)
    for call in message.tool_calls:
        size += size_of(call.arguments)
    content = sent_content(message)
    if isinstance(content, str):
        return size
    return size + TextSize(images=sum(isinstance(part, ImagePart) for part in content))


def _image_bytes(message: Message) -> int:
    content = sent_content(message)
    if isinstance(content, str):
        return 0
    return sum(len(part.data_base64) for part in content if isinstance(part, ImagePart))
