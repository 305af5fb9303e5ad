"""Match paths against globs in time that grows with pattern and path, never with their combinations.

Globs come from models and from the .gitignore of any repository. A regular expression made of one tries
every way to share a path among its stars: 16 of them on a name of 200 letters never end. Here all places
in the glob that a path may have reached are the bits of one number, which each character moves on.
Standard library only: `walk.py` runs without the installed packages.
"""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

MAX_GLOB_CHARS = 1_024
MAX_GLOB_PIECES = 2_048
_MAX_STEPS = 20_000
_PIECE = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\{[^{}]*,[^{}]*\}|\\.|.", re.DOTALL)
_SPECIAL = re.compile(r"[*?\[{\\]")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_FOLDERS, _BELOW, _NAME_CHAR = "**/", "/**", "?"


class GlobError(ValueError):
    """The text is not a glob that can be matched; the message says why."""


class _CharClass:
    """The characters between two brackets. Raises GlobError."""

    def __init__(self, text: str) -> None:
        self._is_negated = text[0] in "!^"
        self._ranges = _RANGE.findall(text[self._is_negated :])
        for first, last, _ in self._ranges:
            if first > last:
                raise GlobError(f"{first}-{last} is not a range")

    def has(self, char: str) -> bool:
        """Return whether the class has a character."""
        is_listed = any(char == one or (first and first <= char <= last) for first, last, one in self._ranges)
        return is_listed != self._is_negated


class _Step(dict[str, "_Step"]):
    """The places of a glob that some beginning of a path reaches, and what each next character leads to."""

    def __init__(self, glob: Glob, places: int) -> None:
        self.glob = glob
        self.places = places

    def __missing__(self, char: str) -> _Step:
        return self.glob.advance(self, char)


class Glob:
    """A glob for whole relative paths: `*`, `?` and `[...]` stop at a slash, `**` does not, `{a,b}` are
    alternatives. With `is_name`, it is compared with the path's last part alone.

    Raises GlobError.
    """

    def __init__(self, text: str, *, is_name: bool = False) -> None:
        if len(text) > MAX_GLOB_CHARS:
            raise GlobError(f"it is longer than {MAX_GLOB_CHARS:,} characters")
        self._is_name = is_name
        self._simple = _one_star(text)
        self._size = 0
        self._first = self._last = 0  # the places before and behind each alternative
        self._stars = self._deep_stars = self._optional = 0
        self._name_chars = 0
        self._literals: dict[str, int] = {}
        self._classes: list[tuple[_CharClass, int]] = []
        for pieces in () if self._simple else _alternatives(text):
            self._add(pieces)
        self._steps: dict[int, _Step] = {}
        self._count = 0
        self._start = self._step(self._first)

    def matches(self, path: str) -> bool:
        """Return whether the whole path fits."""
        if self._is_name:
            path = path.rpartition("/")[2]
        if self._simple is not None:
            return self._simple.matches(path)
        step = self._start
        for char in path:
            step = step[char]
        return step.places & self._last != 0

    def advance(self, step: _Step, char: str) -> _Step:
        """Return where a character leads from there, and keep that for the next path."""
        entered = self._literals.get(char, 0)
        stays = self._deep_stars
        if char != "/":
            entered |= self._name_chars
            stays |= self._stars
            for chars, place in self._classes:
                if chars.has(char):
                    entered |= place
        target = self._step(step.places << 1 & entered | step.places & stays)
        self._count += 1
        if self._count > _MAX_STEPS:  # what is kept is for speed alone
            self._count = 0
            for known in self._steps.values():
                known.clear()
            self._steps = {}
        else:
            step[char] = target
        return target

    def _step(self, places: int) -> _Step:
        while (skipping := places & self._optional & ~(places >> 2)) != 0:
            places |= skipping << 1 | skipping << 2
        return self._steps.setdefault(places, _Step(self, places))

    def _add(self, pieces: list[str]) -> None:
        """Add one alternative: its places lie behind those of the others."""
        self._first |= 1 << self._size
        previous = ""
        for piece in pieces:
            here = 1 << self._size
            if piece == _FOLDERS:
                if previous != _FOLDERS:  # twice says the same
                    self._optional |= here
                    self._deep_stars |= here << 1
                    self._size += 1
                    self._enter("/")
            elif piece == _BELOW:
                self._enter("/")
                self._deep_stars |= 1 << self._size
            elif piece.startswith("*"):
                self._stars |= here
            else:
                self._enter(piece)
            previous = piece
        self._last |= 1 << self._size
        self._size += 1

    def _enter(self, piece: str) -> None:
        """Add the place behind one character."""
        if piece == "[]":  # an empty class is the two characters
            self._enter("[")
            piece = "]"
        self._size += 1
        place = 1 << self._size
        if piece == _NAME_CHAR:
            self._name_chars |= place
        elif piece.startswith("[") and len(piece) > 2:
            self._classes.append((_CharClass(piece[1:-1]), place))
        else:
            char = piece[-1]  # behind the backslash, if there is one
            self._literals[char] = self._literals.get(char, 0) | place


class _OneStar(NamedTuple):
    """What most globs are: a text with one star in it, or none."""

    before: str
    after: str
    has_star: bool

    def matches(self, path: str) -> bool:
        if not self.has_star:
            return path == self.before
        end = len(path) - len(self.after)
        return (
            end >= len(self.before)
            and path.startswith(self.before)
            and path.endswith(self.after)
            and "/" not in path[len(self.before) : end]
        )


def path_glob(text: str) -> Glob:
    """Read a glob for relative paths: without a slash it means the name in any folder. Raises GlobError."""
    text = text.removeprefix("./")
    return Glob(text.removeprefix("/"), is_name="/" not in text)


def _one_star(text: str) -> _OneStar | None:
    before, star, after = text.partition("*")
    return None if _SPECIAL.search(before + after) else _OneStar(before, after, bool(star))


def _alternatives(text: str) -> list[list[str]]:
    """Return the pieces of a glob, once for each choice among its braces."""
    choices: list[list[list[str]]] = []
    count = 1
    for piece in _PIECE.findall(text):
        if piece.startswith("{") and len(piece) > 1:
            choices.append([_PIECE.findall(part) for part in piece[1:-1].split(",")])
            count *= len(choices[-1])
        else:
            choices.append([[piece]])
    if count * len(text) > MAX_GLOB_PIECES and count > 1:
        raise GlobError(f"its braces make {count:,} alternatives of up to {len(text)} characters")
    return [[piece for part in choice for piece in part] for choice in product(*choices)]
