"""Match paths against globs in a time that never grows exponentially.

Globs come from models and from the .gitignore of any repository. Translated to a regular expression, a glob
of 16 stars backtracks practically forever on a name of 200 letters. Here a glob is a nondeterministic
automaton: its active states are the bits of one integer, and each character of the path yields the next set
of states. Standard library only: `walk.py` runs without the installed packages.
"""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

MAX_GLOB_CHARS = 1_024
MAX_GLOB_PIECES = 2_048
_MAX_CACHED = 20_000  # transitions between sets of states
_PIECE = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\{[^{}]*,[^{}]*\}|\\.|.", re.DOTALL)
_SPECIAL = re.compile(r"[*?\[{\\]")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_FOLDERS, _BELOW, _NAME_CHAR = "**/", "/**", "?"


class GlobError(ValueError):
    """The text is not a valid glob, or the glob is too long; the message says why."""


class _CharClass:
    """The characters between two brackets. Raises GlobError."""

    def __init__(self, text: str) -> None:
        self._is_negated = text[0] in "!^"
        self._ranges = _RANGE.findall(text[self._is_negated :])
        for first, last, _ in self._ranges:
            if first > last:
                raise GlobError(f"{first}-{last} is not a range")

    def has(self, char: str) -> bool:
        """Return whether the class contains a character."""
        is_listed = any(
            char == single or (first and first <= char <= last) for first, last, single in self._ranges
        )
        return is_listed != self._is_negated


class _StateSet(dict[str, "_StateSet"]):
    """A set of active states, and a cache of the set that each next character leads to."""

    def __init__(self, glob: Glob, states: int) -> None:
        self.glob = glob
        self.states = states

    def __missing__(self, char: str) -> _StateSet:
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
        self._simple = _parse_one_star(text)
        self._size = 0
        # Bitmasks of states: the first and the last state of each alternative; the states that `*` and `**`
        # keep active; those at which a `**/` may be skipped; those after a `?`, a character and a class.
        self._first = self._last = 0
        self._stars = self._deep_stars = self._optional = 0
        self._name_chars = 0
        self._literals: dict[str, int] = {}
        self._classes: list[tuple[_CharClass, int]] = []
        for pieces in () if self._simple else _expand_braces(text):
            self._add_alternative(pieces)
        self._state_sets: dict[int, _StateSet] = {}
        self._cached_count = 0
        self._start = self._state_set_for(self._first)

    def matches(self, path: str) -> bool:
        """Return whether the glob matches the whole path."""
        if self._is_name:
            path = path.rpartition("/")[2]
        if self._simple is not None:
            return self._simple.matches(path)
        state_set = self._start
        for char in path:
            state_set = state_set[char]
        return state_set.states & self._last != 0

    def advance(self, state_set: _StateSet, char: str) -> _StateSet:
        """Return the set that a character leads to, and cache it for the next path."""
        entered = self._literals.get(char, 0)
        stays = self._deep_stars
        if char != "/":
            entered |= self._name_chars
            stays |= self._stars
            for chars, state in self._classes:
                if chars.has(char):
                    entered |= state
        target = self._state_set_for(state_set.states << 1 & entered | state_set.states & stays)
        self._cached_count += 1
        if self._cached_count > _MAX_CACHED:  # the cache only saves time
            self._cached_count = 0
            for cached in self._state_sets.values():
                cached.clear()
            self._state_sets = {}
        else:
            state_set[char] = target
        return target

    def _state_set_for(self, states: int) -> _StateSet:
        """Return the set of these states and of those that are reached by skipping `**/`."""
        while (skipping := states & self._optional & ~(states >> 2)) != 0:
            states |= skipping << 1 | skipping << 2
        return self._state_sets.setdefault(states, _StateSet(self, states))

    def _add_alternative(self, pieces: list[str]) -> None:
        """Add the states of one alternative after those of the others."""
        self._first |= 1 << self._size
        previous = ""
        for piece in pieces:
            current = 1 << self._size
            if piece == _FOLDERS:
                if previous != _FOLDERS:  # `**/**/` equals `**/`
                    self._optional |= current
                    self._deep_stars |= current << 1
                    self._size += 1
                    self._add_character("/")
            elif piece == _BELOW:
                self._add_character("/")
                self._deep_stars |= 1 << self._size
            elif piece.startswith("*"):
                self._stars |= current
            else:
                self._add_character(piece)
            previous = piece
        self._last |= 1 << self._size
        self._size += 1

    def _add_character(self, piece: str) -> None:
        """Add the state that is reached by one more character."""
        if piece == "[]":  # stands for the two characters themselves
            self._add_character("[")
            piece = "]"
        self._size += 1
        state = 1 << self._size
        if piece == _NAME_CHAR:
            self._name_chars |= state
        elif piece.startswith("[") and len(piece) > 2:
            self._classes.append((_CharClass(piece[1:-1]), state))
        else:
            char = piece[-1]  # without a backslash before it
            self._literals[char] = self._literals.get(char, 0) | state


class _OneStar(NamedTuple):
    """A glob without wildcards except at most one star, as most are."""

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


def parse_path_glob(text: str) -> Glob:
    """Parse a glob for relative paths. A glob without a slash matches the name in any folder. Raises
    GlobError."""
    text = text.removeprefix("./")
    return Glob(text.removeprefix("/"), is_name="/" not in text)


def _parse_one_star(text: str) -> _OneStar | None:
    before, star, after = text.partition("*")
    return None if _SPECIAL.search(before + after) else _OneStar(before, after, bool(star))


def _expand_braces(text: str) -> list[list[str]]:
    """Return the pieces of a glob, once for each combination of alternatives. Raises GlobError."""
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
