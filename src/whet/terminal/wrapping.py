"""Break text into lines that fit a width in terminal columns."""

from __future__ import annotations

from whet.terminal import wording


def wrap_lines(text: str, width: int) -> list[str]:
    """Break `text` into lines of at most `width` columns, at spaces if possible."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        while wording.count_columns(line) > width:
            cut = _cut(line, max(width, 1))
            rows.append(line[:cut].rstrip())
            line = line[cut:].lstrip(" ")
        rows.append(line)
    return rows


def _cut(line: str, width: int) -> int:
    room = width
    for index, character in enumerate(line):
        room -= wording.count_columns(character)
        if room < 0:
            blank = line.rfind(" ", 0, index + 1)
            return blank + 1 if blank > width // 2 else max(index, 1)
    return len(line)
