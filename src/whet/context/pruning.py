"""Shrink old tool traffic without a model: repeated and long results, long arguments, images.

The text in place of a cut says what was cut, with the message number for `recall`. A changed row is a new
dict without `_seq`; all others stay the same objects. The caller chooses which rows are old.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from whet.context import rows as chat
from whet.context.artifacts import read_outcome
from whet.contract.context_engine import ChatRow, ChatRows
from whet.contract.texts import NOT_JSON
from whet.contract.tools import clip
from whet.log import mask

RESULT_CHARS = 200
ARGUMENT_CHARS = 500
_KEPT_CHARS = 120


def prune(old: ChatRows, newer: ChatRows) -> ChatRows:
    """Return `old` with its tool traffic cut down. `newer` is the list that follows and stays unchanged.

    A result that occurs again later, in either list, becomes a reference to the later one, unless it has
    images: these may differ although the text is the same.
    """
    calls = {call.id: call for row in old for call in chat.calls_of(row)}
    results = [row for row in (*old, *newer) if row.get("role") == "tool" and not chat.images_in(row)]
    newest = {chat.text_of(row): row for row in results}
    pruned: ChatRows = []
    for row in old:
        if row.get("role") == "tool":
            call = calls.get(str(row.get("tool_call_id")))
            pruned.append(_shorten_result(row, call, newest.get(chat.text_of(row), row)))
        else:
            pruned.append(_cut_images(_shorten_arguments(row)))
    return pruned


def shorten(rows: ChatRows, budget_tokens: int) -> ChatRows:
    """Return the rows with their longest tool results clipped, so that the rows fit the budget if that is
    possible."""
    sizes = [chat.tokens_of(row) if row.get("role") == "tool" else 0 for row in rows]
    room = budget_tokens - sum(chat.tokens_of(row) for row in rows if row.get("role") != "tool")
    cap = max(_fair_share(sizes, room), 100)
    return [clip_text(row, cap) if row.get("role") == "tool" else row for row in rows]


def clip_text(row: ChatRow, cap_tokens: int) -> ChatRow:
    """Return the row with its text clipped to about `cap_tokens`, if it is longer."""
    text = chat.text_of(row)
    room = cap_tokens * len(text) // max(chat.text_tokens(text), 1)
    return _replace_content(row, clip(text, room, _recall_note(row))) if len(text) > room else row


def describe(row: ChatRow, call: chat.RowCall | None) -> str:
    """Describe a tool result in one line: tool, arguments, outcome, size, and a failure's last line."""
    text = chat.text_of(row)
    name = call.name if call else str(row.get("tool_name") or row.get("name") or "tool")
    arguments = f" {_brief(call.arguments)}" if call and call.arguments not in ("", "{}") else ""
    outcome = read_outcome(name, row)
    size = f"{len(text):,} characters, {text.count(chr(10)) + 1:,} lines"
    has_failed = outcome not in ("", "exit 0")
    end = f", ends: {' '.join(mask(text[-2_000:]).split())[-_KEPT_CHARS:]}" if has_failed else ""
    return f"{name}{arguments} -> {outcome + ', ' if outcome else ''}{size}{end}"


def _brief(arguments: str) -> str:
    try:
        decoded = msgspec.json.decode(arguments)
    except NOT_JSON:
        decoded = arguments
    if isinstance(decoded, dict):
        values = cast("dict[str, Any]", decoded)
        decoded = ", ".join(f"{key}={chat.line(str(value), 80)}" for key, value in values.items())
    return chat.line(mask(str(decoded)), _KEPT_CHARS)


def _shorten_result(row: ChatRow, call: chat.RowCall | None, newest: ChatRow) -> ChatRow:
    text = chat.text_of(row)
    images = chat.images_in(row)
    if (len(text) <= RESULT_CHARS and not images) or text.startswith("[cut: "):
        return row
    summary = describe(row, call)
    if images:
        summary += f", {images} images"
    elif newest is not row:
        reference = chat.ref(chat.seq_of(newest))
        summary = f"same result {f'as {reference}' if reference else 'again below'}: {summary}"
    line = f"[cut: {summary}{_recall_note(row)}]"
    return _replace_content(row, line) if len(line) < len(text) or images else row


def _shorten_arguments(row: ChatRow) -> ChatRow:
    if not any(len(call.arguments) > ARGUMENT_CHARS for call in chat.calls_of(row)):
        return row
    calls: list[dict[str, Any]] = []
    for call in row["tool_calls"]:
        function = call["function"]
        short = _shorten_json(str(function.get("arguments") or ""), _recall_note(row))
        calls.append({**call, "function": {**function, "arguments": short}})
    return _replace_content(row, row.get("content") or "", tool_calls=calls)


def _shorten_json(arguments: str, note: str) -> str:
    """Shorten the texts inside JSON arguments. The result is valid JSON."""
    if len(arguments) <= ARGUMENT_CHARS:
        return arguments
    try:
        short = msgspec.json.encode(_shorten_value(msgspec.json.decode(arguments), note)).decode()
    except NOT_JSON:
        short = msgspec.json.encode(_shorten_value({"unreadable": arguments}, note)).decode()
    if len(short) > 2 * ARGUMENT_CHARS:
        short = msgspec.json.encode({"cut": _shorten_value(short, note)}).decode()
    return short


def _shorten_value(value: Any, note: str) -> Any:
    if isinstance(value, str) and len(value) > _KEPT_CHARS:
        return f"{value[:_KEPT_CHARS]} [{len(value) - _KEPT_CHARS:,} more characters{note}]"
    if isinstance(value, dict):
        return {key: _shorten_value(item, note) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_shorten_value(item, note) for item in items[:8]]
    return value


def _cut_images(row: ChatRow) -> ChatRow:
    if not chat.images_in(row):
        return row
    parts: list[Any] = [
        {"type": "text", "text": f"[cut: an image{_recall_note(row)}]"} if chat.is_image(part) else part
        for part in chat.parts_of(row)
    ]
    return _replace_content(row, parts)


def _fair_share(sizes: list[int], room: int) -> int:
    """Return the largest cap such that the sizes fit the room if each is cut to the cap."""
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = room // (len(ordered) - index)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _recall_note(row: ChatRow) -> str:
    seq = chat.seq_of(row)
    return f"; recall {chat.ref(seq)}" if seq else ""


def _replace_content(row: ChatRow, content: Any, **more: Any) -> ChatRow:
    return {
        **{key: value for key, value in row.items() if not key.startswith("_")},
        "content": content,
        **more,
    }
