"""Match texts against patterns with `*` and `?`, without exponential time.

A backslash before a wildcard escapes it. A final ` *` also matches the end of the text, so that `make *`
matches `make`.
"""

from __future__ import annotations

import re
from functools import cache


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern has an unescaped wildcard."""
    return re.search(r"[*?]", re.sub(r"\\.", "", pattern, flags=re.DOTALL)) is not None


def unescape(pattern: str) -> str:
    """Return the text of a pattern, without the backslashes that escape wildcards."""
    return re.sub(r"\\([*?\\])", r"\1", pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether `pattern` matches the whole of `text`."""
    return _compile_pattern(pattern).fullmatch(text) is not None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to an expression that does not backtrack exponentially, however many stars it has.

    Each star but the last matches up to the first occurrence of the text after it, and no other is tried
    ("?>"): the next star matches anything that lies between. Only the last star backtracks, to match the end.
    """
    tail = ""
    if pattern.endswith(" *") and len(pattern) > 2:
        pattern, tail = pattern[:-2], r"(?:\s.*)?"
    pieces = [""]
    for match in re.finditer(r"\\(.)|([*]+)|(\?)|([^\\*?]+|\\$)", pattern, re.DOTALL):
        if match[2]:
            pieces.append("")
        else:
            pieces[-1] += "." if match[3] else re.escape(match[1] or match[4])
    first, *others = pieces
    last = f".*?{others.pop()}" if others else ""
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in others) + last + tail, re.DOTALL)
