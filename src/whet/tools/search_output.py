"""Read the output of a search program into rows by path, with the files that it could not show."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from whet.contract.texts import clean
from whet.file_names import printable

LINE_CHARS = 240
_LINE_BYTES = 4_000
_UNREAD = re.compile(r"(?:(?:rg|walk): )?(?:\./)?(.+): ([^:]+) \(os error \d+\)")
_BINARY = re.compile(rb"([^\n]*): (?:WARNING: stopped searching binary file|binary file matches)[^\n]*\n")
_PREVIEW = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]$")
_SHOWN_NAMES = 5
Rows = dict[str, list[tuple[int, str]]]


class SearchResult(msgspec.Struct):
    """The result of a search: rows (line number, text) by path. Names have no rows.

    `undecoded` have rows that are not UTF-8. `binary` files match but have no rows. `unread` could not be
    read or are too large: the names with their reasons.
    """

    rows: Rows
    count: int = 0
    note: str = ""
    undecoded: set[str] = msgspec.field(default_factory=set[str])
    binary: set[str] = msgspec.field(default_factory=set[str])
    unread: list[str] = []

    def notes(self) -> str:
        """Return what a reader must know besides the rows."""
        notes = [self.note] if self.note else []
        if self.binary:
            notes.append(f"binary files match too: {join_names(sorted(self.binary))}")
        if self.unread:
            notes.append(f"not searched: {join_names(self.unread)}")
        return "".join(f"; {note}" for note in notes)


def take_unread(errors: str, result: SearchResult) -> str:
    """Record the files that a search could not read, and return the other errors."""
    others: list[str] = []
    for line in errors.splitlines():
        match = _UNREAD.fullmatch(line)
        if match is None:
            others.append(line)
        else:
            result.unread.append(f"{match[1]} ({match[2].lower()})")
    return "\n".join(others).strip()[:500]


def take_records(buffer: bytes, result: SearchResult, has_lines: bool) -> bytes:
    """Parse complete records (path NUL, or path NUL number:line NEWLINE) and return the remaining bytes."""
    start, path = 0, b""
    rows: list[tuple[int, str]] = []
    while (middle := buffer.find(b"\0", start)) >= 0:
        if not has_lines:
            result.rows[_name(buffer[start:middle])] = []
            result.count += 1
            start = middle + 1
            continue
        end = buffer.find(b"\n", middle)
        if end < 0:
            break
        if buffer[start:middle] != path:  # mostly the lines of a file follow each other
            path = drop_binary(buffer[start:middle], result)
            rows = result.rows.setdefault(_name(path), [])
        number, _, line = buffer[middle + 1 : end].partition(b":")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            result.undecoded.add(_name(path))
            text = line[:_LINE_BYTES].decode("utf-8", "replace")
        if b"\r" in line[:-1]:  # perhaps all lines end so
            result.undecoded.add(_name(path))
        rows.append((int(number), _shorten_line(text[:_LINE_BYTES])))
        result.count += 1
        start = end + 1
    return buffer[start:]


def drop_binary(path: bytes, result: SearchResult) -> bytes:
    """Drop files that ripgrep found to be binary after printing lines of them. Returns the path after such
    notices."""
    while notice := _BINARY.match(path):
        dropped = result.rows.pop(_name(notice[1]), [])
        result.count -= len(dropped)
        result.binary.add(_name(notice[1]))
        path = path[notice.end() :]
    return path


def join_names(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"


def has_row(line: str, row: str) -> bool:
    """Return whether a row shows a line of a file, as far as the row goes."""
    return _shorten_line(line[:_LINE_BYTES])[:LINE_CHARS] == row[:LINE_CHARS]


def _name(path: bytes) -> str:
    return os.fsdecode(path).removeprefix("./")


def _shorten_line(line: str) -> str:
    text = clean(line.removesuffix("\r"))
    if len(text) <= LINE_CHARS:
        return text
    return _PREVIEW.sub("", text)[:LINE_CHARS] + "..."
