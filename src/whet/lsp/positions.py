"""Convert between our positions and paths and those of language servers: UTF-16 columns and file URIs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_LINE_END = re.compile(r"\r\n|\n|\r")


def to_uri(path: Path) -> str:
    """Return the URI of an absolute path."""
    return "file://" + quote(str(path), safe="/", errors="surrogateescape")


def to_path(uri: str) -> Path | None:
    """Return the path of a file URI, or None if it names no file of this machine."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    name = unquote(parts.path, errors="surrogateescape")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not name.startswith("/"):
        return None
    return None if "\0" in name else Path(name)


def split_lines(text: str) -> list[str]:
    """Return the lines as language servers count them, without line ends."""
    return _LINE_END.split(text)


def to_column(line: str, units: int) -> int:
    """Return the index of the character after `units` UTF-16 units, at most the line's length."""
    count = 0
    for index, char in enumerate(line):
        if count >= units:
            return index
        count += 2 if char > "\uffff" else 1
    return len(line)


def to_units(line: str, column: int) -> int:
    """Return the number of UTF-16 units before the character at `column`."""
    return column + sum(char > "\uffff" for char in line[:column])


def replace_ranges(text: str, edits: list[tuple[dict[str, Any], str]]) -> str:
    """Return the text with a server's edits applied. Raises ValueError if they overlap, KeyError or TypeError
    if a range can't be read."""
    ends = [0, *(match.end() for match in _LINE_END.finditer(text))]
    lines = split_lines(text)

    def offset(position: dict[str, Any]) -> int:
        number = int(position["line"])
        if number >= len(lines):
            return len(text)
        return ends[number] + to_column(lines[number], int(position["character"]))

    pieces: list[str] = []
    last = 0
    spans = [(offset(span["start"]), offset(span["end"]), new) for span, new in edits]
    for start, end, new in sorted(spans, key=lambda span: span[:2]):
        if start < last or end < start:
            raise ValueError("edits overlap")
        pieces += [text[last:start], new]
        last = end
    return "".join([*pieces, text[last:]])
