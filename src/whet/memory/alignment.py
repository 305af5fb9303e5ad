"""Find the text that a quote points at although it was not copied letter by letter.

Typical slips are an ellipsis, quotation marks, bold, a dropped comma, an added full stop or one wrong letter.
The words and numbers must be those of the source, in their order. Callers store the source's text, never the
quote.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from whet.memory.folding import PACKED, fold, spell_plainly

_ELLIPSIS = re.compile(r"\s*(?:\[?(?:…|\.{3,})\]?|\[\s*\])\s*")
# The speaker as transcripts name them: "User: ...", "[person] ...".
_LABEL = re.compile(r"\W{0,3}[^\W\d_]+(?: [^\W\d_]+)?(?:[:：]\W{0,3}|\W{0,2}\]\W{0,3})\s*")
_MIN_CHARS = 6
_MIN_PACKED = 4
_SPELT_WORD = re.compile(r"(?:[^\W_][\u0300-\u036f]*)+(?:['’][^\W_]+)*")
_ACCENTED = re.compile(r"[^\W\d_a-zA-Z][\u0300-\u036f]*")
_WORDS_PER_TYPO = 4
_MIN_TYPO_CHARS = 3
_MIN_LONG_CHARS = 5
_AT_END = re.compile(r"[^\w\n]*(?:[.!?…\n]|\Z)")
_ADDED = "eaj"
"""The letters that a spelling without accents adds: Müller as Mueller, gård as gaard, Đuro as Djuro."""
_MAX_SOURCE_CHARS = 200_000
_MAX_GAP_CHARS = 2_000
_MAX_PLACES = 20
"""A text that contains the quote more often is a log and makes no statement."""


class Letters(NamedTuple):
    """The letters and digits of a text in lower case, with the offset of each in the text."""

    text: str
    offsets: list[int]


def may_hold(folded: str, quote: str) -> bool:
    """Return whether a folded text has at least half of the quote's words, so that aligning it is worth the
    time."""
    words = [spell_plainly(match[0]) for match in _SPELT_WORD.finditer(quote)]
    text = spell_plainly(folded)
    return 2 * sum(word in text for word in words) >= len(words) or PACKED.search(quote) is not None


def find_aligned(text: str, quote: str) -> list[tuple[int, int]]:
    """Return the spans of a text that a quote with slips points at. A quote with ellipses has several pieces;
    a span reaches from the first to the last."""
    if len(text) > _MAX_SOURCE_CHARS:
        return []
    pieces = [piece for piece in map(read_letters, _ELLIPSIS.split(quote)) if piece.text]
    if not pieces or not all(map(_is_long_enough, pieces)):
        return []
    spans: list[tuple[int, int]] = []
    # Most texts don't contain the quote, and this check is cheaper than computing offsets.
    if pieces[0].text in re.sub(r"[\W_]+", "", fold(text)):
        spans = _find_pieces(text, read_letters(text), [piece.text for piece in pieces])
    if not spans and len(pieces) == 1:
        spans = _find_misspelt(text, quote)
    if len(spans) > _MAX_PLACES:
        return []
    if not spans and (label := _LABEL.match(quote)):
        return find_aligned(text, quote[label.end() :])
    numbers = re.findall(r"\d+", fold(quote))
    return [span for span in spans if _has_numbers(text[slice(*span)], numbers, whole=len(pieces) == 1)]


def read_letters(text: str) -> Letters:
    """Return the letters and digits of a text, without marks, case and punctuation."""
    chars: list[str] = []
    offsets: list[int] = []
    for at, char in enumerate(text):
        for folded in unicodedata.normalize("NFKC", char).lower():
            if folded.isalnum():
                chars.append(folded)
                offsets.append(at)
    return Letters("".join(chars), offsets)


def _is_long_enough(piece: Letters) -> bool:
    return len(piece.text) >= (_MIN_PACKED if PACKED.search(piece.text) else _MIN_CHARS)


def _find_pieces(text: str, letters: Letters, pieces: Sequence[str]) -> list[tuple[int, int]]:
    """Return the spans that contain all pieces in their order within one sentence, each as whole words."""
    spans: list[tuple[int, int]] = []
    start = letters.text.find(pieces[0])
    while start >= 0 and len(spans) <= _MAX_PLACES:
        end = start + len(pieces[0])
        is_match = _has_word_edges(text, letters, start, end)
        for piece in pieces[1:]:
            begin = letters.text.find(piece, end, end + _MAX_GAP_CHARS)
            end = begin + len(piece)
            is_match = is_match and begin >= 0 and _has_word_edges(text, letters, begin, end)
        if is_match:
            span = letters.offsets[start], letters.offsets[end - 1] + 1
            if len(pieces) == 1 or not re.search(r"\n|[.!?。！？]\s", text[slice(*span)]):
                spans.append(span)
        start = letters.text.find(pieces[0], start + 1)
    return spans


def _has_word_edges(text: str, letters: Letters, begin: int, end: int) -> bool:
    """Return whether letters begin and end at the edges of words. Scripts without spaces have none."""
    first, last = letters.offsets[begin], letters.offsets[end - 1]
    return _is_edge(text, first - 1, first) and _is_edge(text, last, last + 1)


def _is_edge(text: str, left: int, right: int) -> bool:
    if left < 0 or right >= len(text):
        return True
    pair = text[left], text[right]
    if any(map(PACKED.match, pair)):
        return not all(map(str.isdigit, pair))
    return not (pair[0].isalnum() and pair[1].isalnum())


def _find_misspelt(text: str, quote: str) -> list[tuple[int, int]]:
    """Return the spans whose words are the quote's, apart from accents and typos.

    One word in four may have a typo, a short word only if the span is a whole sentence.
    """
    mine = [spell_plainly(match[0]) for match in _SPELT_WORD.finditer(quote)]
    spans: list[tuple[int, int]] = []
    words = list(_SPELT_WORD.finditer(text))
    spellings = [_list_spellings(match[0]) for match in words]
    allowed = len(mine) // _WORDS_PER_TYPO
    for at in range(len(words) - len(mine) + 1):
        window = words[at : at + len(mine)]
        pairs = zip(window, spellings[at : at + len(mine)], mine, strict=False)
        others = ((match, forms[0], word) for match, forms, word in pairs if word not in forms)
        wrong = list(islice(others, allowed + 1))
        if len(wrong) <= allowed and all(
            _is_typo(plain, word, match[0], is_first=_is_first(text, match.start()))
            for match, plain, word in wrong
        ):
            start, end = window[0].start(), window[-1].end()
            is_whole = _is_first(text, start) and _AT_END.match(text, end)
            if is_whole or all(len(plain) >= _MIN_LONG_CHARS <= len(word) for _, plain, word in wrong):
                spans.append((start, end))
    return spans


def _is_first(text: str, at: int) -> bool:
    """Return whether a word at that offset begins a sentence."""
    return not re.search(r"[^.!?\n\s][ \t]*\Z", text[max(0, at - 9) : at])


@lru_cache(maxsize=4_096)
def _list_spellings(word: str) -> list[str]:
    """Return the spellings of a word without accents, such as `malmo` and `malmoe` for `Malmö`."""
    if word.isascii():
        return [spell_plainly(word)]
    return [spell_plainly(_ACCENTED.sub(rf"\g<0>{letter}", word)) for letter in ("", *_ADDED)]


def _is_typo(word: str, other: str, written: str, *, is_first: bool) -> bool:
    """Return whether two words differ by a typo: a letter added, dropped or changed, or two swapped.

    In a name only swapped letters count. A word with a capital letter is a name unless it begins a sentence.
    """
    if not word.isalpha() or not other.isalpha():
        return False  # a value must be exact
    is_plain = written.islower()
    shortest = min(len(word), len(other))
    if shortest < (_MIN_TYPO_CHARS if is_plain else _MIN_LONG_CHARS) or abs(len(word) - len(other)) > 1:
        return False
    head = next((n for n, pair in enumerate(zip(word, other, strict=False)) if pair[0] != pair[1]), shortest)
    rests = word[head:], other[head:]
    if len(word) == len(other) and rests[0][:2] == rests[1][:2][::-1] and rests[0][2:] == rests[1][2:]:
        return True
    changed = rests[0][1:] == rests[1][1:]
    is_near = changed or rests[0][1:] == rests[1] or rests[0] == rests[1][1:]
    return is_near and (is_plain or is_first)  # Otto and Otta may be two persons


def _has_numbers(text: str, numbers: Sequence[str], *, whole: bool) -> bool:
    """Return whether a text has the numbers of the quote in their order, and with `whole` no others."""
    text_numbers = re.findall(r"\d+", fold(text))
    if whole:
        return text_numbers == list(numbers)
    remaining = iter(text_numbers)  # each search continues where the last one ended
    return all(number in remaining for number in numbers)
