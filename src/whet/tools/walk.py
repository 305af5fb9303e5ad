"""Search files where ripgrep is not installed: the same rules, the same output, as a program of its own.

It runs in its own process so that a pattern that never ends can be killed; Python's matcher holds the
interpreter's lock. Hidden, ignored (.gitignore) and binary files are left out, symlinks are not followed.
Standard library only, since it starts without the installed packages. Rules: gitignore(5).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from whet.tools.globs import Glob, GlobError

FILE_BYTES = 100_000_000
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class IgnoreRule(NamedTuple):
    """One line of a .gitignore. Paths are relative to its folder."""

    glob: Glob
    is_kept: bool
    only_folders: bool


class Layer(NamedTuple):
    """The rules of one .gitignore, and the folder they apply to."""

    folder: str
    rules: list[IgnoreRule]


def files(target: str) -> Iterator[str]:
    """Yield the files below `target`, or `target` itself if it is a file. Ignored and hidden files are
    skipped."""
    if not os.path.isdir(target):
        yield target
        return
    yield from _below(target, _layers_above(os.path.abspath(target)))


def matches(path: str, pattern: re.Pattern[str]) -> list[tuple[int, bytes]]:
    """Return number and text of each matching line. Binary, huge and unreadable files have none."""
    try:
        if os.path.getsize(path) > FILE_BYTES:
            return []
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError:
        return []
    if encoding := _UTF16.get(data[:2]):
        data = data[2:].decode(encoding, "replace").encode()
    if b"\0" in data:
        return []
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    lines = text.removesuffix("\n").split("\n") if text else []
    numbered_lines = ((number, line) for number, line in enumerate(lines, 1) if pattern.search(line))
    return [(number, line.encode("utf-8", "surrogateescape")) for number, line in numbered_lines]


def main(arguments: list[str]) -> None:
    """Write `path NUL` for each file (mode files) or `path NUL number:line` for each match."""
    mode, target, source = arguments
    out = sys.stdout.buffer
    if mode == "files":
        for path in files(target):
            out.write(os.fsencode(path) + b"\0")
        return
    pattern = re.compile(re.escape(source) if mode == "plain" else source)
    for path in files(target):
        for number, line in matches(path, pattern):
            out.write(b"%b\0%d:%b\n" % (os.fsencode(path), number, line))


def _below(folder: str, layers: list[Layer]) -> Generator[str]:
    try:
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in sorted_entries}
    if ".git" in names:
        layers = []
    if ".gitignore" in names:
        layers = [*layers, Layer(os.path.abspath(folder), _rules(os.path.join(folder, ".gitignore")))]
    for entry in sorted_entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (is_folder or entry.is_file(follow_symlinks=False)):
            continue
        verdict = _verdict(layers, os.path.abspath(entry.path), is_folder)
        if verdict is False or (verdict is None and entry.name.startswith(".")):
            continue
        if is_folder:
            yield from _below(entry.path, layers)
        else:
            yield entry.path


def _layers_above(folder: str) -> list[Layer]:
    """Return the rules of the folders above, up to the repository's root."""
    layers: list[Layer] = []
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
        layers.insert(0, Layer(folder, _rules(os.path.join(folder, ".gitignore"))))
    return layers


def _rules(path: str) -> list[IgnoreRule]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.read().split("\n")
    except OSError:
        return []
    return [rule for rule in map(_rule, lines) if rule is not None]


def _rule(line: str) -> IgnoreRule | None:
    line = line.removesuffix("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    is_kept = line.startswith("!")
    line = line[1:] if is_kept else line
    only_folders = line.endswith("/")
    line = line.removesuffix("/")
    try:
        glob = Glob(line.removeprefix("/"), is_name="/" not in line)
    except GlobError:
        return None
    return IgnoreRule(glob, is_kept, only_folders)


def _verdict(layers: Iterable[Layer], path: str, is_folder: bool) -> bool | None:
    """Return whether the last matching rule keeps the path (True) or drops it (False), or None without a
    match."""
    for layer in reversed(list(layers)):
        inside = os.path.relpath(path, layer.folder)
        for rule in reversed(layer.rules):
            if (is_folder or not rule.only_folders) and rule.glob.matches(inside):
                return rule.is_kept
    return None
