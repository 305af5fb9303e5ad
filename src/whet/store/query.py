"""What a person or a model types, as full-text expressions that are never malformed; text, as indexed.

SQLite's tokeniser folds case, splits at punctuation and takes English endings off. Diacritics of every script
are taken off here, and scripts without spaces are cut into overlapping pairs, the last character standing
alone, so that pairs, runs and single characters are all found. Neighbouring parts of an identifier or a path
(`store/search.py`) are indexed together as well: as a token of its own, such a pair is rare where its parts
are everywhere, so identifiers, paths and pieces of them are found at once, and so is that one is absent.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import filterfalse, pairwise

import msgspec

from whet.store.stopwords import STOP_WORDS

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3041-\u30ff\u3105-\u318f\u31f0-\u31ff"  # Jamo, kana, Bopomofo
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"  # Han, Hangul
    "\U00020000-\U0003ffff"
)
JOIN = "\ue000"
"""Stands between two parts of an identifier in the index. It and its next neighbours are private characters,
which the tokeniser keeps and which are taken out of what people write."""
_OWN = re.compile("[\ue000-\ue00f]")
_MARKS = re.compile("[\u0300-\u036f]+")
_PIECE = re.compile(r'"([^"]*)(?:"|$)|([^\s"]+)')
_WORD = re.compile(r"\w")
_LETTERS = re.compile(r"[^\W_]+")
_CONNECTORS = r"[._\-/\\:@#+~=?&%]{1,3}"
# A match begins where a word does: tried at each letter of a long one, the time would grow by its square.
_ASCII_JOINED = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]++(?:{_CONNECTORS}[A-Za-z0-9]++)+")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s\b")
_PREFIX_CHARS_MIN = 3
_TERMS_MAX = 16
_QUERY_CHARS_MAX = 2_000


class Term(msgspec.Struct, frozen=True):
    """One thing that is looked for: `match` is its full-text expression, `instead` a dearer one where that
    finds nothing, `text` what holds its tokens; `prefix` is the beginning of words; `is_stop` tells words
    that say nothing alone."""

    match: str
    text: str
    instead: str = ""
    prefix: str = ""
    is_phrase: bool = False
    is_stop: bool = False


@cache
def _runs() -> re.Pattern[str]:
    """Compiled at the first use, for it costs more than the rest of the module's import."""
    return re.compile(f"[{_UNSPACED}]+")


@cache
def _joined() -> tuple[re.Pattern[str], re.Pattern[str]]:
    # All but spaces and ASCII's punctuation: Python counts the vowel signs of Indian scripts to no word.
    letter = rf"[^\s!-/:-@\[-`{{-~{_UNSPACED}]"
    return re.compile(rf"(?<!{letter}){letter}++(?:{_CONNECTORS}{letter}++)+"), re.compile(f"{letter}+")


def indexable(text: str) -> str:
    """Give the form of `text` that goes into the index."""
    if not text.isascii():
        text = _OWN.sub(" ", fold(text))
    together = joins(text)
    return "\n".join((_spaced(text), *together)) if together else _spaced(text)


def joins(text: str) -> list[str]:
    """Give the neighbouring parts of the identifiers and paths in a folded text, each pair once."""
    joined, word = (_ASCII_JOINED, _ASCII_WORD) if text.isascii() else _joined()
    found = dict[str, None]()
    # Most pieces are words: looking at each with a pattern takes ten times as long.
    for piece in filterfalse(str.isalnum, text.split()):
        for run in joined.findall(piece):
            found |= dict.fromkeys(f"{one}{JOIN}{other}" for one, other in pairwise(word.findall(run)))
    return list(found)


def terms(query: str) -> list[Term]:
    """Give what the query looks for, each thing once. What holds no letter or digit is left out."""
    found = dict[Term, None]()
    for text, is_phrase in _pieces(query):
        found |= dict.fromkeys([_phrase(text)] if is_phrase else _plain(text))
    return list(found)[:_TERMS_MAX]


def pieces(query: str) -> list[str]:
    """Give the query's words and phrases as plain text."""
    return [text for text, _ in _pieces(query)]


def _pieces(query: str) -> list[tuple[str, bool]]:
    cleaned = query[:_QUERY_CHARS_MAX].encode("utf-8", "replace").decode().replace("\0", " ")
    found = [(phrase or word, bool(phrase)) for phrase, word in _PIECE.findall(_OWN.sub(" ", cleaned))]
    return [piece for piece in found if _WORD.search(piece[0].replace("_", " "))][:_TERMS_MAX]


def _phrase(text: str) -> Term:
    folded = fold(text)
    match = " AND ".join((_exact(folded), *_quoted(joins(folded))))
    return Term(f"({match})", indexable(folded), is_phrase=True)


def _plain(text: str) -> list[Term]:
    """Give a word's terms: itself, an identifier as a whole, or what punctuation separates, one by one."""
    folded = _POSSESSIVE.sub("", fold(text))
    if _runs().search(folded):
        return [Term(_exact(folded), _exact(folded))]
    joined, word = _joined()
    found: list[Term] = []

    def separate(between: str) -> None:
        found.extend(_word(each) for each in word.findall(between) if _WORD.search(each))

    place = 0
    for run in joined.finditer(folded):
        separate(folded[place : run.start()])
        pairs = _quoted(joins(run.group()))
        found.append(Term(f"({' AND '.join(pairs)})", " ".join(pairs), instead=_exact(run.group())))
        place = run.end()
    separate(folded[place:])
    last = found[-1].text if found else ""
    if folded.endswith("*") and not found[-1].instead and len(last) >= _PREFIX_CHARS_MIN:
        found[-1] = Term(_exact(last), last, prefix=last.lower())
    return found


def _word(word: str) -> Term:
    return Term(_exact(word), word, is_stop=word.lower() in STOP_WORDS)


def _quoted(tokens: Iterable[str]) -> list[str]:
    return [f'"{token}"' for token in tokens]


def _spaced(folded: str) -> str:
    return folded if folded.isascii() else _runs().sub(_pairs, folded)


def _pairs(run: re.Match[str]) -> str:
    text = run.group()
    return f" {' '.join(text[i : i + 2] for i in range(len(text)))} "


def _exact(piece: str) -> str:
    """Give a phrase: pairs as in the index, except that a run at the end may go on in the text."""
    last = None
    for run in _runs().finditer(piece):
        last = run
    if last is None or _WORD.search(piece, last.end()):
        return f'"{_spaced(piece)}"'
    head, run = _spaced(piece[: last.start()]), last.group()
    if len(run) == 1:
        return f'"{head} {run}" *'
    return f'"{head} {" ".join(run[i : i + 2] for i in range(len(run) - 1))}"'


def find(text: str, wanted: list[str]) -> tuple[int, int] | None:
    """Give where in `text` the first of these words or phrases stands, as a person would see it: words that
    say something before others, what stands whole before other forms of a word."""
    patterns = _patterns(tuple(piece for piece in wanted if piece.lower() not in STOP_WORDS) or tuple(wanted))
    folded = text if text.isascii() else fold(text)
    for pattern in patterns:
        for form in (text, folded) if len(folded) == len(text) and folded is not text else (text,):
            if match := pattern.search(form):
                return match.span()
    return None


@lru_cache(64)
def _patterns(wanted: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Give what looks for these at the beginning of a word, then anywhere, then for words that begin alike:
    what a common stem would have found."""
    lists = [words for piece in wanted for form in {piece, fold(piece)} if (words := _LETTERS.findall(form))]
    if not lists:
        return ()
    exact = "|".join(r"[\W_]*".join(map(re.escape, words)) for words in lists)
    begins = [re.escape(word[: max(4, len(word) - 3)]) for words in lists for word in words if len(word) > 3]
    forms = (rf"(?<![^\W_])(?:{exact})", exact, rf"(?<![^\W_])(?:{'|'.join(begins)})[^\W_]*")
    return tuple(re.compile(form, re.IGNORECASE) for form in (forms if begins else forms[:2]))


def fold(text: str) -> str:
    """Take off diacritics, of every script that has them as marks, and widths; SQLite does only Latin."""
    if text.isascii():
        return text
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare)
