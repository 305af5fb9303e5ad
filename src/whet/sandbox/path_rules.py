"""The files that deny rules protect, for every reader and writer: tools, commands, sandboxes.

`read_file(secrets/*)` means the files, not the tool: nothing reads or changes them. `write_file(*.lock)`
means that nothing changes them. The names of all file tools are understood, and `read(...)` and
`write(...)` say the same. This module decides nothing about other calls.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from whet.contract.errors import ToolDenied
from whet.contract.forms import RULE
from whet.contract.tags import BUILT_IN
from whet.contract.wildcards import has_wildcard, matches, unescape

_MAX_ENTRIES = 1_000_000
_ANY_NAME = "\x01"
"""Stands for any file of a folder: only a pattern that matches all names matches it."""
_READ, _WRITE = "read", "write"
FileId = tuple[int, int]
"""Device and inode."""


class PathRule(msgspec.Struct, frozen=True):
    """One deny rule for files. `closes`: they may not be read either, only changed otherwise."""

    pattern: str
    closes: bool
    source: str

    def covers(self, path: str, workspace: str) -> bool:
        """Return whether the rule is about an absolute path, or about a folder that holds it."""
        names = self.matcher(workspace)
        while path.strip("/"):
            if names(path):
                return True
            path = os.path.dirname(path)
        return False

    def matcher(self, workspace: str) -> Callable[[str], bool]:
        """Return a test of whether the rule's pattern matches an absolute path itself."""
        pattern, top = _fold(_clean(self.pattern)), f"{_fold(workspace.rstrip('/'))}/"

        def names(path: str) -> bool:
            folded = _fold(path)
            return matches(pattern, folded) or (
                folded.startswith(top) and matches(pattern, folded.removeprefix(top))
            )

        return names

    def follow(self, workspace: str) -> PathRule:
        """Return the rule for the files to which links in its literal beginning lead, or the rule itself."""
        parts = Path(_clean(self.pattern)).parts
        count = next((at for at, part in enumerate(parts) if has_wildcard(part)), len(parts))
        if not count:
            return self
        beginning = os.path.join(os.path.realpath(workspace), *map(unescape, parts[:count]))
        target = os.path.realpath(beginning)
        if target == os.path.normpath(beginning):
            return self
        escaped = re.sub(r"[*?\\]", r"\\\g<0>", target)
        return PathRule(os.path.join(escaped, *parts[count:]), self.closes, self.source)

    def is_absolute(self) -> bool:
        """Return whether the rule names files by their absolute paths."""
        return _clean(self.pattern).startswith("/")

    def describe(self) -> str:
        """Return what the rule means, for a person."""
        verb = "reads or changes" if self.closes else "changes"
        return f"no tool and no command {verb} {self.pattern}"


class PathRules(msgspec.Struct, frozen=True):
    """The deny rules for files of one configuration."""

    rules: tuple[PathRule, ...] = ()

    def find(self, path: str | Path, workspace: str | Path, *, writes: bool) -> str:
        """Return the rule that forbids to read, or with `writes` to change, a path; or an empty string.

        A folder below the workspace may not be read if nothing in it may.
        Links are followed: the path as named and its target are both checked, of a file with several hard
        links each name below the workspace, and of a rule the target of the name that it begins with.
        """
        top = os.fspath(workspace)
        named = os.path.join(top, os.path.expanduser(path))
        full = os.path.normpath(named).replace("//", "/", 1)  # normpath keeps two slashes at the beginning
        if not self.rules or "\0" in full:
            return ""
        tops = {top, os.path.realpath(top)}
        paths = {full, os.path.realpath(full), os.path.realpath(named)}  # `link/..` is the target's parent
        for rule in self.rules:
            if not (writes or rule.closes):
                continue
            names = {rule, rule.follow(top) if writes else _follow(rule, top, int(time.monotonic()))}
            if any(name.covers(path, top) for name in names for path in paths for top in tops):
                return rule.source
        real, real_top = os.path.realpath(full), os.path.realpath(top)
        if real.startswith(f"{real_top}/") and os.path.isdir(real):
            return self.find(os.path.join(real, _ANY_NAME), top, writes=False)
        return self._find_linked(real, real_top, writes=writes)

    def _find_linked(self, path: str, top: str, *, writes: bool) -> str:
        """Return the rule that protects another name of a file, or an empty string."""
        file = _linked_id(path)
        if file is None:
            return ""
        for rule in self.rules:
            if writes and file in _find_linked_files(rule, top):
                return rule.source
            if rule.closes and file in _read_linked_files(rule, top, int(time.monotonic())):
                return rule.source
        return ""

    def list_files(
        self, workspace: Path, opened: Iterable[Path] = (), max_entries: int = _MAX_ENTRIES
    ) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Return the files and folders below a workspace that may not be read, and those that may not be
        changed, each by all of its names there and in `opened` paths. Raises ToolDenied if there are too many
        files to find those of a rule."""
        closed: dict[Path, None] = {}
        fixed: dict[Path, None] = {}
        for rule in self.rules:
            paths = closed if rule.closes else fixed
            paths.update(dict.fromkeys(_list_covered(rule, workspace, max_entries)))
        for paths in (closed, fixed):
            paths.update(dict.fromkeys(_list_other_names(paths, (workspace, *opened))))
        return tuple(closed), tuple(path for path in fixed if path not in closed)


NO_RULES = PathRules()


def _linked_id(path: str) -> FileId | None:
    """Return the id of a regular file with several hard links, or None for any other path."""
    try:
        state = os.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return (state.st_dev, state.st_ino) if stat.S_ISREG(state.st_mode) and state.st_nlink > 1 else None


def _linked_below(path: str) -> Iterator[tuple[str, FileId]]:
    """Yield the files with several hard links at and below a path."""
    if (file := _linked_id(path)) is not None:
        yield path, file
    for folder, _, names in os.walk(path):
        for name in names:
            if (file := _linked_id(f"{folder}/{name}")) is not None:
                yield f"{folder}/{name}", file


def _find_linked_files(rule: PathRule, workspace: str) -> frozenset[FileId]:
    """Return the files with several hard links that a rule covers."""
    covered = _list_covered(rule, Path(workspace), _MAX_ENTRIES)
    return frozenset(file for path in covered for _, file in _linked_below(str(path)))


@lru_cache(64)
def _follow(rule: PathRule, workspace: str, _second: int) -> PathRule:
    """Return the rule for its target as of this second: a search asks for each of the files that it reads."""
    return rule.follow(workspace)


@lru_cache(64)
def _read_linked_files(rule: PathRule, workspace: str, _second: int) -> frozenset[FileId]:
    """Return the same as of this second: a search asks for each of the files that it has read."""
    return _find_linked_files(rule, workspace)


def _list_other_names(paths: Iterable[Path], folders: Iterable[Path]) -> list[Path]:
    """Return the further names of the files at and below these paths, in these folders. Looks only until all
    names of the files are known."""
    names = {name: file for path in paths for name, file in _linked_below(str(path))}
    files = frozenset(names.values())
    others: dict[str, FileId] = {}
    for folder in folders:
        if _have_all_names(names | others):
            break
        others.update(
            (path, file) for path, file in _linked_below(str(folder)) if file in files and path not in names
        )
    return [Path(path) for path in others]


def _have_all_names(names: Mapping[str, FileId]) -> bool:
    """Return whether these are all hard links of the files that they name."""
    counts = Counter(names.values())
    return all(_count_links(path) <= counts[file] for path, file in names.items())


def _count_links(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_nlink
    except OSError:
        return 0


def read_path_rules(texts: Iterable[str]) -> PathRules:
    """Return the rules among the texts of deny rules that are about files. Others are ignored."""
    return PathRules(tuple(rule for text in texts if (rule := _read_rule(text)) is not None))


def _read_rule(text: str) -> PathRule | None:
    match = RULE.fullmatch(text)
    if match is None or not match["pattern"]:
        return None
    tags = [tags for name, tags in BUILT_IN.items() if matches(match["tool"], name) and "path" in tags]
    closes = match["tool"] == _READ or any("edits" not in names for names in tags)
    if not tags and match["tool"] not in (_READ, _WRITE):
        return None
    return PathRule(match["pattern"].strip(), closes, text)


def _clean(pattern: str) -> str:
    """Return a pattern without the parts that name no other file: `./` and a final slash."""
    pattern = os.path.expanduser(pattern).removeprefix("./")
    return pattern.rstrip("/") or "/"


def _fold(text: str) -> str:
    """Return a path as the system compares it: one form of accents, and no case on macOS and Windows."""
    folded = text if text.isascii() else unicodedata.normalize("NFC", text)
    return folded.casefold() if sys.platform in ("darwin", "win32") else folded


def _list_covered(rule: PathRule, workspace: Path, max_entries: int) -> Iterator[Path]:
    rule = rule.follow(str(workspace))
    pattern = _clean(rule.pattern)
    folder = pattern.removesuffix("/*").removesuffix("/**")
    if not has_wildcard(folder):
        path = Path(os.path.realpath(workspace / folder.replace("\\", "")))
        if path != workspace and path.exists():
            yield path
        return
    before = [part for part in Path(pattern).parts if not has_wildcard(part)]
    start = workspace
    for number, part in enumerate(Path(pattern).parts):
        if number >= len(before) or part != before[number]:
            break
        start = start / unescape(part)
    yield from _walk(rule, start, workspace, max_entries)


def _walk(rule: PathRule, start: Path, workspace: Path, max_entries: int) -> Iterator[Path]:
    """Yield the covered files and folders below `start`, but not those in a covered folder. Links are not
    followed."""
    names = rule.matcher(str(workspace))
    waiting, count = [str(start)], 0
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > max_entries:
                    raise ToolDenied(
                        f"the rule deny: {rule.source} can't be held in a sandbox here: "
                        f"{start} holds more than {max_entries:,} files",
                        hint="name a folder in the rule, as in read(config/*.pem)",
                    )
                is_folder = entry.is_dir(follow_symlinks=False)
                if not entry.is_symlink() and names(entry.path):
                    yield Path(entry.path)
                elif is_folder and entry.name != ".git":
                    waiting.append(entry.path)
