"""Texts made comparable: white space, case and typography folded; words by how they begin.

Language-blind but for the search's words that carry no content; text without spaces is cut into pairs of
characters. It does not know what is compared with what.
"""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata
from contextlib import suppress

from whet.store.stopwords import STOP_WORDS

_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00a0": " "}
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_ENCODED = re.compile(r"[\w+/-]{8,}")
_ESCAPED = re.compile(r"(?:\\x|%)([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\0?([0-7]{3})")
_URL_SAFE = str.maketrans("+/", "-_")
_PACKED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]{2,}")

# What rules are made of, whatever they are about.
_RULE_WORDS = "always each every keep make need never please prefer use used uses using want wants work"
_NO_CONTENT = STOP_WORDS.union(_RULE_WORDS.split())


def fold(text: str) -> str:
    """Give text in one form for finding verbatim quotes: white space, case, quotes and dashes, no colours."""
    if not text.isascii():
        text = _ZERO_WIDTH.sub("", unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY))
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return " ".join(text.split()).lower()


def decoded(text: str) -> str:
    """Give what a program would make of values that stand encoded in a text: base 64, hexadecimal, escapes,
    letters turned round or moved on by thirteen."""
    found = [text[::-1], codecs.encode(text, "rot13"), _ESCAPED.sub(_unescaped, text)]
    for code in set(_ENCODED.findall(text)):
        with suppress(ValueError):
            found.append(bytes.fromhex(code).decode())
        with suppress(ValueError):
            padded = code.translate(_URL_SAFE) + "=="  # too many do no harm
            found.append(base64.urlsafe_b64decode(padded).decode())
    return "\n".join(found)


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16) if not found[3] else int(found[3], 8))


def unmarked(text: str) -> str:
    """Give text without its combining marks, which stand inside the words of many scripts."""
    return text if text.isascii() else "".join(one for one in text if unicodedata.category(one)[0] != "M")


def worded(text: str) -> str:
    """Give a text's words with nothing between them but spaces, so that parts are put together."""
    return " ".join(["", *re.findall(r"\w+", fold(text)), ""])


def content_words(text: str) -> list[str]:
    """Give how the words that carry content begin, in order, each once: endings are another form's."""
    folded = unmarked(fold(text))
    stems = dict.fromkeys(_begin(word) for word in _WORD.findall(folded) if word not in _NO_CONTENT)
    for run in _PACKED.findall(folded):
        stems.pop(_begin(run), None)
        stems.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
    return [word for word in stems if len(word) > 1 or word.isdigit()]


def _begin(word: str) -> str:
    return word if not word.isalpha() else word[: max(4, len(word) - 3)][:6]


def find_folded(text: str, wanted: str) -> tuple[int, int] | None:
    """Give where folded words (not none) first stand in a text as it is, start and end; None for nowhere."""
    skip = {at for match in _ANSI.finditer(text) for at in range(*match.span())}
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
    start = "".join(chars).find(wanted)
    return None if start < 0 else (places[start], places[start + len(wanted) - 1] + 1)
