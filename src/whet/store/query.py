"""Turn queries into full-text expressions that are always valid, and texts into their indexed form.

SQLite's tokeniser folds case, splits at punctuation and removes English endings. This module removes the
diacritics of every script. It cuts text in scripts without spaces into overlapping pairs and the last
character alone, so that a search for a pair, a run or a single character works. Neighbouring parts of an
identifier or a path (`store/search.py`) are also indexed as one token. Such a pair is rare even if its parts
are common, so a search for an identifier, a path or a part of one is fast.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import filterfalse, pairwise

import msgspec

from whet.late import late_pattern
from whet.store.stopwords import STOP_WORDS

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3041-\u30ff\u3105-\u318f\u31f0-\u31ff"  # Jamo, kana, Bopomofo
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"  # Han, Hangul
    "\U00020000-\U0003ffff"
)
JOIN = "\ue000"
"""The character between two parts of an identifier in the index. It and its next neighbours are private
characters, which the tokeniser keeps and which are removed from queries and texts."""
_PRIVATE_CHARS = late_pattern("[\ue000-\ue00f]")
_MARKS = late_pattern("[\u0300-\u036f]+")
_PIECE = late_pattern(r'"([^"]*)(?:"|$)|([^\s"]+)')
_WORD = late_pattern(r"\w")
_LETTERS = late_pattern(r"[^\W_]+")
_CONNECTORS = r"[._\-/\\:@#+~=?&%]{1,3}"
# A match begins at the start of a word: matching from each letter of a long word would take quadratic time.
_ASCII_JOINED = late_pattern(rf"(?<![A-Za-z0-9])[A-Za-z0-9]++(?:{_CONNECTORS}[A-Za-z0-9]++)+")
_ASCII_WORD = late_pattern(r"[A-Za-z0-9]+")
_POSSESSIVE = late_pattern(r"(?<=\w)['\u2019]s\b")
_MIN_PREFIX_CHARS = 3
_MAX_TERMS = 16
_MAX_QUERY_CHARS = 2_000


class Term(msgspec.Struct, frozen=True):
    """One search term.

    `match` is its full-text expression. Identifiers have a `fallback`, a slower expression for when `match`
    finds nothing. The tokeniser turns `text` into the term's tokens; for an identifier it contains quoted
    pairs, each of which is an expression too. `prefix` is the beginning of the words to search for, or empty.
    `is_stop` marks words that are too common to search for alone.
    """

    match: str
    text: str
    fallback: str = ""
    prefix: str = ""
    is_phrase: bool = False
    is_stop: bool = False


@cache
def _unspaced_runs() -> re.Pattern[str]:
    """Return the pattern of a run of unspaced characters.

    It is compiled on first use, because that takes longer than the rest of the module's import.
    """
    return re.compile(f"[{_UNSPACED}]+")


@cache
def _identifier_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    # Letters are all characters except spaces, ASCII punctuation and unspaced scripts: Python's `\w` lacks
    # the vowel signs of Indian scripts.
    letter = rf"[^\s!-/:-@\[-`{{-~{_UNSPACED}]"
    return re.compile(rf"(?<!{letter}){letter}++(?:{_CONNECTORS}{letter}++)+"), re.compile(f"{letter}+")


def to_index_text(text: str) -> str:
    """Return the form of `text` that goes into the index."""
    if not text.isascii():
        text = _PRIVATE_CHARS.sub(" ", fold(text))
    pairs = list_identifier_pairs(text)
    return "\n".join((_split_runs(text), *pairs)) if pairs else _split_runs(text)


def list_identifier_pairs(text: str) -> list[str]:
    """Return the pairs of neighbouring parts of identifiers and paths in a folded text, each once."""
    joined, word = (_ASCII_JOINED, _ASCII_WORD) if text.isascii() else _identifier_patterns()
    pairs = dict[str, None]()
    # Most pieces are plain words, which are skipped: matching each would take ten times as long.
    for piece in filterfalse(str.isalnum, text.split()):
        for run in joined.findall(piece):
            pairs |= dict.fromkeys(
                f"{first_part}{JOIN}{other}" for first_part, other in pairwise(word.findall(run))
            )
    return list(pairs)


def parse_terms(query: str) -> list[Term]:
    """Return the search terms of a query, each once. Pieces without a letter or digit are left out."""
    parsed = dict[Term, None]()
    for text, is_phrase in _split_marked_pieces(query):
        parsed |= dict.fromkeys([_phrase_term(text)] if is_phrase else _parse_word(text))
    return list(parsed)[:_MAX_TERMS]


def split_pieces(query: str) -> list[str]:
    """Return the query's words and phrases as plain text."""
    return [text for text, _ in _split_marked_pieces(query)]


def _split_marked_pieces(query: str) -> list[tuple[str, bool]]:
    """Return the query's words and phrases, each with a flag that marks a phrase."""
    cleaned = query[:_MAX_QUERY_CHARS].encode("utf-8", "replace").decode().replace("\0", " ")
    cleaned = cleaned.replace("\uff02", '"')  # `fold` would turn it into a quote inside the expression
    candidates = [
        (phrase or word, bool(phrase)) for phrase, word in _PIECE.findall(_PRIVATE_CHARS.sub(" ", cleaned))
    ]
    return [piece for piece in candidates if _WORD.search(piece[0].replace("_", " "))][:_MAX_TERMS]


def _phrase_term(text: str) -> Term:
    folded = fold(text)
    match = " AND ".join((_exact_expression(folded), *_quote_tokens(list_identifier_pairs(folded))))
    return Term(f"({match})", to_index_text(folded), is_phrase=True)


def _parse_word(text: str) -> list[Term]:
    """Return a word's terms: the word itself, an identifier as a whole, or the parts between punctuation."""
    folded = _POSSESSIVE.sub("", fold(text))
    if _unspaced_runs().search(folded):
        return [Term(_exact_expression(folded), _exact_expression(folded))]
    joined, word = _identifier_patterns()
    parsed: list[Term] = []

    def add_words(part: str) -> None:
        parsed.extend(_word_term(each) for each in word.findall(part) if _WORD.search(each))

    position = 0
    for run in joined.finditer(folded):
        add_words(folded[position : run.start()])
        pairs = _quote_tokens(list_identifier_pairs(run.group()))
        parsed.append(
            Term(f"({' AND '.join(pairs)})", " ".join(pairs), fallback=_exact_expression(run.group()))
        )
        position = run.end()
    add_words(folded[position:])
    if parsed and folded.endswith("*") and not parsed[-1].fallback:
        last = parsed[-1].text
        if len(last) >= _MIN_PREFIX_CHARS:
            parsed[-1] = Term(_exact_expression(last), last, prefix=last.lower())
    return parsed


def _word_term(word: str) -> Term:
    return Term(_exact_expression(word), word, is_stop=word.lower() in STOP_WORDS)


def _quote_tokens(tokens: Iterable[str]) -> list[str]:
    return [f'"{token}"' for token in tokens]


def _split_runs(folded: str) -> str:
    return folded if folded.isascii() else _unspaced_runs().sub(_cut_into_pairs, folded)


def _cut_into_pairs(run: re.Match[str]) -> str:
    text = run.group()
    return f" {' '.join(text[i : i + 2] for i in range(len(text)))} "


def _exact_expression(piece: str) -> str:
    """Return a phrase expression for a piece.

    It has the pairs of the index. If the piece ends with an unspaced run, it lacks the run's last character
    alone, so that the piece also matches a longer run in the text.
    """
    last = None
    for run in _unspaced_runs().finditer(piece):
        last = run
    if last is None or _WORD.search(piece, last.end()):
        return f'"{_split_runs(piece)}"'
    head, run = _split_runs(piece[: last.start()]), last.group()
    if len(run) == 1:
        return f'"{head} {run}" *'
    return f'"{head} {" ".join(run[i : i + 2] for i in range(len(run) - 1))}"'


def find_match(text: str, searched: list[str]) -> tuple[int, int] | None:
    """Return the span to highlight in `text` for the searched words or phrases, or None.

    Stop words count only if nothing else was searched. Exact matches come before other forms of a word.
    """
    patterns = _highlight_patterns(
        tuple(piece for piece in searched if piece.lower() not in STOP_WORDS) or tuple(searched)
    )
    folded = text if text.isascii() else fold(text)
    for pattern in patterns:
        for form in (text, folded) if len(folded) == len(text) and folded is not text else (text,):
            if match := pattern.search(form):
                return match.span()
    return None


@lru_cache(64)
def _highlight_patterns(searched: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return patterns in order of preference: the searched text at the start of a word, the text anywhere,
    and words that begin alike, which the index's stemmer may have matched."""
    lists = [
        words for piece in searched for form in {piece, fold(piece)} if (words := _LETTERS.findall(form))
    ]
    if not lists:
        return ()
    exact = "|".join(r"[\W_]*".join(map(re.escape, words)) for words in lists)
    begins = [re.escape(word[: max(4, len(word) - 3)]) for words in lists for word in words if len(word) > 3]
    forms = (rf"(?<![^\W_])(?:{exact})", exact, rf"(?<![^\W_])(?:{'|'.join(begins)})[^\W_]*")
    return tuple(re.compile(form, re.IGNORECASE) for form in (forms if begins else forms[:2]))


def fold(text: str) -> str:
    """Remove width variants and the diacritics of every script, which SQLite removes only from Latin text."""
    if text.isascii():
        return text
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare)
