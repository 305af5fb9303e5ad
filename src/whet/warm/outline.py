"""The outline of a result that an example may carry: its length and kind, never its words.

A result shows files, logs and pages that anyone may have written. No filter for orders in it is safe:
words that pass would open later sessions and appear to have worked, so none are kept. The lesson of an
example is its call.
"""

from __future__ import annotations

import re

import msgspec

from whet.contract.texts import NOT_JSON, plural

_OUTLINE = re.compile(
    r"\[It gave (?:nothing|(?:a JSON object of [\d,]+ keys|a JSON list of [\d,]+ items|[\d,]+ lines?)"
    r", [\d,]+ characters?)\. What it said then is left out\.\](?:\n\[left out\])*"
)
PAD = "\n[left out]"


def outline(text: str) -> str:
    """Describe the kind and length of a result; applying it twice changes nothing."""
    if _OUTLINE.fullmatch(text):
        return text
    bare = text.strip()
    if not bare:
        return "[It gave nothing. What it said then is left out.]"
    length = plural(len(bare), "character")
    return f"[It gave {_kind(bare)}, {length}. What it said then is left out.]"


def _kind(text: str) -> str:
    if text[0] in "{[":
        try:
            value: object = msgspec.json.decode(text)
        except NOT_JSON:
            value = None
        if isinstance(value, dict):
            return f"a JSON object of {len(value):,} keys"  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, list):
            return f"a JSON list of {len(value):,} items"  # pyright: ignore[reportUnknownArgumentType]
    return plural(text.count("\n") + 1, "line")


_PROSE = re.compile(r"(?:[^\W\d_]{2,}[,.;:!?]?\s+){5,}[^\W\d_]{2,}|[\u3040-\u9fff\uac00-\ud7af]{12,}")


def is_prose(text: str) -> bool:
    """Return whether a call's argument holds a sentence. Commands, paths and patterns don't; a sentence may
    have been copied from a file or page."""
    return _PROSE.search(text) is not None
