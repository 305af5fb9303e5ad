"""Make texts comparable: folds white space, case and typography, and reduces words to their stems.

Independent of language, except for the search's stop words. Text without spaces is split into pairs of
characters.
"""

from __future__ import annotations

import base64
import codecs
import re
from contextlib import suppress
from functools import cache
from unicodedata import category, name, normalize

from whet.store.stopwords import STOP_WORDS

_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00a0": " "}
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_LATIN = re.compile(r"LATIN SMALL (?:LETTER|LIGATURE) (?:DOTLESS |OPEN )?([A-Z]{1,2})(?: WITH .*)?$")
_OTHER_LETTERS = {"þ": "th", "ð": "d", "ŋ": "n", "ə": "e"}  # their names don't spell them
_ENCODED = re.compile(r"[\w+/-]{8,}")
_ESCAPED = re.compile(r"(?:\\x|%)([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\0?([0-7]{3})")
_URL_SAFE = str.maketrans("+/", "-_")
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua980-\ua9df\uaa60-\uaadf"
    "\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u9fff\ua000-\ua4cf\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""The scripts whose words have no blanks between them, or few letters, for a class of an expression."""
PACKED: re.Pattern[str] = re.compile(f"[{UNSPACED}]")
_UNSPACED_SCRIPTS = re.compile(f"[{UNSPACED}]{{2,}}")

# Words that occur in rules about any subject.
_RULE_WORDS = "always each every keep make need never please prefer use used uses using want wants work"
_WORDS_WITHOUT_CONTENT = STOP_WORDS.union(_RULE_WORDS.split())


def fold(text: str) -> str:
    """Return the text in the form in which verbatim quotes are searched: white space, case, quotes and dashes
    folded, without colour codes."""
    if not text.isascii():
        text = _ZERO_WIDTH.sub("", normalize("NFKC", text).translate(_TYPOGRAPHY))
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return " ".join(text.split()).casefold()


def decode_values(text: str) -> str:
    """Return the text with its encoded values decoded in every way a program might: base64, hexadecimal,
    escapes, reversed letters, ROT13."""
    texts = [text[::-1], codecs.encode(text, "rot13"), _ESCAPED.sub(_unescape, text)]
    for code in set(_ENCODED.findall(text)):
        with suppress(ValueError):
            texts.append(bytes.fromhex(code).decode())
        with suppress(ValueError):
            padded = code.translate(_URL_SAFE) + "=="  # surplus padding does no harm
            texts.append(base64.urlsafe_b64decode(padded).decode())
    return "\n".join(texts)


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1] or match[2], 16) if not match[3] else int(match[3], 8))


def strip_marks(text: str) -> str:
    """Return the text without combining marks, which occur inside the words of many scripts."""
    return text if text.isascii() else "".join(char for char in text if category(char)[0] != "M")


def spell_plainly(text: str) -> str:
    """Return the text in lower case with every Latin letter as its plain ones, by Unicode's names: `é` as
    `e`, `ł` as `l`, `œ` as `oe`. Without apostrophes inside words."""
    text = _APOSTROPHE.sub("", text)
    if text.isascii():
        return text.lower()
    return "".join(map(_spell_letter, strip_marks(normalize("NFKD", text.casefold()))))


@cache
def _spell_letter(char: str) -> str:
    match = None if char.isascii() else _LATIN.match(name(char, ""))
    return match[1].lower() if match else _OTHER_LETTERS.get(char, char)


def fill_marks(text: str) -> str:
    """Return the text with each combining mark replaced by a letter, so that a mark does not end a word. The
    length stays the same."""
    return text if text.isascii() else "".join("ª" if category(char)[0] == "M" else char for char in text)


def join_words(text: str) -> str:
    """Return the text's words separated by single spaces, so that a phrase can be searched across
    punctuation."""
    return " ".join(["", *re.findall(r"\w+", fold(text)), ""])


def has_part(folded: str, part: str) -> bool:
    """Return whether a text has a part as whole words: room 1 is not room 12."""
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", folded) is not None


def content_words(text: str) -> list[str]:
    """Return the stems of the words that carry content, in order and without duplicates."""
    folded = strip_marks(fold(text))
    stems = dict.fromkeys(_stem(word) for word in _WORD.findall(folded) if word not in _WORDS_WITHOUT_CONTENT)
    for run in _UNSPACED_SCRIPTS.findall(folded):
        stems.pop(_stem(run), None)
        stems.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
    return [word for word in stems if len(word) > 1 or word.isdigit()]


def _stem(word: str) -> str:
    return word if not word.isalpha() else word[: max(4, len(word) - 3)][:6]


def find_span(text: str, words: str) -> tuple[int, int] | None:
    """Return the start and end, in the original text, of the first occurrence of folded words, or None.

    `words` must not be empty.
    """
    skip = {at for match in _ANSI.finditer(text) for at in range(*match.span())}
    chars: list[str] = []
    offsets: list[int] = []
    for at, char in enumerate(text):
        if at in skip:
            continue
        for folded in _ZERO_WIDTH.sub("", normalize("NFKC", char).translate(_TYPOGRAPHY)).casefold():
            char_or_space = " " if folded.isspace() else folded
            if char_or_space != " " or (chars and chars[-1] != " "):
                chars.append(char_or_space)
                offsets.append(at)
    start = "".join(chars).find(words)
    return None if start < 0 else (offsets[start], offsets[start + len(words) - 1] + 1)
