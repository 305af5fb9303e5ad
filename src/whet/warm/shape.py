"""The shape of a call: the call without its literals. Calls of one shape teach the same lesson.

`cat a/b.py` and `cat c.py` have one shape, `cat -n x` another. Pure functions on a tool's name and parsed
arguments.
"""

from __future__ import annotations

import re
from typing import Any

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"\d+")
_WORDS = re.compile(r"\w+")
_MAX_WORDS = 24
_JOINTS = frozenset(("|", "&&", "||", ";"))
_PLAIN = re.compile(r"[a-z_]{2,20}")


def shape_of(name: str, arguments: dict[str, Any]) -> str:
    """Return the shape of a call, as text."""
    parts = [name]
    for key in sorted(arguments):
        value = arguments[key]
        shape = _command(value) if key == "command" and isinstance(value, str) else _value(value)
        parts.append(f"{key}={shape}")
    return " ".join(parts)[:300]


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _word(value) if len(value) <= 80 else "text"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return "0"
    return type(value).__name__


def _command(text: str) -> str:
    text = _QUOTED.sub("'s'", text[:1_000])
    shaped: list[str] = []
    is_program = True
    for word in text.split()[:_MAX_WORDS]:
        if is_program or word[0] == "-" or word == "'s'":
            shaped.append(word if word.isalpha() else _NUMBER.sub("0", word))
        else:
            shaped.append(_word(word))
        is_program = word in _JOINTS or (is_program and "=" in word)
    return " ".join(shaped)


def _word(text: str) -> str:
    """Return a word's kind: a path by its ending, a number, a pattern, a word."""
    if "/" in text or "." in text:
        _, dot, ending = text[text.rfind("/") + 1 :].rpartition(".")
        return f"path.{ending}" if dot and _PLAIN.fullmatch(ending) else "path"
    if text.isdigit():
        return "0"
    return "word" if _WORDS.fullmatch(text) else _NUMBER.sub("0", _WORDS.sub("w", text))[:40]
