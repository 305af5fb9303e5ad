"""Split SQL into code, strings and comments, as each family of servers reads it.

Servers disagree: `--1` is a comment except in MySQL, which also runs the text in `/*!50000 ... */` and lets a
backslash escape a quote; comments nest in PostgreSQL. A text therefore has several readings, and what one of
them hides another one may run. Every step consumes characters, so the time grows with the length alone.
"""

from __future__ import annotations

import re

import msgspec

from whet.late import late_pattern

_STANDARD = late_pattern(r"--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)", re.DOTALL)
_NESTED = late_pattern(
    r"--[^\n]*|/\*|(?<![A-Za-z0-9_])[eE]'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)"
    r"|(?<![A-Za-z0-9_$])\$(?:[A-Za-z_]\w*)?\$",
    re.DOTALL,
)
_MYSQL = late_pattern(
    r"(?<!-)--++(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*|/\*M?!\d*|\*/|/\*.*?(?:\*/|\Z)"
    r"|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|`[^`]*(?:`|\Z)",
    re.DOTALL,
)
_COMMENT_EDGE = late_pattern(r"/\*|\*/")
_QUOTES = frozenset("'\"`$eE")


class SqlText(msgspec.Struct, frozen=True):
    """One reading: the text without comments, and its code, in which `''` stands for each string."""

    text: str
    code: str


def read_standard(text: str) -> SqlText:
    """Read SQL as SQLite and the standard do."""
    return _read(text, _STANDARD)


def read_nested(text: str) -> SqlText:
    """Read SQL as PostgreSQL does: comments nest, and `$tag$` quotes."""
    return _read(text, _NESTED)


def read_mysql(text: str) -> SqlText:
    """Read SQL as MySQL does: the text in `/*! */` is code, and a backslash escapes a quote."""
    return _read(text, _MYSQL)


def _read(text: str, pattern: re.Pattern[str]) -> SqlText:
    texts: list[str] = []
    codes: list[str] = []
    at = 0
    while (match := pattern.search(text, at)) is not None:
        end = _find_end(text, match) if pattern is _NESTED else match.end()
        is_string = match[0][0] in _QUOTES
        before = text[at : match.start()]
        texts += (before, text[match.start() : end] if is_string else " ")
        codes += (before, "''" if is_string else " ")
        at = end
    return SqlText("".join((*texts, text[at:])), "".join((*codes, text[at:])))


def _find_end(text: str, match: re.Match[str]) -> int:
    """Return the end of a comment that may hold others, or of a string between `$tag$`."""
    if match[0].startswith("$"):
        end = text.find(match[0], match.end())
        return end + len(match[0]) if end >= 0 else len(text)
    if match[0] != "/*":
        return match.end()
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, match.start()):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
