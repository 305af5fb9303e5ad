"""Characters that a reader takes for others: found by what Unicode says of them, and marked.

A word of two scripts, a word of another script that could be read as Latin among Latin ones, other forms of
ASCII's characters, accents of their own, signs in the place of ASCII's, and blanks that push the rest out of
sight. Text in its own script stays as it is. What is marked keeps its place and gets its code behind it.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

# Cyrillic, Greek and Armenian letters beside the Latin ones that they are read as.
_READ_AS = str.maketrans(
    "аеорсухіјѕԁһԛԝӏѵАВЕЅІЈКМНОРСТХҮԌԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανιγρυкօոսհզցՍՕ",
    "aeopcyxijsdhqwlvABESIJKMHOPCTXYGQWABEZHIKMNOPTYXoaviypukonuhqgUO",
)
# Scripts that have letters of their own shape, so that a whole word says which one it is.
_KNOWN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "GEORGIAN"})
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\S+")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_BLANKS = re.compile(r"[ \n]{100,}|\n(?: *\n){7,}")
_MARKED = re.compile(r"<U\+[0-9A-F]{4,6}>")
_PROSE = frozenset(
    "’‘“”–—…·→←°«»§€£¥"
)  # stands between letters in ordinary text, and is seen to be none of ASCII's
_LATIN = frozenset({"LATIN"})
_NEAR, _MOST_ACCENTS = 2, 8


def latin(text: str) -> str:
    """Give the text with other scripts' letters that look like Latin ones as those, for finding phrases."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_READ_AS)


def marked(text: str) -> str:
    """Give the text with each look-alike's code behind it, and long blanks counted. Twice is as once."""
    if not text.isascii():
        parts: list[str] = []
        begin = 0
        for at in odd_places(text):
            if not _MARKED.match(text, at + 1):
                parts += (text[begin : at + 1], code(text[at]))
                begin = at + 1
        text = "".join(parts) + text[begin:]
    return _BLANKS.sub(_counted, text)


def code(character: str) -> str:
    """Give a character's code as people are shown it."""
    return f"<U+{ord(character):04X}>"


def odd_places(text: str) -> list[int]:
    """Give where look-alikes stand, in order; none in plain ASCII."""
    if text.isascii():
        return []
    places: set[int] = set()
    for found in _FOREIGN.finditer(text):
        doubt = _doubt(found[0])
        if doubt == "odd" or (doubt and _is_odd_here(text, found.start(), doubt)):
            places.add(found.start())
    at = 0
    for line in text.split("\n"):
        if not line.isascii():
            places.update(at + place for place in _odd_letters(line))
        at += len(line) + 1
    return sorted(places)


def _counted(found: re.Match[str]) -> str:
    lines = found[0].count("\n")
    told = f"<{len(found[0])} blanks, {lines} line ends>" if lines else f"<{len(found[0])} blanks>"
    return told if not lines else f"\n{told}\n"


@lru_cache(maxsize=4096)
def _doubt(character: str) -> str:
    """Say as what a character is judged by its neighbours: "" where it is never read as one of ASCII's, "odd"
    where it always is, as wide, mathematical and small forms, ligatures and phonetic letters are."""
    kind = unicodedata.category(character)
    if kind in ("Mn", "Me"):
        return "accent"
    if character > "\u00bf" and character != "…" and kind != "So" and _is_form_of_ascii(character):
        return "odd"
    if kind == "Nd":
        return "digit"
    is_sign = kind[0] == "P" or kind in ("Sm", "Sk")
    return "sign" if is_sign and character not in _PROSE else ""


def _is_form_of_ascii(character: str) -> bool:
    made_of = unicodedata.decomposition(character)
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and plain.isascii() and plain.isprintable() and plain.strip():
        return not made_of.startswith(("<super>", "<sub>", "<circle>", "<fraction>", "<square>"))
    return not made_of and character > "\u024f" and unicodedata.name(character, "").startswith("LATIN ")


def _is_odd_here(text: str, at: int, doubt: str) -> bool:
    """Whether a character is odd between its neighbours: an accent of its own on one of ASCII's, a foreign
    digit in a number, a sign that is not ASCII's within an ASCII word."""
    if doubt == "accent":
        return _is_on_ascii(text, at)
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if doubt == "digit":
        return any(one.isascii() and one.isdigit() for one in (before, after))
    return all(one.isascii() and one.isalnum() for one in (before, after))


def _is_on_ascii(text: str, at: int) -> bool:
    """Whether an accent, or the ones before it, stand on one of ASCII's characters; looks back a little."""
    for before in reversed(text[max(0, at - _MOST_ACCENTS) : at]):
        if unicodedata.category(before) not in ("Mn", "Me"):
            return before.isascii()
    return at >= _MOST_ACCENTS


@lru_cache(maxsize=4096)
def script(character: str) -> str:
    """Name the script of a letter that has cases, or was made after Latin ones; "" for all others."""
    if "\x7f" < character <= "\u00bf":
        return ""  # the micro sign and the ordinals
    kind = unicodedata.category(character)
    name = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "").partition(" ")[0]
    return name if kind in ("Lu", "Ll", "Lt") or (kind == "Lo" and name == "LISU") else ""


class _Word(NamedTuple):
    begin: int
    text: str
    scripts: frozenset[str]
    can_pass: bool
    """Whether every letter could be read as a Latin one."""


def _word(found: re.Match[str]) -> _Word:
    text = found[0]
    scripts = frozenset(filter(None, (script(letter) for letter in text)))
    return _Word(found.start(), text, scripts, not scripts <= _KNOWN or text.translate(_READ_AS).isascii())


def _odd_letters(line: str) -> Iterator[int]:
    words = [*map(_word, _LETTERS.finditer(line))]
    has_latin = any("LATIN" in word.scripts for word in words)
    tokens = [found.span() for found in _TOKEN.finditer(line)]
    for number, word in enumerate(words):
        if len(word.scripts) > 1:
            own = "LATIN" if "LATIN" in word.scripts else min(word.scripts)
            yield from (word.begin + at for at, c in enumerate(word.text) if script(c) not in ("", own))
        elif has_latin and word.can_pass and word.scripts and word.scripts != _LATIN:
            near = words[max(0, number - _NEAR) : number + 1 + _NEAR]
            is_natural = any(each.scripts == word.scripts and not each.can_pass for each in near)
            if not is_natural or _is_in_latin(line, tokens, word.begin):
                yield from range(word.begin, word.begin + len(word.text))


def _is_in_latin(line: str, tokens: list[tuple[int, int]], at: int) -> bool:
    """Whether what stands at `at`, between blanks, has ASCII letters, too: a path, a host, a file's name."""
    begin, end = tokens[bisect(tokens, at, key=itemgetter(0)) - 1]
    return any(each.isascii() and each.isalpha() for each in line[begin:end])
