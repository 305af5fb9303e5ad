"""Match texts against patterns with `*` and `?`, in time that grows with pattern and text.

A backslash before a wildcard escapes it. A final ` *` also matches no arguments at all.
"""

from __future__ import annotations

import re
from functools import cache


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern has a wildcard that is not escaped."""
    return re.search(r"[*?]", re.sub(r"\\.", "", pattern, flags=re.DOTALL)) is not None


def unescape(pattern: str) -> str:
    """Return the text of a pattern, without the backslashes that escape wildcards."""
    return re.sub(r"\\([*?\\])", r"\1", pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether `pattern` matches the whole of `text`."""
    return _compile_pattern(pattern).fullmatch(text) is not None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern so that its time grows with pattern and text, however many stars it has.

    What a star has passed over to reach the text behind it is final ("?>"): the next star can take up any
    more. Only the last star tries all places, for the pattern's end.
    """
    tail = ""
    if pattern.endswith(" *") and len(pattern) > 2:
        pattern, tail = pattern[:-2], r"(?:\s.*)?"
    parts = [""]
    for match in re.finditer(r"\\(.)|([*]+)|(\?)|([^\\*?]+|\\$)", pattern, re.DOTALL):
        if match[2]:
            parts.append("")
        else:
            parts[-1] += "." if match[3] else re.escape(match[1] or match[4])
    first, *others = parts
    last = f".*?{others.pop()}" if others else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in others) + last + tail, re.DOTALL)
