"""Decide whether two statements are about the same subject, by the identifiers that they name.

A number, a host or a version that stands inside a statement names its subject: customer 4711 is not
customer 4712. Only the value at the end of a statement may change without another subject. In doubt the
subjects differ, so that no fact overwrites another one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import normalize

from whet.memory.folding import fold, strip_marks
from whet.store.stopwords import STOP_WORDS

_DATED = re.compile(r"\s*\((?:said |asked |checked )?(\d{4}-\d\d-\d\d)\)")
_TOKEN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
    "|[^\\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+"
)
_PART_OF_WORD = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3400-\u9fff]")
_SIGN = re.compile("[\u3400-\u9fff]")
_MAX_SMALL_WORD = 3
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


class Stretch(NamedTuple):
    """The words of an old statement that a new one lacks, and those that take their place."""

    lost: list[str]
    added: list[str]


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


def names_another(old: str, new: str) -> bool:
    """Return whether two statements name different things: customer 4711 and customer 4712."""
    before, after = _list_identifiers(old), _list_identifiers(new)
    if len(before) == len(after):
        return before != after and before[: max(1, len(before) - 1)] != after[: max(1, len(after) - 1)]
    return bool(before and after) and set(before).isdisjoint(after)


def is_parallel(old: str, new: str) -> bool:
    """Return whether a statement says something similar about another thing, so that both hold.

    It repeats the words of the other one with the number of another thing, with other words in two places,
    or with an added name and other words in one place. Other words in one place alone may be a new value, and
    so may words in two if the new statement also names the last old value: "on Thursday, not on Tuesday".
    """
    before, after = _split_words(strip_day(old)), _split_words(strip_day(new))
    masked = [["#" if _NAME.search(word) else word for word in words] for words in (before, after)]
    if before and after and masked[0][0] == masked[1][0] and names_another(old, new):
        return 2 * sum(block.size for block in _align(*masked).get_matching_blocks()) >= len(after)
    stretches = _find_stretches(before, after)
    changed = [stretch for stretch in stretches if _is_changed(stretch)]
    if not changed or not _is_built_alike(before, after, stretches):
        return False
    names = find_names(new).difference(before)
    first = stretches[: stretches.index(changed[0])]
    adds_name = any(not stretch.lost and not names.isdisjoint(stretch.added) for stretch in first)
    is_first_kept, is_last_kept = (set(after).issuperset(changed[at].lost or [""]) for at in (0, -1))
    return len(changed) + adds_name > 1 and (is_first_kept or not is_last_kept)


def find_names(text: str) -> set[str]:
    """Return the words of a text, but for its first, that hold a digit or begin with a capital letter."""
    words = re.findall(r"\w+", text)[1:]
    named = (word for word in words if word[0].isupper() or re.search(r"\d", word))
    return {word.lower() for word in named if word != "I"}


class Overlap(NamedTuple):
    """How the wording of a new statement matches that of an old one.

    `same_share` is the share of the old words that the new one has in the same order. `is_filled`: it has
    other words in the place of all others. `moves_inside`: it begins alike, has another word in place of one
    before the end, and adds a word: "Oslo goes by air", "Bergen no longer goes by air".
    """

    same_share: float
    is_filled: bool
    begins_alike: bool
    ends_alike: bool
    moves_inside: bool


def compare_wording(old: str, new: str) -> Overlap:
    """Return how the wording of a new statement matches that of an old one."""
    before, after = _split_words(strip_day(old)), _split_words(strip_day(new))
    steps = _align(before, after).get_opcodes()
    same = sum(end - start for kind, start, end, _, _ in steps if kind == "equal")
    is_filled = all(step[0] != "delete" for step in steps)
    begins_alike, ends_alike = (bool(steps) and steps[at][0] == "equal" for at in (0, -1))
    adds = any(last - first > end - start for _, start, end, first, last in steps)
    inside = [
        before[start:end] for kind, start, end, _, _ in steps if kind == "replace" and end < len(before)
    ]
    moves_inside = begins_alike and adds and any(_are_plain_words(words) for words in inside)
    return Overlap(same / max(1, len(before)), is_filled, begins_alike, ends_alike, moves_inside)


def strip_day(entry: str) -> str:
    """Return an entry without its days."""
    return _DATED.sub("", entry)


def mask_amounts(entry: str) -> str:
    """Return an entry without its days and without the words that hold digits."""
    return re.sub(r"\S*\d\S*", "#", strip_day(entry))


def find_day(entry: str) -> str:
    """Return the newest day that an entry carries (ISO), or an empty string."""
    return max(_DATED.findall(entry), default="")


def _align(before: Sequence[str], after: Sequence[str]) -> difflib.SequenceMatcher[str]:
    return difflib.SequenceMatcher(None, before, after, autojunk=False)


def _find_stretches(before: Sequence[str], after: Sequence[str]) -> list[Stretch]:
    """Return the stretches in which two statements differ, in order.

    In a script without blanks each character is a word, so a single equal one does not divide a stretch. If
    the statement's first words changed, a change right after the first one is a stretch of its own.
    """
    stretches: list[Stretch] = []
    is_open = False
    for kind, start, end, first, last in _align(before, after).get_opcodes():
        if kind == "equal":
            is_open = is_open and end - start == 1 and _PART_OF_WORD.match(before[start]) is not None
            continue
        if not is_open:
            stretches.append(Stretch([], []))
        stretches[-1].lost.extend(before[start:end])
        stretches[-1].added.extend(after[first:last])
        is_open = True
    if stretches and before[:1] != after[:1] and len(stretches[0].lost) == len(stretches[0].added):
        lost, added = stretches[0]
        is_number = [all(map(_has_number, pair)) for pair in zip(lost, added, strict=True)]
        at = is_number.index(True) if True in is_number else int(not _PART_OF_WORD.match("".join(lost)))
        if 0 < at < len(lost):
            stretches[:1] = [Stretch(lost[:at], added[:at]), Stretch(lost[at:], added[at:])]
    return stretches


def _are_plain_words(words: Sequence[str]) -> bool:
    """Return whether none of the words is an amount or a character of a script without blanks."""
    return all(len(word) > 1 and not _has_number(word) for word in words)


def _has_number(word: str) -> bool:
    return any(map(str.isnumeric, word))


def _is_changed(stretch: Stretch) -> bool:
    """Return whether words that carry content replace others, or a CJK character was added or left out, which
    changes its word."""
    if not all(stretch):
        return bool(_SIGN.fullmatch("".join((*stretch.lost, *stretch.added))))
    return all(any(word not in STOP_WORDS for word in words) for words in stretch)


def _is_built_alike(before: Sequence[str], after: Sequence[str], stretches: Sequence[Stretch]) -> bool:
    """Return whether both statements have the same form: half of the words are the same, or one long word is
    and each stretch has as many words as before.

    A statement without the other's beginning is only a part of it.
    """
    blocks = _align(before, after).get_matching_blocks()
    same = [word for block in blocks for word in before[block.a : block.a + block.size]]
    if before[:1] != after[:1] and not stretches[0].added:
        return False
    if len(same) > 1 and 2 * len(same) >= min(len(before), len(after)):
        return True
    is_even = all(len(lost) == len(added) for lost, added in stretches)
    # A sign of Korean holds two or three letters.
    return is_even and any(len(normalize("NFD", word)) > _MAX_SMALL_WORD for word in same)


def _list_identifiers(text: str) -> list[str]:
    """Return the words with digits or signs that name a statement's subject, in order.

    The last one is a value if at most one word follows it and at least two words stand before it.
    """
    words = _split_words(_DATED.sub("", text))
    positions = [at for at, word in enumerate(words) if _NAME.search(word)]
    if positions and positions[-1] >= max(2, len(words) - 2):
        positions.pop()
    return [words[at] for at in positions]


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
