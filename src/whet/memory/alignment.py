"""Find the text that a quote points at although it was not copied letter by letter.

Typical slips are an ellipsis, quotation marks, bold, a dropped comma, an added full stop or one wrong letter.
The words and numbers must be those of the source, in their order. Callers store the source's text, never the
quote.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from whet.memory.folding import PACKED, fold, strip_marks

_ELLIPSIS = re.compile(r"\s*(?:\[?(?:…|\.{3,})\]?|\[\s*\])\s*")
# The speaker as transcripts name them: "User: ...", "[person] ...".
_LABEL = re.compile(r"\W{0,3}[^\W\d_]+(?: [^\W\d_]+)?(?:[:：]\W{0,3}|\W{0,2}\]\W{0,3})\s*")
_MIN_CHARS = 6
_MIN_PACKED = 4
_WORD = re.compile(r"[^\W_]+")
_MIN_WORDS = 4
_MIN_TYPO_CHARS = 5
_DIAERESIS = "\u0308"
_MAX_SOURCE_CHARS = 200_000
_MAX_GAP_CHARS = 2_000
_MAX_PLACES = 20
"""A text that contains the quote more often is a log and makes no statement."""


class Letters(NamedTuple):
    """The letters and digits of a text in lower case, with the offset of each in the text."""

    text: str
    offsets: list[int]


def may_hold(folded: str, quote: str) -> bool:
    """Return whether a folded text has at least half of the quote's words, so that an alignment may
    succeed."""
    words = _WORD.findall(fold(quote))
    return 2 * sum(word in folded for word in words) >= len(words) or PACKED.search(quote) is not None


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
    """Return the spans whose words are those of the quote, with at most one misspelt word in four."""
    quoted = [match[0].lower() for match in _WORD.finditer(strip_marks(quote))]
    numbers = [word for word in quoted if not word.isalpha()]
    if len(quoted) < _MIN_WORDS or not all(word in fold(text) for word in numbers):
        return []
    words = list(_WORD.finditer(text))
    windows = (words[start : start + len(quoted)] for start in range(len(words) - len(quoted) + 1))
    return [(window[0].start(), window[-1].end()) for window in windows if _is_misspelt(text, window, quoted)]


def _is_misspelt(text: str, window: Sequence[re.Match[str]], quoted: Sequence[str]) -> bool:
    """Return whether words of a text are the quoted ones, with at most one misspelt word in four."""
    typos_left = len(quoted) // _MIN_WORDS
    for match, word in zip(window, quoted, strict=True):
        if match[0].lower() == word or word in _list_spellings(match[0]):
            continue
        begins_sentence = not re.search(
            r"[^.!?\n\s][ \t]*\Z", text[max(0, match.start() - 9) : match.start()]
        )
        if not typos_left or not _is_typo(match[0].lower() if begins_sentence else match[0], word):
            return False
        typos_left -= 1
    return True


def _list_spellings(word: str) -> tuple[str, str]:
    """Return a word as it is written without its accents: `Malmö` as `malmo`, and as `malmoe`."""
    if word.isascii():
        return (word.lower(), word.lower())
    letters = unicodedata.normalize("NFD", word.casefold())
    return strip_marks(letters), strip_marks(letters.replace(_DIAERESIS, "e"))


def _is_typo(word: str, other: str) -> bool:
    """Return whether one letter of a word was added, dropped, changed or swapped in `other`. In a name two
    letters may only be swapped."""
    if not word.isalpha() or not other.isalpha():
        return False  # a value must be the same letter by letter
    if min(len(word), len(other)) < _MIN_TYPO_CHARS or abs(len(word) - len(other)) > 1:
        return False
    lower = word.lower()
    same = takewhile(lambda pair: pair[0] == pair[1], zip(lower, other, strict=False))
    same_chars = len(list(same))
    tail, other_tail = lower[same_chars:], other[same_chars:]
    if len(word) == len(other) and tail[:2] == other_tail[:2][::-1] and tail[2:] == other_tail[2:]:
        return True
    is_changed = tail[1:] == other_tail[1:]
    is_near = is_changed or tail[1:] == other_tail or tail == other_tail[1:]
    return is_near and word.islower()  # Otto and Otta may be two persons


def _has_numbers(text: str, numbers: Sequence[str], *, whole: bool) -> bool:
    """Return whether a text has the numbers of the quote in their order, and with `whole` no others."""
    text_numbers = re.findall(r"\d+", fold(text))
    if whole:
        return text_numbers == list(numbers)
    remaining = iter(text_numbers)  # each search continues where the last one ended
    return all(number in remaining for number in numbers)
