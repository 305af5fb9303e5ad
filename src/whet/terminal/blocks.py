"""Split streaming Markdown into blocks that will not change any more.

A block is a paragraph, a heading, a fence, a table, or one item of a list. The cost of `feed` grows with
the new text only, not with the text before it.
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
    """Splits the text of one answer into blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []
        self._fence = ""
        self._is_after_blank = False
        self._is_after_item = False

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
        blocks: list[MarkdownBlock] = []
        first, *pieces = text.split("\n")
        self._open.append(first)
        for piece in pieces:
            line = "".join(self._open)
            self._open = [piece]
            self._add_line(line, blocks)
        return blocks

    def finish(self) -> list[MarkdownBlock]:
        """Return the remaining text as finished blocks, and reset."""
        blocks: list[MarkdownBlock] = []
        if line := "".join(self._open):
            self._add_line(line, blocks)
        self._close(blocks)
        self.__init__()
        return blocks

    def _add_line(self, line: str, blocks: list[MarkdownBlock]) -> None:
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                if not _is_item(self._lines[0]):
                    self._close(blocks)
            return
        if not line.strip():
            self._is_after_blank = True
            if self._lines and not _is_item(self._lines[0]):
                self._close(blocks)
            return
        if self._lines and self._begins_block(line):
            self._close(blocks)
        elif self._lines and self._is_after_blank:
            self._lines.append("")
        self._is_after_blank = False
        self._lines.append(line)
        if _HEADING.match(line):
            self._close(blocks)
        if match := _FENCE.match(line):
            self._fence = match[1]

    def _begins_block(self, line: str) -> bool:
        """Return whether `line` begins a new block after the collected lines."""
        if _HEADING.match(line) or _is_item(line):
            return True
        if _is_item(self._lines[0]):
            return self._is_after_blank and not _INDENTED.match(line)
        return _FENCE.match(line) is not None

    def _close(self, blocks: list[MarkdownBlock]) -> None:
        if not self._lines:
            return
        is_item = _is_item(self._lines[0])
        blocks.append(MarkdownBlock("\n".join(self._lines), tight=is_item and self._is_after_item))
        self._is_after_item = is_item and not self._is_after_blank
        self._lines = []
        self._is_after_blank = False


def _is_item(line: str) -> bool:
    return _ITEM.match(line) is not None
