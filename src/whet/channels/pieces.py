"""Split long answers into messages of a platform's length, at points where Markdown allows it.

A message ends between blocks, otherwise between lines, otherwise between words. If a split goes through a
code fence, the fence is closed in one message and reopened, with its language, in the next. This module
does no I/O.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,20}|~{3,20})(?![`~])[^\n`]*$")
_FENCE_CHARS = 40  # reserved for closing a fence and reopening it


def split_message(text: str, limit: int, first_limit: int = 0) -> list[str]:
    """Split Markdown into messages of at most `limit` characters (at least 200).

    The first one has at most `first_limit` characters, if that is set.

    Characters beyond U+FFFF count twice, as on the platforms. Only white space at the splits is lost, and
    fences are added.
    """
    text = text.strip("\n")
    parts: list[str] = []
    fence = ""
    while text:
        max_units = max(200, limit if parts else first_limit or limit)
        head = f"{fence}\n" if fence else ""
        if len(head) + len(text) <= max_units and len(head) + _count_units(text) <= max_units:
            parts.append(head + text)
            break
        room = _fitting_chars(text, max_units - len(head) - _FENCE_CHARS)
        cut = _find_split(text, room, in_code=bool(_open_fence_after(fence, text[:room])))
        piece, text = text[:cut], text[cut:]
        open_fence = _open_fence_after(fence, piece)
        text = text.lstrip("\n") if not open_fence else text.removeprefix("\n")
        piece = piece.rstrip("\n") if open_fence else piece.rstrip()
        tail = f"\n{_closing_fence(open_fence)}" if open_fence else ""
        if piece.strip() or open_fence:
            parts.append(f"{head}{piece}{tail}")
        fence = open_fence
    return parts or [""]


def _count_units(text: str) -> int:
    """Return the length in UTF-16 units, which the platforms count as characters."""
    return len(text) + (0 if text.isascii() else sum(character > "\uffff" for character in text))


def _fitting_chars(text: str, room: int) -> int:
    """Return how many of the first characters take at most `room` units."""
    count = min(room, len(text))
    while _count_units(text[:count]) > room:
        count -= (_count_units(text[:count]) - room + 1) // 2
    return count


def _find_split(text: str, room: int, *, in_code: bool) -> int:
    """Return where to split the first `room` characters: after half of them at the earliest."""
    for mark in ("\n", " ") if in_code else ("\n\n", "\n", ". ", " "):
        position = text.rfind(mark, room // 2, room)
        if position > 0:
            return position + (1 if mark == ". " else 0)
    cut = room
    while cut > 1 and _is_one_sign(text[cut - 1], text[cut] if cut < len(text) else ""):
        cut -= 1  # never split a character from its combining parts
    return cut


def _is_one_sign(previous: str, following: str) -> bool:
    return bool(following) and (
        following in "\u200d\ufe0f" or previous == "\u200d" or "\u0300" <= following <= "\u036f"
    )


def _open_fence_after(fence: str, piece: str) -> str:
    """Return the opening line of the fence that is open after a piece, or an empty string."""
    for line in piece.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            fence = line.strip() if len(line.strip()) <= _FENCE_CHARS - 10 else match[1]
        elif _closes(line, fence):
            fence = ""
    return fence


def _closes(line: str, fence: str) -> bool:
    mark, ticks = line.strip(), _closing_fence(fence)
    return set(mark) == {ticks[0]} and len(mark) >= len(ticks)


def _closing_fence(fence: str) -> str:
    match = _FENCE.match(fence)
    return match[1] if match else "```"
