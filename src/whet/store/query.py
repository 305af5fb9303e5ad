"""What a person or a model types, as a full-text query that can't be malformed; and text, as it is indexed.

SQLite's tokeniser folds case and splits at punctuation, so `foo_bar.py` is three words in a row and is
found whole (as a phrase) and by its parts. Diacritics of every script are taken off here, and scripts
without spaces are cut into overlapping pairs, the last character standing alone, so that pairs, runs and
single characters are all found.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3041-\u30ff\u3105-\u318f\u31f0-\u31ff"  # Jamo, kana, Bopomofo
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"  # Han, Hangul
    "\U00020000-\U0003ffff"
)
_MARKS = re.compile("[\u0300-\u036f]+")
_PIECE = re.compile(r'"([^"]*)(?:"|$)|([^\s"]+)')
_WORD = re.compile(r"\w")
_TERMS_MAX = 16
_QUERY_CHARS_MAX = 2_000


@cache
def _runs() -> re.Pattern[str]:
    """Compiled at the first use, for it costs more than the rest of the module's import."""
    return re.compile(f"[{_UNSPACED}]+")


def indexable(text: str) -> str:
    """Give the form of `text` that goes into the index."""
    return text if text.isascii() else _runs().sub(_pairs, fold(text))


def terms(query: str) -> list[str]:
    """Give the query's words and "quoted phrases" as full-text expressions, all of which can be combined
    with a space (and) or OR. Anything that holds no letter or digit is left out.
    """
    found: list[str] = []
    for piece in pieces(query):
        term = _term(piece)
        if term not in found:
            found.append(term)
    return found


def pieces(query: str) -> list[str]:
    """Give the query's words and phrases as plain text."""
    cleaned = query[:_QUERY_CHARS_MAX].encode("utf-8", "replace").decode().replace("\0", " ")
    found = [phrase or word for phrase, word in _PIECE.findall(cleaned)]
    return [piece for piece in found if _WORD.search(piece.replace("_", " "))][:_TERMS_MAX]


def _pairs(run: re.Match[str]) -> str:
    text = run.group()
    return f" {' '.join(text[i : i + 2] for i in range(len(text)))} "


def _term(piece: str) -> str:
    """Give a phrase: pairs as in the index, except that a run at the end may go on in the text."""
    piece, last = fold(piece), None
    for run in _runs().finditer(piece):
        last = run
    if last is None or _WORD.search(piece, last.end()):
        return f'"{indexable(piece)}"'
    head, run = indexable(piece[: last.start()]), last.group()
    if len(run) == 1:
        return f'"{head} {run}" *'
    return f'"{head} {" ".join(run[i : i + 2] for i in range(len(run) - 1))}"'


def find(text: str, wanted: list[str]) -> tuple[int, int] | None:
    """Give where in `text` the first of these words or phrases stands, as a person would see it."""
    spots = [spot for piece in wanted if (spot := _find_one(text, piece))]
    if not spots and not text.isascii():
        folded = fold(text)
        if len(folded) == len(text):
            spots = [spot for piece in wanted if (spot := _find_one(folded, fold(piece)))]
    return min(spots, default=None)


def _find_one(text: str, piece: str) -> tuple[int, int] | None:
    words = re.findall(r"[^\W_]+", piece)
    if not words:
        return None
    body = r"[\W_]*".join(re.escape(word) for word in words)
    match = re.search(rf"(?<![^\W_]){body}", text, re.IGNORECASE) or re.search(body, text, re.IGNORECASE)
    return match.span() if match else None


def fold(text: str) -> str:
    """Take off diacritics, of every script that has them as marks, and widths; SQLite does only Latin."""
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare)
