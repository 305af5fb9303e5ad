"""What an example may carry of a result: how long it was and of what kind, never its words.

A result shows files, logs and pages that anybody may have written. Whatever filter looks for orders in it,
words that pass would open later sessions and seem to have worked; so none goes on. What an example teaches is
its call.
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
    """Say of what kind a result was; doing it twice changes nothing more."""
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
            found: object = msgspec.json.decode(text)
        except NOT_JSON:
            found = None
        if isinstance(found, dict):
            return f"a JSON object of {len(found):,} keys"  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(found, list):
            return f"a JSON list of {len(found):,} items"  # pyright: ignore[reportUnknownArgumentType]
    return plural(text.count("\n") + 1, "line")


_PROSE = re.compile(r"(?:[^\W\d_]{2,}[,.;:!?]?\s+){5,}[^\W\d_]{2,}|[\u3040-\u9fff\uac00-\ud7af]{12,}")


def is_prose(text: str) -> bool:
    """Whether a call's argument holds a sentence: commands, paths and patterns don't, and what does may have
    been copied from what was read."""
    return _PROSE.search(text) is not None
