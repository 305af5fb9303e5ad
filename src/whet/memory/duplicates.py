"""Whether a claim says what is remembered already, in these words or nearly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from whet.memory.folding import content_words, fold
from whet.memory.literals import literals

_SAME = 0.8


def duplicate_of(text: str, existing: Iterable[str]) -> str:
    """Give the text that says the same, empty where none does."""
    mine = _bare(text)
    words, named = set(content_words(mine)), set(literals(mine))
    if not words and not named:
        return ""
    for other in existing:
        theirs = _bare(other)
        if fold(mine) == fold(theirs):
            return other
        if named != set(literals(theirs)):
            continue
        other_words = set(content_words(theirs))
        union = words | other_words
        if (
            union
            and len(words & other_words) / len(union) >= _SAME
            and _negations(mine) == _negations(theirs)
        ):
            return other
    return ""


def _bare(text: str) -> str:
    return re.sub(r"^\s*pitfall\s*:\s*", "", text, flags=re.IGNORECASE).strip().rstrip(".")


def _negations(text: str) -> bool:
    return (
        re.search(r"\b(?:not|never|no|don'?t|doesn'?t|isn'?t|without|avoid)\b", text, re.IGNORECASE)
        is not None
    )
