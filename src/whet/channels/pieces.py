"""Split long answers into messages of a platform's length without breaking their Markdown.

A message ends between blocks if possible, otherwise between lines, otherwise between words. A code block
that is split is closed in one message and reopened, with its language, in the next. This module does no I/O.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,20}|~{3,20})(?![`~])[^\n`]*$")
_FENCE_CHARS = 40  # reserved for closing a fence and reopening it


def split_message(text: str, limit: int, first_limit: int = 0) -> list[str]:
    """Split Markdown into messages of at most `limit` characters, or 200 if `limit` is less.

    `first_limit` is the limit of the first message if it is not 0. Characters beyond U+FFFF count twice, as
    on the platforms. Only white space at the splits is lost.
    """
    text = text.strip("\n")
    messages: list[str] = []
    fence = ""
    while text:
        max_units = max(200, limit if messages else first_limit or limit)
        head = f"{fence}\n" if fence else ""
        # The first comparison spares counting all of a long text for each message.
        if len(head) + len(text) <= max_units and len(head) + _count_units(text) <= max_units:
            messages.append(head + text)
            break
        max_chars = _count_fitting(text, max_units - len(head) - _FENCE_CHARS)
        split = _find_split(text, max_chars, in_code=bool(_open_fence_after(fence, text[:max_chars])))
        piece, text = text[:split], text[split:]
        open_fence = _open_fence_after(fence, piece)
        text = text.lstrip("\n") if not open_fence else text.removeprefix("\n")
        piece = piece.rstrip("\n") if open_fence else piece.rstrip()
        tail = f"\n{_closing_fence(open_fence)}" if open_fence else ""
        if piece.strip() or open_fence:
            messages.append(f"{head}{piece}{tail}")
        fence = open_fence
    return messages or [""]


def _count_units(text: str) -> int:
    """Return the length in UTF-16 units, which the platforms count as characters."""
    return len(text) + (0 if text.isascii() else sum(character > "\uffff" for character in text))


def _count_fitting(text: str, max_units: int) -> int:
    """Return the number of characters from the start that have at most `max_units` units."""
    count = min(max_units, len(text))
    while _count_units(text[:count]) > max_units:
        count -= (_count_units(text[:count]) - max_units + 1) // 2
    return count


def _find_split(text: str, max_chars: int, *, in_code: bool) -> int:
    """Return the best position of a split in the second half of the first `max_chars` characters."""
    for mark in ("\n", " ") if in_code else ("\n\n", "\n", ". ", " "):
        position = text.rfind(mark, max_chars // 2, max_chars)
        if position > 0:
            return position + (1 if mark == ". " else 0)
    position = max_chars
    while position > 1 and _is_combined(text[position - 1], text[position : position + 1]):
        position -= 1
    return position


def _is_combined(previous: str, following: str) -> bool:
    """Return whether two code points belong to one visible character."""
    return bool(following) and (
        following in "\u200d\ufe0f" or previous == "\u200d" or "\u0300" <= following <= "\u036f"
    )


def _open_fence_after(fence: str, piece: str) -> str:
    """Return the opening line of the fence that is open after a piece, or ""."""
    for line in piece.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            fence = line.strip() if len(line.strip()) <= _FENCE_CHARS - 10 else match[1]
        elif _is_closing(line, fence):
            fence = ""
    return fence


def _is_closing(line: str, fence: str) -> bool:
    mark, ticks = line.strip(), _closing_fence(fence)
    return set(mark) == {ticks[0]} and len(mark) >= len(ticks)


def _closing_fence(fence: str) -> str:
    match = _FENCE.match(fence)
    return match[1] if match else "```"
