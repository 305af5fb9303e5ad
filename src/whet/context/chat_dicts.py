"""Read OpenAI chat dicts: text, images, calls, numbers, and how many tokens they roughly cost.

A row that stands in the store carries its number as `_seq`; a row that was rewritten on the way names it in
its text ("recall #12"). Words are masked and counted elsewhere. This module decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from whet.context.tokens import IMAGE_TOKENS, text_tokens
from whet.contract.context_engine import ChatRow, ChatRows

_ROW_TOKENS = 4
_CALL_TOKENS = 8
_REF = re.compile(r"; recall #(\d+)\]")
_NOTE = re.compile(r"(?:\n\n|\A)\[\d{4}-\d\d-\d\d \d\d:\d\d UTC[^\n\]]*\]\Z")


class RowCall(NamedTuple):
    """A tool call of a row."""

    id: str
    name: str
    arguments: str


def text_of(row: ChatRow) -> str:
    """Give a row's text; of several parts, the text parts joined by newlines."""
    content = row.get("content")
    if isinstance(content, str):
        return content
    texts = (part if isinstance(part, str) else str(part.get("text") or "") for part in parts_of(row))
    return "\n".join(text for text in texts if text)


def said(row: ChatRow) -> str:
    """Give what a person said, without the note that was stored with it."""
    return _NOTE.sub("", text_of(row)).strip()


def parts_of(row: ChatRow) -> list[Any]:
    """Give the parts of a row's content; plain text has none."""
    content = row.get("content")
    return cast("list[Any]", content) if isinstance(content, list) else []


def is_image(part: Any) -> bool:
    """Whether a part of a message is an image."""
    return isinstance(part, dict) and "image" in str(cast("dict[str, Any]", part).get("type", ""))


def images_in(row: ChatRow) -> int:
    """Count a row's images."""
    return sum(map(is_image, parts_of(row)))


def calls_of(row: ChatRow) -> list[RowCall]:
    """Give a row's tool calls."""
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
    """Give the number of the stored message that a row is, or stands for; 0 without one."""
    number = row.get("_seq")
    if isinstance(number, int):
        return number
    if row.get("role") == "user" and not parts_of(row):
        return 0
    texts = [text_of(row), *(call.arguments for call in calls_of(row))]
    return max((int(found[1]) for text in texts if (found := _REF.search(text))), default=0)


def is_reply(row: ChatRow) -> bool:
    """Whether a row is an answer to the person: text, and no call."""
    return row.get("role") == "assistant" and not row.get("tool_calls") and bool(text_of(row).strip())


def tokens_of(row: ChatRow) -> int:
    """Estimate a row's tokens."""
    total = _ROW_TOKENS
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
    """Give the first and last message number among `rows`; (0, 0) where none has one."""
    numbers = [number for row in rows if (number := seq_of(row))]
    return (min(numbers), max(numbers)) if numbers else (0, 0)


def ref(first: int, last: int = 0) -> str:
    """Write a reference: #12 or #12-40; nothing for 0."""
    if not first:
        return ""
    return f"#{first}-{last}" if last > first else f"#{first}"


def line(text: str, cap_chars: int) -> str:
    """Give a text as one line of at most `cap_chars` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= cap_chars else flat[: max(cap_chars - 3, 0)] + "..."


def paired(rows: ChatRows) -> ChatRows:
    """Give the rows with each call answered right after it: late results moved there, a missing one
    replaced by a line that says so, results without a call left out. Untouched rows stay the same objects.
    """
    results: dict[str, list[tuple[int, ChatRow]]] = {}
    for index, row in enumerate(rows):
        if row.get("role") == "tool":
            results.setdefault(str(row.get("tool_call_id") or ""), []).append((index, row))
    fixed: ChatRows = []
    for index, row in enumerate(rows):
        if row.get("role") == "tool":
            continue
        fixed.append(row)
        for call in calls_of(row):
            fixed.append(_take(results.get(call.id, []), index, call))
    return fixed


def _take(waiting: list[tuple[int, ChatRow]], after: int, call: RowCall) -> ChatRow:
    while waiting and waiting[0][0] < after:
        waiting.pop(0)
    if waiting:
        return waiting.pop(0)[1]
    text = "No result of this call was recorded."
    return {
        "role": "tool",
        "tool_call_id": call.id,
        "name": call.name,
        "tool_name": call.name,
        "content": text,
    }
