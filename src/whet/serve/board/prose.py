"""Split an answer's Markdown into blocks and runs of text, which a template escapes and marks up.

No text becomes markup: this module returns plain values, and the template chooses their elements. Only web
addresses in ASCII become links; images and HTML stay text. The time is proportional to the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

import msgspec

BlockKind = Literal["text", "heading", "item", "code", "quote", "table", "rule"]
RunKind = Literal["", "code", "strong", "link"]
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,20})[^`]*")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*")
_ITEM = re.compile(r"( *)([-*+]|\d{1,4}[.)])\s+(.*)")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *")
_TABLE_RULE = re.compile(r" *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *")
_RUN = re.compile(
    r"(?P<tick>`+)(?P<code>[^`\n]+)(?P=tick)|\*\*(?P<strong>[^*\n]+)\*\*"
    r"|\[(?P<label>[^\[\]\n]{1,300})\]\((?P<target>https?://[!-'*-~]{1,2000})\)"
    r"|(?<![\w/])(?P<bare>https?://[!-~]{1,2000})"
)
_AFTER_URL = ".,;:!?'\")]}>*_"
_MAX_CHARS = 60_000


class TextRun(msgspec.Struct, frozen=True, gc=False):
    """A piece of a line and its style. `url` is the address of a link."""

    text: str
    kind: RunKind = ""
    url: str = ""

    @property
    def host(self) -> str:
        """The host of a link if its text is not its address, else an empty string."""
        return "" if self.text == self.url else urlsplit(self.url).hostname or ""


class ProseBlock(msgspec.Struct, frozen=True):
    """A block of an answer. A text, heading, item or quote has `runs`, code has `text`, a table has `rows`.

    `mark` is the language of code, or the bullet or number of an item. `level` is the depth of an item or
    heading.
    """

    kind: BlockKind
    runs: tuple[TextRun, ...] = ()
    text: str = ""
    mark: str = ""
    level: int = 0
    rows: tuple[tuple[tuple[TextRun, ...], ...], ...] = ()


def split_blocks(text: str) -> list[ProseBlock]:
    """Split an answer into blocks. A very long answer becomes one block of text."""
    if len(text) > _MAX_CHARS:
        return [ProseBlock("text", (TextRun(text),))]
    return _BlockReader(text.split("\n")).read()


def split_runs(text: str) -> tuple[TextRun, ...]:
    """Split a text into runs: code in backticks, strong text in double asterisks, links, plain text."""
    if "`" not in text and "**" not in text and "://" not in text:
        return (TextRun(text),) if text else ()
    pieces: list[TextRun] = []
    at = 0
    for match in _RUN.finditer(text):
        run, end = _read_run(match)
        if run is None:
            continue
        if match.start() > at:
            pieces.append(TextRun(text[at : match.start()]))
        pieces.append(run)
        at = end
    if at < len(text):
        pieces.append(TextRun(text[at:]))
    return tuple(pieces)


def _read_run(match: re.Match[str]) -> tuple[TextRun | None, int]:
    """Return the run of a match and its end. The run is None if the match is an unusable address."""
    if match["code"]:
        return TextRun(match["code"].strip(), "code"), match.end()
    if match["strong"]:
        return TextRun(match["strong"], "strong"), match.end()
    url = match["target"] or _trim_url(match["bare"])
    if not _is_link(url):
        return None, match.end()
    end = match.end() if match["target"] else match.start() + len(url)
    return TextRun(match["label"] or url, "link", url), end


def _trim_url(url: str) -> str:
    """Return an address without the punctuation of the sentence around it."""
    while url[-1] in _AFTER_URL and not (url[-1] == ")" and url.count("(") >= url.count(")")):
        url = url[:-1]
    return url


def _is_link(url: str) -> bool:
    """Return whether an address may be a link: it has a host, and no user name or password."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and "\\" not in url
    except ValueError:
        return False


class _BlockReader:
    """Reads lines into blocks. The method for a kind of block reads one at the current line and returns True,
    or returns False if there is none."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._blocks: list[ProseBlock] = []
        self._plain: list[str] = []

    def read(self) -> list[ProseBlock]:
        readers: tuple[Callable[[str], bool], ...] = (self._code, self._heading, self._rule)
        readers += (self._item, self._quote, self._table)
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._flush()
                self._at += 1
            elif not any(take(line) for take in readers):
                self._plain.append(line)
                self._at += 1
        self._flush()
        return self._blocks

    def _flush(self) -> None:
        if self._plain:
            self._blocks.append(ProseBlock("text", split_runs("\n".join(self._plain))))
            self._plain = []

    def _add(self, block: ProseBlock, lines: int) -> bool:
        self._flush()
        self._blocks.append(block)
        self._at += lines
        return True

    def _code(self, line: str) -> bool:
        match = _FENCE.fullmatch(line)
        if match is None:
            return False
        end = self._at + 1
        while end < len(self._lines) and not _closes(self._lines[end], match[1]):
            end += 1
        text = "\n".join(self._lines[self._at + 1 : end])
        return self._add(ProseBlock("code", text=text, mark=match[2]), end + 1 - self._at)

    def _heading(self, line: str) -> bool:
        match = _HEADING.fullmatch(line)
        return match is not None and self._add(
            ProseBlock("heading", split_runs(match[2]), level=len(match[1])), 1
        )

    def _rule(self, line: str) -> bool:
        return _RULE.fullmatch(line) is not None and self._add(ProseBlock("rule"), 1)

    def _item(self, line: str) -> bool:
        match = _ITEM.fullmatch(line)
        if match is None:
            return False
        text, count = [match[3]], 1
        indent = " " * (len(match[1]) + 2)
        while (following := self._line(self._at + count)).startswith(indent):
            if _ITEM.fullmatch(following):
                break
            text.append(following.strip())
            count += 1
        mark = match[2] if match[2][0].isdigit() else "•"
        level = min(len(match[1]) // 2, 4)
        return self._add(ProseBlock("item", split_runs("\n".join(text)), mark=mark, level=level), count)

    def _quote(self, line: str) -> bool:
        count = 0
        while self._line(self._at + count).startswith(">"):
            count += 1
        if not count:
            return False
        lines = [row[1:].removeprefix(" ") for row in self._lines[self._at : self._at + count]]
        return self._add(ProseBlock("quote", split_runs("\n".join(lines))), count)

    def _table(self, line: str) -> bool:
        rule = self._line(self._at + 1)
        if "|" not in line or "|" not in rule or not _TABLE_RULE.fullmatch(rule):
            return False
        count = 2
        while "|" in self._line(self._at + count):
            count += 1
        lines = [line, *self._lines[self._at + 2 : self._at + count]]
        return self._add(ProseBlock("table", rows=tuple(_cells(row) for row in lines)), count)

    def _line(self, number: int) -> str:
        return self._lines[number] if number < len(self._lines) else ""


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return bare.startswith(fence) and not bare.strip(fence[0])


def _cells(line: str) -> tuple[tuple[TextRun, ...], ...]:
    bare = line.strip().removeprefix("|").removesuffix("|")
    return tuple(split_runs(cell.strip()) for cell in bare.split("|")[:12])
