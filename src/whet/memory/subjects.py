"""Decides whether two statements are about the same subject, by the identifiers that they name.

A number, a host or a version that stands inside a statement names its subject: customer 4711 is not
customer 4712. Only the value at the end of a statement may change without another subject. In doubt the
subjects differ, so that no fact overwrites another one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

from whet.memory.folding import fold, strip_marks
from whet.store.stopwords import STOP_WORDS

_DATED = re.compile(r"\s*\((?:said |asked |checked )?(\d{4}-\d\d-\d\d)\)")
_TOKEN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
    "|[^\\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+"
)
_PUNCTUATION = ".,;:!?()[]\"'“”‘’«»„。，、！？*`…"
# A setting that this machine printed: where it was read, its key with the sections above it, its value.
_SETTING = re.compile(r"(?P<subject>(?:.+) *(?:→|:) “(?![-*])[^“”]*?[^“”=:\s])\s*(?:=|:(?=\s))\s*[^“”=/]+”")
_EQUATION = re.compile(r"“?(?P<subject>[\w.-]+)\s*=\s*[^“”=]+”?")
_AMOUNT = re.compile(r"[€$£¥]\d[\d.,]*|\d[\d.,]*[%€$£¥]|\d{1,2}[:.]\d\d(?:am|pm|h)?")
_MAX_HOUR_DIGITS = 2
_NUMBER = re.compile(r"\d[\d.,]*")
_NAME = re.compile(r"[\d/_@]|\w[.-]\w")
_BEFORE_VALUE = frozenset(
    ("is", "are", "was", "at", "until", "before", "after", "every", "within", "um", "bis", "ab", "à")
)
"""Before an amount within a sentence; never before the number of a thing."""
_BEFORE_AMOUNT = STOP_WORDS.union(("every", "least", "within"))


def is_update(old: str, new: str) -> bool:
    """Return whether a new entry certainly replaces an old one: the same setting, or the same sentence with
    another amount at its end or at that of a phrase."""
    old, new = (_DATED.sub("", text).replace("`", " ").strip() for text in (old, new))
    if fold(old) == fold(new):
        return True
    for pattern in (_SETTING, _EQUATION):
        setting, newer = pattern.fullmatch(old), pattern.fullmatch(new)
        if setting and newer:
            return fold(setting["subject"]) == fold(newer["subject"])
    before_words, after_words = _split_words(old), _split_words(new)
    if len(before_words) != len(after_words):
        return False
    pairs = enumerate(zip(before_words, after_words, strict=True))
    changed = [at for at, (before, after) in pairs if before != after]
    if len(changed) != 1:
        return False
    return all(_is_amount(words, changed[0]) for words in (before_words, after_words))


def may_be_update(old: str, new: str) -> bool:
    """Return whether two entries make the same statement with other values, so that a person should see
    both."""
    masked = [
        [re.sub(r".*\d.*", "#", word) for word in _split_words(_DATED.sub("", text))] for text in (old, new)
    ]
    return masked[0] == masked[1] and "#" in masked[0]


def names_another(old: str, new: str) -> bool:
    """Return whether two statements name different things: customer 4711 and customer 4712."""
    before, after = _list_identifiers(old), _list_identifiers(new)
    if len(before) == len(after):
        return before != after
    return bool(before and after) and set(before).isdisjoint(after)


def repeats_for_another(old: str, new: str) -> bool:
    """Return whether a statement begins like the other one and says the like of another thing, mostly in the
    same words."""
    before, after = (
        ["#" if _NAME.search(word) else word for word in _split_words(text)] for text in (old, new)
    )
    if not before or not after or before[0] != after[0] or not names_another(old, new):
        return False
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return 2 * sum(block.size for block in blocks) >= len(after)


class Places(NamedTuple):
    """How a new statement fills the places of an old one: the share of its words that are the same in the
    same order, whether it has others in the place of the rest, and whether both begin with the same word."""

    same_share: float
    is_filled: bool
    begins_alike: bool


def compare_places(old: str, new: str) -> Places:
    """Return how a new statement fills the places of an old one."""
    before, after = _split_words(strip_day(old)), _split_words(strip_day(new))
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    same = sum(end - start for kind, start, end, _, _ in steps if kind == "equal")
    is_filled = all(step[0] != "delete" for step in steps)
    return Places(same / max(1, len(before)), is_filled, before[:1] == after[:1])


def strip_day(entry: str) -> str:
    """Return an entry without its days."""
    return _DATED.sub("", entry)


def mask_amounts(entry: str) -> str:
    """Return an entry without its days and without the words that hold digits."""
    return re.sub(r"\S*\d\S*", "#", strip_day(entry))


def find_day(entry: str) -> str:
    """Return the newest day that an entry carries (ISO), or an empty string."""
    return max(_DATED.findall(entry), default="")


def _list_identifiers(text: str) -> list[str]:
    """Return the words with digits or signs that name a statement's subject, in order.

    The last one is a value if at most one word follows it and at least two words stand before it.
    """
    words = _split_words(_DATED.sub("", text))
    places = [at for at, word in enumerate(words) if _NAME.search(word)]
    if places and places[-1] >= max(2, len(words) - 2):
        places.pop()
    return [words[at] for at in places]


def _is_amount(words: Sequence[str], at: int) -> bool:
    """Return whether the word at that index is an amount that ends the sentence ("within 14 days") or a part
    of it ("at 9 on Mondays")."""
    if at < 1 or words[at - 1] not in _BEFORE_AMOUNT | _BEFORE_VALUE:
        return False
    word, rest = words[at], words[at + 1 :]
    if rest and words[at - 1] in _BEFORE_VALUE and rest[0] in STOP_WORDS:
        return bool(_AMOUNT.fullmatch(word)) or (word.isdecimal() and len(word) <= _MAX_HOUR_DIGITS)
    if _AMOUNT.fullmatch(word):
        return not rest
    return bool(_NUMBER.fullmatch(word)) and len(rest) == 1 and rest[0].isalpha()


def _split_words(text: str) -> list[str]:
    stripped = (word.strip(_PUNCTUATION) for word in _TOKEN.findall(strip_marks(fold(text))))
    return [word for word in stripped if word]
