"""Escape text for Markdown, so that every character is shown and none is markup."""

from __future__ import annotations

_MAX_FENCE = 20
_MARKUP = frozenset("\\`*_~|>#[]<")


def code_block(text: str) -> str:
    """Return text in a code block whose fence is longer than any in the text."""
    fence = "```"
    if "`" * _MAX_FENCE in text:
        text = escape_fences(text)
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def code_span(text: str) -> str:
    """Return one line in a code span whose fence is longer than any run of backticks in it."""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escape_fences(text: str, sign: str = "<U+0060>") -> str:
    """Replace the third backtick of a run, so that the text can't end a code block. Discord and Slack end one
    at any three backticks."""
    return text.replace("```", f"``{sign}")


def escape_markdown(text: str) -> str:
    """Put a backslash in front of characters that are markup within a line (CommonMark 0.31, 2.4)."""
    return "".join(f"\\{c}" if c in _MARKUP else c for c in text)
