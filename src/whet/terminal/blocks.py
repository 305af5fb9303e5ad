"""Cut streaming Markdown into blocks that will not change any more.

A block is a paragraph, a heading, a fence, a table, or one item of a list. The cost of `feed` grows with
the new text only, not with the text before it. This module does not know how a block is shown.
"""

from __future__ import annotations

import re

import msgspec

_ITEM = re.compile(r" ?(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_FENCE = re.compile(r" *(?:[-*+] +|\d{1,9}[.)] +)?(`{3,}|~{3,})")
_INDENTED = re.compile(r"(?: {2,}|\t)\S")


class MarkdownBlock(msgspec.Struct, frozen=True):
    """A finished piece of Markdown. If `tight`, no empty line separates it from the block before."""

    text: str
    tight: bool = False


class Blocks:
    """The block splitter of one answer."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []
        self._fence = ""
        self._blank = False
        self._after_item = False

    @property
    def tail(self) -> str:
        """The text that is in no finished block yet."""
        return "\n".join([*self._lines, "".join(self._open)]).strip("\n")

    def tail_end(self, lines: int, characters: int) -> str:
        """Return the last `lines` lines of the tail, at most `characters` characters, without building the
        whole tail."""
        open_line = "".join(self._open)[-characters:]
        return "\n".join([*self._lines[-lines:], open_line])[-characters:].strip("\n")

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Add text and return the blocks that it completed."""
        done: list[MarkdownBlock] = []
        first, *pieces = text.split("\n")
        self._open.append(first)
        for piece in pieces:
            line = "".join(self._open)
            self._open = [piece]
            self._take(line, done)
        return done

    def finish(self) -> list[MarkdownBlock]:
        """Return the remaining text as finished blocks, and reset."""
        done: list[MarkdownBlock] = []
        if line := "".join(self._open):
            self._take(line, done)
        self._close(done)
        self.__init__()
        return done

    def _take(self, line: str, done: list[MarkdownBlock]) -> None:
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                if not _is_item(self._lines[0]):
                    self._close(done)
            return
        if not line.strip():
            self._blank = True
            if self._lines and not _is_item(self._lines[0]):
                self._close(done)
            return
        self._start_or_go_on(line, done)
        if match := _FENCE.match(line):
            self._fence = match[1]

    def _start_or_go_on(self, line: str, done: list[MarkdownBlock]) -> None:
        in_item = bool(self._lines) and _is_item(self._lines[0])
        if self._lines and self._starts(line, in_item):
            self._close(done)
        elif self._lines and self._blank:
            self._lines.append("")
        self._blank = False
        self._lines.append(line)
        if _HEADING.match(line):
            self._close(done)

    def _starts(self, line: str, in_item: bool) -> bool:
        """Return whether `line` begins a new block after the collected lines."""
        if _HEADING.match(line) or _is_item(line):
            return True
        if in_item:
            return self._blank and not _INDENTED.match(line)
        return _FENCE.match(line) is not None

    def _close(self, done: list[MarkdownBlock]) -> None:
        if not self._lines:
            return
        item = _is_item(self._lines[0])
        done.append(MarkdownBlock("\n".join(self._lines), tight=item and self._after_item))
        self._after_item = item and not self._blank
        self._lines = []
        self._blank = False


def _is_item(line: str) -> bool:
    return _ITEM.match(line) is not None
