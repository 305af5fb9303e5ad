"""Judge later words against a statement: a reply to it, its newer half, a rejection, or another statement.

It compares words and values only, and knows nothing about who said them.
"""

from __future__ import annotations

import re
from itertools import product

from whet.memory import units
from whet.memory.folding import content_words, fold, join_words, strip_marks
from whet.memory.subjects import compare_wording, find_names, is_parallel, names_another

SHORT_REPLY = 6
RELATED_REPLY = 12
BARE_REPLY = 4
_INTERJECTION = re.compile(r"\w+(?: \w+){,2}[,،，、]")
_NO = re.compile(
    r"(?:no+|nope|nein|nee|non|wrong|falsch|faux|mal|incorrect\w*|scratch|forget|never\s?mind|不|错|錯|违|違|いいえ|ちがう)(?!\w)"
)


def is_short(folded: str, words: int = SHORT_REPLY) -> bool:
    """Return whether a folded text has at most so many words, or as many characters as they may have."""
    return len(folded.split()) <= words and len(folded) <= 8 * words


def is_rejection(text: str) -> bool:
    """Return whether a sentence takes something back: it begins with a "no", a "wrong" or a "forget"."""
    return _NO.match(fold(text).strip(" .!,")) is not None


def is_aside(text: str, statement: str) -> bool:
    """Return whether a text is not written as a sentence of its own: it begins with up to three words and a
    comma, or in lower case after a statement that does not. In a script without case, it has no stop after a
    statement that has one."""
    is_casual = _INTERJECTION.match(text) is not None or (text[:1].islower() and not statement[:1].islower())
    if is_casual or not text[:1].isalpha() or text[:1].lower() != text[:1].upper():
        return is_casual
    ends = [strip_marks(each)[-1:].isalnum() for each in (statement, text)]
    return ends == [False, True]


def states_another(statement: str, text: str) -> bool:
    """Return whether a text is a whole sentence about another thing than a sentence of the statement."""
    pairs = product(units.split_sentences(statement), units.split_sentences(text))
    is_correction = is_rejection(text) or _INTERJECTION.match(text)
    return not is_correction and any(
        is_parallel(old, new) and 3 * len(content_words(new)) > 2 * len(content_words(old))
        for old, new in pairs
    )


def names_other_value(folded: str, unit: str) -> bool:
    """Return whether a message names another value than a statement."""
    if is_parallel(unit, folded):
        return False
    new_values, old_values = units.find_values(folded), units.find_values(unit)
    return new_values.isdisjoint(old_values) and not {*map(_find_kind, new_values)}.isdisjoint(
        map(_find_kind, old_values)
    )


def _means_older(claim: str, old: str, new: str) -> bool:
    """Return whether a claim names a value of the older statement, and none of the newer one, which has
    another."""
    numbers, older, newer = (re.findall(r"\d+", text) for text in (fold(claim), old, new))
    return bool(newer) and not set(numbers).isdisjoint(older) and set(numbers).isdisjoint(newer)


def _find_kind(value: str) -> str:
    """Return the letters of a value before its first digit: `v2` and `v3` are alike, `a6` and `3` not."""
    return re.sub(r"\d.*|[^\w/]|[^\x00-\x7f]", "", value)  # packed scripts join words to a number


def adds_to(old: str, new: str, claim: str) -> bool:
    """Return whether a reply says more than that a statement is wrong.

    It is a whole sentence that begins like the statement, has other words in a part of it, or has another
    value while the claim is not about the older one.
    """
    before, after = join_words(old).split(), join_words(new).split()
    is_like = len(after) > BARE_REPLY and before[:1] == after[:1]
    if is_like and is_rejection(new):  # a rule and an objection may both begin with a "no"
        is_like = not set(content_words(old)).isdisjoint(content_words(new))
    if is_like or _changes_part(old, new):
        return True
    if names_other_value(fold(new), old):
        return not _means_older(claim, old, new)
    return is_rejection(new) and not find_names(new).issubset(before)  # somebody else, or another thing


def _changes_part(old: str, new: str) -> bool:
    """Return whether a short reply repeats words of the statement and has others: "no, on Thursday" after "on
    Tuesday". A longer one ends with the word before the last one and another last word."""
    if len(new.split()) > BARE_REPLY:
        ends = [join_words(text).split()[-2:] for text in (old, new)]
        return is_short(fold(new)) and ends[0][:1] == ends[1][:1] and ends[0] != ends[1]
    folded = fold(new).strip(" .!,")
    no = _NO.match(folded)
    before, after = set(join_words(old).split()), set(join_words(folded[no.end() :] if no else "").split())
    is_shared = any(not _NO.fullmatch(word) for word in before & after)
    return is_shared and bool(content_words(" ".join(after - before)))


def says_only_no(old: str, new: str) -> bool:
    """Return whether a message begins with a "no" and puts nothing in the statement's place.

    It shares no word with the statement and has no name: "No, do not do that."
    """
    folded = fold(new).strip(" .!,")
    no = _NO.match(folded)
    other_words = set(content_words(folded[no.end() :] if no else folded))
    is_empty = other_words.isdisjoint(content_words(old)) and not find_names(new) and not units.is_packed(new)
    return no is not None and is_empty


def find_replacement(unit: str, text: str) -> str:
    """Return the line of a text that has the same shape as the statement and is below the same headings."""
    *heads, line = unit.splitlines()
    line_shape = units.mask_values(line)
    for match in re.finditer(r"[^\n]+", text):
        if units.mask_values(match[0]) != line_shape:
            continue
        if not re.search("[=:]", line) and names_another(line, match[0]):
            continue
        if not heads or units.find_line(text, *match.span()).text.splitlines()[:-1] == heads:
            return match[0]
    return ""


def contradicts(old: str, new: str, *, is_typed: bool) -> bool:
    """Return whether a later sentence contradicts an earlier one about the same subject.

    A mere "no" takes back a typed statement (`is_typed`). After a result it objects to the action, not to
    the output.
    """
    before, after = join_words(old), join_words(new)
    if before in after or after in before:
        return False
    mine, theirs = set(content_words(old)), set(content_words(new))
    shared = mine & theirs
    if is_typed and shared and _NO.match(fold(new)):
        return True
    if len(shared) < 2 or not theirs - mine or not mine - theirs or names_another(old, new):
        return False
    overlap = compare_wording(old, new)
    if is_parallel(old, new) or (overlap.ends_alike and not overlap.begins_alike):
        return False  # another thing of which the like holds
    old_values, new_values = units.find_values(old), units.find_values(new)
    if old_values and new_values:
        return old_values.isdisjoint(new_values) and len(shared) >= 0.5 * min(len(mine), len(theirs))
    return len(shared) >= 3 and len(shared) >= 0.6 * min(len(mine), len(theirs))
