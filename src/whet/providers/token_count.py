"""Check the token counts that a server reports against the text, and replace wrong ones by estimates.

Servers report usage in different ways, too little, far too much or not at all. `Reported` finds out from the
sums what a server's numbers include. `correct_usage` compares them with the text that was sent and received.
A number below the fewest tokens that any tokenizer makes of that text, or above the most that the request can
have, is replaced by an estimate and marked as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whet.contract.messages import ImagePart, Message, Usage, sent_content
from whet.contract.protocols import ModelInfo
from whet.late import late_pattern

# Tokenizers first split text between letters, digits and other characters, and digits into groups of at most
# three. So each match is at least one token. Spaces and punctuation are left out.
_WORD_OR_NUMBER = late_pattern(rb"[A-Za-z\x80-\xff]{1,16}|[0-9]{1,3}")
# Pieces of about one token. In base64, hexadecimal numbers, JSON and emoji, they have less than three bytes.
_PIECES = late_pattern(
    rb"[A-Z]?[a-z]{1,8}|[A-Z]{1,2}|[0-9]{1,3}|[\x9f\xf0-\xff]|[\x80-\xef]{1,4}|[^\sA-Za-z0-9\x80-\xff]{1,2}"
)
_BYTES_PER_TOKEN = 3
_HEAD_BYTES_PER_PIECE = 4
_ABOVE_PIECES = 1.3
_IMAGE_TOKENS = 1_600
# A report of at least one token for five bytes is plausible, and the text need not be measured.
_PLAUSIBLE_BYTES = 5
# Servers render the schemas of tools shorter than JSON, and leave out the request's own fields.
_HEAD_SHARE = 0.25
_FIELDS_LEAST = 20
# No tokenizer makes more than one token of a byte. But servers add prompts of their own and pages that they
# searched, and count pictures by their size.
_MAX_ADDED_TOKENS = 100_000
_MAX_ADDED_OUTPUT_TOKENS = 10_000
_MAX_IMAGE_TOKENS = 40_000
# A server with its own output limit may exceed the known limit of the model.
_MAX_OUTPUT_RATIO = 2


class Reported(msgspec.Struct, frozen=True):
    """The token counts of one call as a server reports them, 0 for those that it does not report."""

    prompt: int
    output: int
    total: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def usage(self, info: ModelInfo) -> Usage:
        """Return the usage. Some servers count reasoning in the output, some in addition to it, and some only
        in the total. A few count cached tokens in addition to the prompt."""
        prompt, output, reasoning = max(self.prompt, 0), max(self.output, 0), max(self.reasoning, 0)
        cached = max(self.cache_read, 0)
        difference = self.total - prompt - output
        if cached and (cached > prompt or difference in (cached, cached + reasoning)):
            prompt += cached
        output = max(output, self.total - prompt, output + reasoning if reasoning > output else 0)
        return info.usage(
            prompt=prompt,
            output=output,
            cache_read=cached,
            cache_write=min(max(self.cache_write, 0), prompt - cached),
            reasoning=reasoning,
        )


class TextSize(msgspec.Struct, frozen=True):
    """The size of a text, and of the images with it.

    `least` is the fewest tokens that the text can have, `pieces` the number of pieces of about one token.
    `most` is the most tokens that a whole request can have, 0 for a part of a request.
    """

    size_bytes: int = 0
    least: int = 0
    images: int = 0
    most: int = 0
    pieces: int = 0

    def __add__(self, other: TextSize) -> TextSize:
        return TextSize(
            self.size_bytes + other.size_bytes,
            self.least + other.least,
            self.images + other.images,
            pieces=self.pieces + other.pieces,
        )

    @property
    def estimate(self) -> int:
        """A cautious estimate of the tokens, rather too high."""
        text = max(-(-self.size_bytes // _BYTES_PER_TOKEN), int(self.pieces * _ABOVE_PIECES))
        return text + self.images * _IMAGE_TOKENS


def size_of(text: str, *, counts_pieces: bool = True) -> TextSize:
    """Measure a text. Counting pieces, which only an estimate needs, takes half of the time."""
    data = text.encode("utf-8", "surrogatepass")
    return TextSize(len(data), _min_tokens(data), pieces=len(_PIECES.findall(data)) if counts_pieces else 0)


class PromptSizes:
    """Measures the requests of one session. Messages that the last request also had are not measured
    again."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._head_least = -1
        self._messages: list[Message] = []
        self._sums: list[TextSize] = []

    def measure(self, messages: Sequence[Message], body: bytes, window_tokens: int) -> TextSize:
        """Measure a request. `least` counts the messages and a share of the head (prompt and tools)."""
        if self._head_least < 0:
            self._head_least = max(int(_min_tokens(self._head) * _HEAD_SHARE) - _FIELDS_LEAST, 0)
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
        # The sent body gives the exact bytes; its images are counted separately.
        size = len(body) - sum(map(_image_bytes, messages)) if total.images else len(body)
        most = _most_prompt(body, window_tokens) + total.images * _MAX_IMAGE_TOKENS
        least = total.least + self._head_least
        pieces = total.pieces + len(self._head) // _HEAD_BYTES_PER_PIECE
        return TextSize(max(size, total.size_bytes), least, total.images, most, pieces)


def is_plausible(usage: Usage, body: bytes, window_tokens: int) -> bool:
    """Return whether the reported prompt tokens are clearly enough for the request, and not too many."""
    is_enough = usage.prompt_tokens * _PLAUSIBLE_BYTES >= len(body)
    return is_enough and usage.prompt_tokens <= _most_prompt(body, window_tokens)


def _most_prompt(body: bytes, window_tokens: int) -> int:
    """Return the most tokens that a request can have, with text that the server adds within the window."""
    added = min(_MAX_ADDED_TOKENS, max(window_tokens - len(body), 0)) if window_tokens else _MAX_ADDED_TOKENS
    return len(body) + added


def _answer_size(message: Message, *, without_reasoning: bool, counts_pieces: bool = True) -> TextSize:
    """Measure an answer's text, its calls, and the reasoning that was shown."""
    texts = [message.text] if message.text else []
    texts += [f"{call.name} {call.arguments}" for call in message.tool_calls]
    if message.reasoning and not without_reasoning:
        texts.append(message.reasoning)
    size = TextSize()
    for text in texts:
        size += size_of(text, counts_pieces=counts_pieces)
    return size


def is_plausible_output(info: ModelInfo, usage: Usage, answer: TextSize) -> bool:
    """Return whether an answer of this size can have the reported tokens. Its `pieces` are not used."""
    is_enough = usage.output_tokens >= max(answer.least, min(answer.size_bytes, 1))
    is_both = not usage.reasoning_tokens or usage.output_tokens >= usage.reasoning_tokens + answer.least
    return is_enough and is_both and usage.output_tokens <= _most_output(info, answer)


def correct_answer(info: ModelInfo, usage: Usage, prompt: TextSize | None, message: Message) -> Usage:
    """Return the corrected usage, as `correct_usage` does. Counts the answer's pieces only if necessary."""
    is_apart = bool(usage.reasoning_tokens)
    rough = _answer_size(message, without_reasoning=is_apart, counts_pieces=False)
    if prompt is None and is_plausible_output(info, usage, rough):
        return usage
    return correct_usage(info, usage, prompt, _answer_size(message, without_reasoning=is_apart))


def correct_usage(info: ModelInfo, usage: Usage, prompt: TextSize | None, answer: TextSize) -> Usage:
    """Return `usage` with estimates in place of impossible counts.

    `prompt` None: the prompt's count is plausible. `answer` must be measured without reasoning if the server
    reports reasoning tokens, because these may be counted in addition to the output.
    """
    sent, output, reasoning, estimated = usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens, 0
    if prompt is not None and _is_wrong(sent, prompt):
        estimated = sent = prompt.estimate
    if output > _most_output(info, answer):
        output, reasoning = answer.estimate, 0
        estimated += output
    elif output < max(answer.least, min(answer.size_bytes, 1)):
        output = max(output, answer.estimate)
        estimated += output
    elif reasoning and output < reasoning + answer.least:
        output += reasoning  # the output is too small to include it, so it was counted separately
    if (sent, output) == (usage.prompt_tokens, usage.output_tokens):
        return usage
    counted = _replace_counts(info, usage, sent, output, reasoning)
    return msgspec.structs.replace(counted, estimated_tokens=estimated)


def lost_usage(info: ModelInfo, usage: Usage, prompt: TextSize, answer: TextSize) -> Usage:
    """Return the usage of an attempt whose answer broke off: the counts that the server reported, but no less
    than the estimates of the texts that were sent and received."""
    if _is_wrong(usage.prompt_tokens, prompt):
        counted = info.usage(prompt=prompt.estimate, output=answer.estimate)
        return msgspec.structs.replace(counted, estimated_tokens=counted.total_tokens)
    is_impossible = usage.output_tokens > _most_output(info, answer)
    output = answer.estimate if is_impossible else max(usage.output_tokens, answer.estimate)
    reasoning = 0 if is_impossible else usage.reasoning_tokens
    counted = _replace_counts(info, usage, usage.prompt_tokens, output, reasoning)
    estimated = output if is_impossible else output - usage.output_tokens
    return msgspec.structs.replace(counted, estimated_tokens=estimated)


def _is_wrong(prompt_tokens: int, prompt: TextSize) -> bool:
    """Return whether a request of this size can't have that many tokens."""
    return prompt_tokens < max(prompt.least, 1) or prompt_tokens > prompt.most


def _most_output(info: ModelInfo, answer: TextSize) -> int:
    """Return the most tokens that an answer can have, including hidden reasoning."""
    return max(info.max_output_tokens * _MAX_OUTPUT_RATIO, answer.size_bytes + _MAX_ADDED_OUTPUT_TOKENS)


def _replace_counts(info: ModelInfo, usage: Usage, prompt: int, output: int, reasoning: int) -> Usage:
    """Return `usage` with other counts. Cached tokens are cut to fit into them. The cost is that of the
    counts, or the server's own price if that is higher."""
    cache_read = min(usage.cache_read_tokens, prompt)
    counted = info.usage(
        prompt=prompt,
        output=output,
        cache_read=cache_read,
        cache_write=min(usage.cache_write_tokens, prompt - cache_read),
        reasoning=reasoning,
    )
    reported_usd = usage.cost_usd
    by_counts = info.cost_usd(
        usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens
    )
    if counted.cost_usd is None or reported_usd is None or reported_usd == by_counts:
        return counted
    return msgspec.structs.replace(counted, cost_usd=max(counted.cost_usd, reported_usd))


def _min_tokens(data: bytes) -> int:
    return len(_WORD_OR_NUMBER.findall(data))


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
