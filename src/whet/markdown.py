"""Put text into Markdown so that a reader sees its characters and none of them is markup."""

from __future__ import annotations

_MAX_FENCE = 20
_MARKUP = frozenset("\\`*_~|>#[]<")


def code_block(text: str) -> str:
    """Put text into a code block with a fence that is longer than any in the text."""
    fence = "```"
    if "`" * _MAX_FENCE in text:
        text = escape_fences(text)
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def code_span(text: str) -> str:
    """Put one line into a code span whose fence is longer than any run of backticks in it."""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escape_fences(text: str, sign: str = "<U+0060>") -> str:
    """Write the third backtick of a run as its code point, so that text can't end a code block of exactly
    three backticks, as Discord and Slack know it."""
    return text.replace("```", f"``{sign}")


def escape_markdown(text: str) -> str:
    """Put a backslash in front of what is markup within a line (CommonMark 0.31, 2.4)."""
    return "".join(f"\\{c}" if c in _MARKUP else c for c in text)
