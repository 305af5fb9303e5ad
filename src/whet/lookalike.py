"""Find and mark characters that a reader may take for others, and find files by names that look like theirs.

Marked are letters in words that mix two scripts, words among Latin words that look Latin but are not, other
forms of ASCII characters, separate accents, and signs in place of ASCII signs. A marked character stays, and
its code follows. Long runs of blanks, which push text out of sight, are replaced by their count.
"""

from __future__ import annotations

import os
import re
import unicodedata
from bisect import bisect
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from whet.late import late_pattern

# Cyrillic, Greek and Armenian letters, and the Latin letters that they look like.
_READ_AS = str.maketrans(
    "аеорсухіјѕԁһԛԝӏѵАВЕЅІЈКМНОРСТХҮԌԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανιγρυкօոսհզցՍՕ",
    "aeopcyxijsdhqwlvABESIJKMHOPCTXYGQWABEZHIKMNOPTYXoaviypukonuhqgUO",
)
# Scripts with letters of a distinct shape, so that a whole word shows its script.
_DISTINCT_SCRIPTS = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "GEORGIAN"})
_LETTERS = late_pattern(r"[^\W\d_]+")
_TOKEN = late_pattern(r"\S+")
_has_latin = re.compile(r"[A-Za-z]").search
_BLANKS = late_pattern(r"[ \n]{100,}|\n(?: *\n){7,}")
_MARKED = late_pattern(r"<U\+[0-9A-F]{4,6}>")
_DIVIDER = late_pattern(r"SLASH|SOLIDUS|RATIO\b|LETTER COLON")  # ends a host's name, or seems to
_PROSE = frozenset("’‘“”–—…·→←°«»§€£¥")  # common in ordinary text and not mistaken for ASCII signs
_LATIN = frozenset({"LATIN"})
_NEAR, _MAX_ACCENTS = 2, 8
_MAX_FOLDERS = 20  # folders with names that look the same


def to_latin(text: str) -> str:
    """Return the text with Latin letters in place of look-alikes from other scripts."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_READ_AS)


def mark_lookalikes(text: str) -> str:
    """Return the text with each look-alike's code after it, and long blanks replaced by their count. Applying
    it twice has the effect of applying it once."""
    if not text.isascii():
        parts: list[str] = []
        begin = 0
        for at in find_lookalikes(text):
            if not _MARKED.match(text, at + 1):
                parts += (text[begin : at + 1], format_code(text[at]))
                begin = at + 1
        text = "".join(parts) + text[begin:]
    return _BLANKS.sub(_count_blanks, text)


def format_code(character: str) -> str:
    """Return a character's code as shown to people."""
    return f"<U+{ord(character):04X}>"


def find_lookalikes(text: str) -> list[int]:
    """Return the positions of look-alikes, in order. Plain ASCII has none."""
    if text.isascii():
        return []
    characters = set(text)  # each character is classified once, however often it occurs
    doubts = {
        character: doubt for character in characters if character > "\x7f" and (doubt := _classify(character))
    }
    scripts = {character: name for character in characters if (name := find_script(character))}
    positions = set(_find_odd_signs(text, doubts)) if doubts else set[int]()
    at = 0
    for line in text.split("\n"):
        if len({scripts[character] for character in set(line) if character in scripts}) > 1:
            positions.update(at + position for position in _find_odd_letters(line, scripts))
        at += len(line) + 1
    return sorted(positions)


def _count_blanks(match: re.Match[str]) -> str:
    lines = match[0].count("\n")
    notice = f"<{len(match[0])} blanks, {lines} line ends>" if lines else f"<{len(match[0])} blanks>"
    return notice if not lines else f"\n{notice}\n"


@lru_cache(maxsize=4096)
def _classify(character: str) -> str:
    """Classify a character for the check of its neighbours.

    Returns "" if it is never read as an ASCII character, and "odd" if it always is: wide, mathematical and
    small forms, ligatures and phonetic letters. An "accent", a "digit", a "sign" or a "divider", which may
    seem to end a host's name, depends on its neighbours.
    """
    kind = unicodedata.category(character)
    if kind in ("Mn", "Me"):
        return "accent"
    if kind in ("Cn", "Co", "Cs") or (kind == "Lo" and is_ideograph(character)):
        return ""
    if character > "\u00bf" and character != "…" and kind != "So" and _is_form_of_ascii(character):
        return "odd"
    if kind == "Nd":
        return "digit"
    if kind in ("Po", "Sm", "Sk") and _DIVIDER.search(unicodedata.name(character, "")):
        return "divider"
    is_sign = kind[0] == "P" or kind in ("Sm", "Sk")
    return "sign" if is_sign and character not in _PROSE else ""


def _is_form_of_ascii(character: str) -> bool:
    decomposition = unicodedata.decomposition(character)
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and plain.isascii() and plain.isprintable() and plain.strip():
        return not decomposition.startswith(("<super>", "<sub>", "<circle>", "<fraction>", "<square>"))
    return not decomposition and character > "\u024f" and unicodedata.name(character, "").startswith("LATIN ")


def is_ideograph(letter: str) -> bool:
    """Return whether a letter is Chinese, Japanese or Korean: two in three letters of Unicode, none of which
    looks like a Latin letter."""
    return "\u3400" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7a3" or letter >= "\U00020000"


def _find_odd_signs(text: str, doubts: Mapping[str, str]) -> Iterator[int]:
    """Find characters that are odd by themselves or next to their neighbours: a separate accent on an ASCII
    character, a foreign digit in a number, a non-ASCII sign within an ASCII word."""
    # `base` is the position of the character before the current run of accents, `run` its length
    base = run = -1
    for at, character in enumerate(text):
        doubt = doubts.get(character)
        if doubt != "accent":
            base, run = at, 0
        else:
            run += 1
        if doubt is None:
            continue
        if doubt == "accent":
            is_odd = run > _MAX_ACCENTS or (base >= 0 and text[base].isascii())
        elif doubt == "odd":
            is_odd = True
        elif doubt == "divider":
            is_odd = any(
                near.isascii() and near.isalnum() for near in (text[at - 1 : at], text[at + 1 : at + 2])
            )
        else:
            before, after = text[at - 1 : at], text[at + 1 : at + 2]
            is_odd = _is_in_ascii(before, after, is_digit=doubt == "digit")
        if is_odd:
            yield at


def _is_in_ascii(before: str, after: str, *, is_digit: bool) -> bool:
    if is_digit:
        return any(neighbour.isascii() and neighbour.isdigit() for neighbour in (before, after))
    return all(neighbour.isascii() and neighbour.isalnum() for neighbour in (before, after))


@lru_cache(maxsize=4096)
def find_script(character: str) -> str:
    """Return the script of a letter that has cases or was modelled on Latin letters, or "" for all others."""
    if "\x7f" < character <= "\u00bf":
        return ""  # the micro sign and the ordinals
    kind = unicodedata.category(character)
    if kind not in ("Lu", "Ll", "Lt", "Lo") or (kind == "Lo" and is_ideograph(character)):
        return ""
    name = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "").partition(" ")[0]
    return name if kind != "Lo" or name == "LISU" else ""


class _Word(NamedTuple):
    begin: int
    text: str
    scripts: frozenset[str]
    can_pass: bool
    """Whether every letter could be read as a Latin one."""


def _make_word(begin: int, text: str, scripts_of: Mapping[str, str]) -> _Word:
    if text.isascii():
        return _Word(begin, text, _LATIN, can_pass=True)
    scripts = frozenset(scripts_of[letter] for letter in set(text) if letter in scripts_of)
    return _Word(begin, text, scripts, not scripts <= _DISTINCT_SCRIPTS or text.translate(_READ_AS).isascii())


def _find_odd_letters(line: str, scripts: Mapping[str, str]) -> Iterator[int]:
    words = [_make_word(match.start(), match[0], scripts) for match in _LETTERS.finditer(line)]
    has_latin = any("LATIN" in word.scripts for word in words)
    tokens = [(match.start(), _has_latin(match[0])) for match in _TOKEN.finditer(line)]
    for number, word in enumerate(words):
        if len(word.scripts) > 1:
            main_script = "LATIN" if "LATIN" in word.scripts else min(word.scripts)
            yield from (
                word.begin + at
                for at, c in enumerate(word.text)
                if scripts.get(c, main_script) != main_script
            )
        elif has_latin and word.can_pass and word.scripts and word.scripts != _LATIN:
            near = words[max(0, number - _NEAR) : number + 1 + _NEAR]
            is_natural = any(other.scripts == word.scripts and not other.can_pass for other in near)
            # The token has ASCII letters if the word is part of a path, a host or a file name.
            if not is_natural or tokens[bisect(tokens, word.begin, key=itemgetter(0)) - 1][1]:
                yield from range(word.begin, word.begin + len(word.text))


def find_similar_paths(folder: Path, name: str) -> list[Path]:
    """Return the path `name` below `folder` if it exists, else the existing paths whose names look the same.

    Accents may be composed or not, and spaces of any kind are equal: macOS puts U+202F into the names of
    screenshots. The results have the spelling of the file system.
    """
    parts = Path(name).parts
    candidates = [Path(parts[0])] if parts and os.path.isabs(parts[0]) else [folder]
    for part in parts[1:] if candidates != [folder] else parts:
        candidates = [path for candidate in candidates[:_MAX_FOLDERS] for path in _entries(candidate, part)]
    return candidates


def _entries(folder: Path, name: str) -> list[Path]:
    if name == ".." or os.path.lexists(folder / name):
        return [folder / name]
    normal_name = _normalize(name)
    try:
        return [folder / entry for entry in sorted(os.listdir(folder)) if _normalize(entry) == normal_name]
    except OSError:
        return []


def _normalize(name: str) -> str:
    """Return a name with composed accents and plain spaces."""
    if name.isascii():
        return name
    folded = "".join(" " if unicodedata.category(char) == "Zs" else char for char in name)
    return unicodedata.normalize("NFC", folded)
