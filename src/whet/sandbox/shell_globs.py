"""Expand a shell's glob while a call is judged, reading a limited number of folder entries."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import re
from collections.abc import Iterator

_MAX_ENTRIES = 20_000
_MAX_MATCHES = 2_000
_MAX_CHARS = 4_096
_MAX_PART_CHARS = 300
_MAGIC = re.compile(r"[*?\[]")
_BRACKETS = re.compile(r"\[[!^]?\]?(?:\[[:.=][^\[\]]*\]|[^\]])*+\]")
_CHARACTER_CLASS = re.compile(r"\[[:.=]")


class GlobTooWide(Exception):
    """Raised if expanding a glob would read too many folder entries, or matches too many files."""


def is_glob(word: str) -> bool:
    """Return whether a shell would replace a word by the files that match it."""
    return _MAGIC.search(word) is not None


def may_lead_below(pattern: str, path: str) -> bool:
    """Return whether an absolute pattern may match a path or what lies below it, judged without the disk."""
    parts = _split(pattern)
    # Each `**` doubles the ways to match, and a second one in a row adds none.
    merged = [
        part for before, part in zip(["", *parts], parts, strict=False) if before != "**" or part != "**"
    ]
    return _may_match(merged, [name for name in path.split("/") if name])


class GlobReader:
    """Expands globs. There is one limit for the folder entries that all of them read, and one for matches."""

    def __init__(self) -> None:
        self._entries_left = _MAX_ENTRIES
        self._matches_left = _MAX_MATCHES

    def expand(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match an absolute pattern. `**` matches folders at any depth, as some shells
        read it. Raises GlobTooWide."""
        if "\0" in pattern:
            return
        if len(pattern) > _MAX_CHARS:
            raise GlobTooWide(pattern[:_MAX_PART_CHARS])
        for path in self._expand("/", _split(pattern)):
            if not self._matches_left:
                raise GlobTooWide(pattern)
            self._matches_left -= 1
            yield path

    def _expand(self, folder: str, parts: list[str]) -> Iterator[str]:
        plain = list(itertools.takewhile(lambda part: not is_glob(part), parts))
        folder = os.path.join(folder, *plain)
        if len(plain) == len(parts):
            if os.path.lexists(folder):
                yield folder
            return
        part, *rest = parts[len(plain) :]
        if part == "**":
            yield from self._expand(folder, rest or ["*"])
        for entry in self._list(folder):
            if not _fits(entry.name, part):
                continue
            if part != "**":
                yield from self._expand(entry.path, rest) if rest else (entry.path,)
            elif entry.is_dir(follow_symlinks=False):
                yield from self._expand(entry.path, [part, *rest])

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        read_entries: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not self._entries_left:
                    raise GlobTooWide(folder)
                self._entries_left -= 1
                read_entries.append(entry)
        return read_entries


def _split(pattern: str) -> list[str]:
    """Return the parts of a pattern in the syntax of `fnmatch`. They match at least what the shell's
    match: brackets with a class, as in `[[:alpha:]]`, any character, and a very long part any name."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return [
        "*" if len(part) > _MAX_PART_CHARS and is_glob(part) else _BRACKETS.sub(_translate_brackets, part)
        for part in parts
    ]


def _translate_brackets(match: re.Match[str]) -> str:
    if _CHARACTER_CLASS.search(match[0], 1):
        return "?"
    return f"[!{match[0][2:]}" if match[0].startswith("[^") else match[0]


def _fits(name: str, part: str) -> bool:
    """Return whether a name matches one part of a pattern. `*` matches no hidden name."""
    is_hidden = name.startswith(".") and not part.startswith(".")
    return not is_hidden and fnmatch.fnmatchcase(name, part)


def _may_match(parts: list[str], names: list[str]) -> bool:
    """Return whether the parts match all names, or only the first of them: a file below a match counts."""
    if not parts or not names:
        return not names
    if parts[0] == "**" and _fits(names[0], "*") and _may_match(parts, names[1:]):
        return True
    if parts[0] == "**":
        return _may_match(parts[1:] or ["*"], names)
    return _fits(names[0], parts[0]) and _may_match(parts[1:], names[1:])
