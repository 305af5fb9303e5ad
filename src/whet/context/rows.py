"""Chat rows: messages as an engine sees them, their text and token counts, and the conversion back to
messages.

An engine sees OpenAI chat dicts whose content is always text. The row of a stored message has its number as
`_seq`; a rewritten row names the number in its text ("recall #12"). A row that an engine returns unchanged,
as the same object or an equal copy, becomes the same `Message` again, with its images, replay and position in
the store. `read_back` parses all other rows as untrusted input.

Token counts are estimates, for decisions before the server has counted. Latin text has about four characters
per token; other scripts have about three bytes of UTF-8.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, cast

import msgspec

from whet.contract.context_engine import ChatRow
from whet.contract.messages import ImagePart, Message, from_dict, sent_content, to_dict
from whet.late import late_pattern

IMAGE_TOKENS = 1_200
ROW_TOKENS = 4
_CALL_TOKENS = 8
_REF = late_pattern(r"; recall #(\d+)\]")
_NOTE = late_pattern(r"(?:\n\n|\A)\[\d{4}-\d\d-\d\d \d\d:\d\d UTC[^\n\]]*\]\Z")
Fingerprint = tuple[str, str, str, str]


def text_tokens(text: str) -> int:
    """Estimate the tokens of `text`."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def message_tokens(message: Message) -> int:
    """Estimate the tokens that a message adds to a request, including its calls and images."""
    content = sent_content(message)
    total = ROW_TOKENS
    if isinstance(content, str):
        total += text_tokens(content)
    else:
        total += sum(
            IMAGE_TOKENS if isinstance(part, ImagePart) else text_tokens(part.text) for part in content
        )
    for call in message.tool_calls:
        total += ROW_TOKENS + text_tokens(call.name) + text_tokens(call.arguments)
    if message.replay is not None and message.reasoning:
        total += text_tokens(message.reasoning)
    return total


def list_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of a list of messages, without system prompt and tools."""
    return sum(map(message_tokens, messages))


class RowCall(NamedTuple):
    """A tool call of a row."""

    id: str
    name: str
    arguments: str


def text_of(row: ChatRow) -> str:
    """Return a row's text. If there are several parts, the text parts are joined by newlines."""
    content = row.get("content")
    if isinstance(content, str):
        return content
    texts = (part if isinstance(part, str) else str(part.get("text") or "") for part in parts_of(row))
    return "\n".join(text for text in texts if text)


def user_text(row: ChatRow) -> str:
    """Return the text that a person wrote, without the note that was stored with it."""
    return _NOTE.sub("", text_of(row)).strip()


def parts_of(row: ChatRow) -> list[Any]:
    """Return the parts of a row's content, or an empty list for plain text."""
    content = row.get("content")
    return cast("list[Any]", content) if isinstance(content, list) else []


def is_image(part: Any) -> bool:
    """Return whether a part of a message is an image."""
    return isinstance(part, dict) and "image" in str(cast("dict[str, Any]", part).get("type", ""))


def images_in(row: ChatRow) -> int:
    """Count a row's images."""
    return sum(map(is_image, parts_of(row)))


def calls_of(row: ChatRow) -> list[RowCall]:
    """Return a row's tool calls."""
    calls: list[RowCall] = []
    for call in row.get("tool_calls") or ():
        function: dict[str, Any] = call.get("function") or {}
        calls.append(
            RowCall(
                str(call.get("id") or ""),
                str(function.get("name") or ""),
                str(function.get("arguments") or ""),
            )
        )
    return calls


def seq_of(row: ChatRow) -> int:
    """Return the number of the stored message that a row shows or replaces, or 0."""
    number = row.get("_seq")
    if isinstance(number, int):
        return number
    if row.get("role") == "user" and not parts_of(row):
        return 0
    texts = [text_of(row), *(call.arguments for call in calls_of(row))]
    return max((int(match[1]) for text in texts if (match := _REF.search(text))), default=0)


def is_reply(row: ChatRow) -> bool:
    """Return whether a row is an answer to the person: text without calls."""
    return row.get("role") == "assistant" and not row.get("tool_calls") and bool(text_of(row).strip())


def tokens_of(row: ChatRow) -> int:
    """Estimate a row's tokens."""
    total = ROW_TOKENS
    content = row.get("content")
    if isinstance(content, str):
        total += text_tokens(content)
    elif content:
        total += text_tokens(text_of(row)) + IMAGE_TOKENS * images_in(row)
    if row.get("tool_calls"):
        for call in calls_of(row):
            total += _CALL_TOKENS + text_tokens(call.arguments)
    return total


def estimate(rows: Iterable[ChatRow]) -> int:
    """Estimate the tokens of a list."""
    return sum(map(tokens_of, rows))


def span_of(rows: Sequence[ChatRow]) -> tuple[int, int]:
    """Return the first and last message number among the rows, or (0, 0) if no row has one."""
    numbers = [number for row in rows if (number := seq_of(row))]
    return (min(numbers), max(numbers)) if numbers else (0, 0)


def ref(first: int, last: int = 0) -> str:
    """Return a reference such as #12 or #12-40, or an empty string for 0."""
    if not first:
        return ""
    return f"#{first}-{last}" if last > first else f"#{first}"


def line(text: str, cap_chars: int) -> str:
    """Return a text as one line of at most `cap_chars` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= cap_chars else flat[: max(cap_chars - 3, 0)] + "..."


class BadEngineRows(Exception):
    """An engine returned a value that is not a list of chat messages."""


def engine_row(message: Message) -> ChatRow:
    """Return the chat dict of a message with its content as text, in which an image is `[image TYPE]`."""
    row = to_dict(message)
    if not isinstance(row["content"], str):
        content = sent_content(message)
        assert not isinstance(content, str)
        row["content"] = "\n".join(
            f"[image {part.media_type}]" if isinstance(part, ImagePart) else part.text for part in content
        )
    return row


def fingerprint(row: ChatRow) -> Fingerprint:
    """Return a value that is equal for rows of the same message. Keys that an engine adds are ignored."""
    content, calls = row.get("content"), row.get("tool_calls")
    return (
        str(row.get("role")),
        content if isinstance(content, str) else repr(content) if content else "",
        str(row.get("tool_call_id") or ""),
        repr(calls) if calls else "",
    )


def extends(prefix: list[Message], messages: Sequence[Message]) -> bool:
    """Return whether `messages` begins with the same objects as `prefix`."""
    # Messages compare by identity, and lists check identity first: this takes a fifth of the time of a loop.
    return list(messages[: len(prefix)]) == prefix


class EngineRows:
    """A growing transcript as rows. Each message is converted once, and its row stays the same object."""

    def __init__(self) -> None:
        self.sources: list[Message] = []
        self.rows: list[ChatRow] = []
        self.sizes: list[int] = []
        self.tokens: int = 0

    def sync(self, messages: Sequence[Message], seqs: Sequence[int] = ()) -> bool:
        """Take over the transcript's messages; the rows of the common beginning stay. Returns True if rows
        were removed.

        `seqs` are the messages' numbers in the store, or 0. A row has its number as `_seq`, so that an engine
        can name the message.
        """
        is_cut = not extends(self.sources, messages)
        if is_cut:
            common = takewhile(lambda pair: pair[0] is pair[1], zip(self.sources, messages, strict=False))
            common_count = len(list(common))
            for items in (self.sources, self.rows, self.sizes):
                del items[common_count:]
            self.tokens = sum(self.sizes)
        for index in range(len(self.sources), len(messages)):
            row = engine_row(messages[index])
            if index < len(seqs) and seqs[index]:
                row["_seq"] = seqs[index]
            self._add(row, messages[index])
        return is_cut

    def adopt(self, rows: Sequence[ChatRow], messages: Sequence[Message]) -> None:
        """Replace all rows by the list that an engine returned."""
        self.sources, self.rows, self.sizes, self.tokens = [], [], [], 0
        for row, message in zip(rows, messages, strict=True):
            self._add(row, message)

    def restore(self, prints: Sequence[Fingerprint]) -> None:
        """Restore the rows that an engine has changed in place since `prints` returned these fingerprints."""
        for index, row in enumerate(self.rows):
            if fingerprint(row) != prints[index]:
                self.rows[index] = engine_row(self.sources[index])

    def prints(self) -> list[Fingerprint]:
        """Return every row's fingerprint, to detect later changes by an engine."""
        return [fingerprint(row) for row in self.rows]

    def _add(self, row: ChatRow, message: Message) -> None:
        size = message_tokens(message)
        self.sources.append(message)
        self.rows.append(row)
        self.sizes.append(size)
        self.tokens += size


def read_back(
    rows: Sequence[ChatRow], sources: list[Message], prints: Sequence[Fingerprint], returned: object
) -> tuple[list[ChatRow], list[Message]] | None:
    """Return an engine's result as rows and messages, or None if it equals `sources`.

    `prints` are the fingerprints of `rows` before the engine got them. Raises BadEngineRows if the result is
    not a list, is empty, or contains an invalid row.
    """
    if not isinstance(returned, list):
        raise BadEngineRows(f"it returned {type(returned).__name__}, not a list")
    if not returned:
        raise BadEngineRows("it returned an empty list")
    by_id = {id(row): index for index, row in enumerate(rows)}
    by_print: dict[Fingerprint, deque[int]] = {}
    for index, row_print in enumerate(prints):
        by_print.setdefault(row_print, deque()).append(index)
    returned_rows: list[ChatRow] = []
    messages: list[Message] = []
    last = -1
    for item in cast("list[object]", returned):
        if not isinstance(item, dict):
            raise BadEngineRows(f"it returned a row of {type(item).__name__}")
        row = cast("ChatRow", item)
        row_print = fingerprint(row)
        index = by_id.get(id(row))
        if index is None or prints[index] != row_print:
            index = _next_equal(by_print.get(row_print), last)
        if index is None:
            messages.append(_parse(row))
        else:
            last = index
            messages.append(sources[index])
        returned_rows.append(row)
    return None if messages == sources else (returned_rows, messages)  # messages are compared by identity


def _next_equal(candidates: deque[int] | None, last: int) -> int | None:
    """Remove and return the first candidate after `last`, or None."""
    while candidates:
        index = candidates.popleft()
        if index > last:
            return index
    return None


def _parse(row: ChatRow) -> Message:
    plain: dict[str, Any] = dict(row)
    if plain.get("role") in ("system", "developer"):
        plain["role"] = "user"  # an engine can't change the system prompt
    try:
        calls: list[Any] = [_parse_call(call) for call in plain.get("tool_calls") or ()]
        plain["tool_calls"] = calls if plain["role"] == "assistant" else ()
        message = from_dict(plain)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadEngineRows(f"it returned a row that is not a chat message ({error})") from error
    return msgspec.structs.replace(message, tool_call_id="") if message.role != "tool" else message


def _parse_call(call: Any) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call.get("id") or "", "function": {"name": function["name"], "arguments": text}}
