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
_MAGIC = re.compile(r"[*?\[]")


class GlobTooWide(Exception):
    """Raised if a glob leads through more folder entries than are read, or matches too many files."""


def is_glob(word: str) -> bool:
    """Return whether a shell would replace a word by the files that match it."""
    return _MAGIC.search(word) is not None


class GlobReader:
    """Expands globs. There is one limit for the folder entries that all of them read, and one for matches."""

    def __init__(self) -> None:
        self._entries_left = _MAX_ENTRIES
        self._matches_left = _MAX_MATCHES

    def expand(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match an absolute pattern. `**` matches folders at any depth, as some shells
        read it. Raises GlobTooWide."""
        if len(pattern) > _MAX_CHARS or "\0" in pattern:
            return
        for path in self._expand("/", [part for part in pattern.split("/") if part not in ("", ".")]):
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
            is_hidden = entry.name.startswith(".") and not part.startswith(".")
            if part == "**" and not is_hidden and entry.is_dir(follow_symlinks=False):
                yield from self._expand(entry.path, [part, *rest])
            elif part != "**" and not is_hidden and fnmatch.fnmatchcase(entry.name, part):
                yield from self._expand(entry.path, rest) if rest else (entry.path,)

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        listed: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not self._entries_left:
                    raise GlobTooWide(folder)
                self._entries_left -= 1
                listed.append(entry)
        return listed
