"""Texts made comparable: white space, case and typography folded; words cut to their stems.

Language-blind but for a list of English words that carry no content; text without spaces is cut into pairs
of characters. It does not know what is compared with what.
"""

from __future__ import annotations

import re
import unicodedata

_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00a0": " "}
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_PACKED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]{2,}")
_NO_CONTENT_TEXT = """
a about after all also always an and any are as at be been before but by can could did do does for from get
had has have he her here his how i if in into is it its just keep make may me more my need never no not
now of on only or our out over own please prefer she should so some such than the their then there
these they this those to too up us use used user uses using want wants was we well were what when which
who will with would yes yet you your don't doesn't isn't it's that's i'm project pitfall instead work
"""
_NO_CONTENT = frozenset(_NO_CONTENT_TEXT.split())


def fold(text: str) -> str:
    """Give text in one form for finding verbatim quotes: white space, case, quotes and dashes, no colours."""
    if not text.isascii():
        text = _ZERO_WIDTH.sub("", unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY))
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return " ".join(text.split()).lower()


def content_words(text: str) -> list[str]:
    """Give the stems of the words that carry content, in order, each once."""
    folded = fold(text)
    stems = dict.fromkeys(stem(word) for word in _WORD.findall(folded) if word not in _NO_CONTENT)
    for run in _PACKED.findall(folded):
        stems.pop(stem(run), None)
        stems.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
    return [word for word in stems if len(word) > 1 or word.isdigit()]


def stem(word: str) -> str:
    """Cut a word's usual English endings; what is left need not be a word."""
    word = word.removesuffix("'s")
    if len(word) <= 3 or not word.isascii() or word.isdigit():
        return word
    for ending, put in (
        ("ies", "y"),
        ("sses", "ss"),
        ("ations", "at"),
        ("ation", "at"),
        ("ments", ""),
        ("ment", ""),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return _undouble(word[: len(word) - len(ending)] + put)
    for ending in ("ings", "ing", "edly", "ers", "er", "ed", "es", "ly", "s", "e"):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            return _undouble(word[: len(word) - len(ending)])
    return _undouble(word)


def _undouble(word: str) -> str:
    word = word.removesuffix("e") if len(word) > 3 else word
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou" else word


def find_folded(text: str, wanted: str) -> tuple[int, int] | None:
    """Give where folded words first stand in a text as it is, start and end; None for nowhere."""
    skip = (
        {at for match in _ANSI.finditer(text) for at in range(*match.span())}
        if "\x1b" in text
        else set[int]()
    )
    chars: list[str] = []
    places: list[int] = []
    for at, char in enumerate(text):
        if at in skip:
            continue
        for one in _ZERO_WIDTH.sub("", unicodedata.normalize("NFKC", char).translate(_TYPOGRAPHY)).lower():
            put = " " if one.isspace() else one
            if put != " " or (chars and chars[-1] != " "):
                chars.append(put)
                places.append(at)
    start = "".join(chars).find(wanted) if wanted else -1
    return None if start < 0 else (places[start], places[start + len(wanted) - 1] + 1)
