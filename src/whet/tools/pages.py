"""Read a page of a text file as a stream, and number its lines.

Memory use is one chunk and the page, for any size of file or line. Only newlines end lines; other
characters at which some programs break lines are data.
"""

from __future__ import annotations

import codecs
import threading
from typing import BinaryIO

import msgspec

from whet.contract.errors import ToolError
from whet.tools.encoding import Encoding

PAGE_CHARS = 28_000
LINE_CHARS = 2_000
_CHUNK_BYTES = 1 << 20
_COUNT_ON_BYTES = 256 << 20


class LinePage(msgspec.Struct):
    """Lines from `first` on. `total` counts the file's lines; it is a lower bound if `is_counted` is
    false. `cut_line` is the number of the first line that is cut, or 0."""

    first: int
    lines: list[str]
    total: int = 0
    is_counted: bool = True
    has_crlf: bool = False
    ends_open: bool = False
    cut_line: int = 0

    @property
    def next_line(self) -> int:
        """The line after the page."""
        return self.first + len(self.lines)


class _Reader:
    """Reads decoded text piece by piece: skips to the page, fills it, then only counts."""

    def __init__(self, offset: int, limit: int) -> None:
        self.page = LinePage(offset, [])
        self.is_full = False
        self._limit = limit
        self._room = PAGE_CHARS
        self._line = 1
        self._head = ""
        self._length = 0

    def feed(self, text: str) -> None:
        start = self._skip(text)
        while start >= 0 and not self.is_full:
            end = text.find("\n", start)
            stop = len(text) if end < 0 else end
            self._head += text[start : min(stop, start + LINE_CHARS + 1 - len(self._head))]
            self._length += stop - start
            if end < 0:
                return
            self._finish_line()
            start = end + 1
        if start >= 0:
            self._line += text.count("\n", start)

    def close(self, last: str) -> None:
        """Finish at the end of the file. `last` is its last character."""
        if self._length and not self.is_full:
            self._finish_line()
            self._line -= 1
        self.page.ends_open = bool(last) and last != "\n"
        self.page.total = self._line - (0 if self.page.ends_open else 1)

    def count(self) -> int:
        return self._line - 1

    def _skip(self, text: str) -> int:
        """Return the position in `text` at which the page continues, or -1 if it is not reached."""
        missing = self.page.first - self._line
        if missing <= 0:
            return 0
        have = text.count("\n")
        if have < missing:
            self._line += have
            return -1
        position = -1
        for _ in range(missing):
            position = text.index("\n", position + 1)
        self._line += missing
        return position + 1

    def _finish_line(self) -> None:
        line = self._head
        if self._length == len(line) and line.endswith("\r"):
            line = line[:-1]
            self.page.has_crlf = True
        elif self._length > LINE_CHARS:
            line = f"{line[:LINE_CHARS]} [... {self._length - LINE_CHARS:,} characters more]"
            self.page.cut_line = self.page.cut_line or self._line
        self.page.lines.append(line)
        self._line += 1
        self._room -= len(line) + 8
        self._head, self._length = "", 0
        self.is_full = len(self.page.lines) >= self._limit or self._room <= 0


def read_page(
    stream: BinaryIO, encoding: Encoding, offset: int, limit: int, stop: threading.Event
) -> LinePage:
    """Read lines `offset` to at most `offset + limit - 1` from a stream at its start.

    `limit` is at least 1. A page ends early at about 28,000 characters. Raises ToolError soon after `stop`
    is set.
    """
    decoder = codecs.getincrementaldecoder(encoding.name)(encoding.errors)
    reader = _Reader(offset, limit)
    stream.seek(len(encoding.mark))
    counted_on, last = 0, ""
    while chunk := stream.read(_CHUNK_BYTES):
        if stop.is_set():
            raise ToolError("stopped")
        text = decoder.decode(chunk)
        if encoding.ends_with_cr:
            text = text.replace("\r", "\n")
        reader.feed(text)
        last = text[-1:] or last
        counted_on += len(chunk) if reader.is_full else 0
        if counted_on > _COUNT_ON_BYTES:
            reader.page.total, reader.page.is_counted = reader.count(), False
            return reader.page
    last_text = decoder.decode(b"", True)
    reader.feed(last_text)
    reader.close(last_text[-1:] or last)
    return reader.page


def format_numbered(page: LinePage) -> str:
    """Format the page's lines as `12|text`, with aligned numbers."""
    width = len(str(page.next_line - 1))
    return "\n".join(f"{number:>{width}}|{line}" for number, line in enumerate(page.lines, page.first))
