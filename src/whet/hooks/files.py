"""Find the workspace files that a repository's hook runs, as far as its text and theirs name them.

Followed are paths, globs, Python modules, and the files that a program reads by default (`make`: Makefile). A
script can name a file in ways that no reader follows, so a repository's hook also runs with less rights.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from glob import has_magic
from pathlib import Path

from whet.regular import open_regular

_WORD = re.compile(r"[^\s\"'`;|&()<>$=,:{}]+")
_PACKAGE_RUNNERS = frozenset(("npm", "npx", "pnpm", "yarn", "bun", "bunx", "node"))
_MIN_PROGRAM_CHARS = 4
_SCANNED_BYTES = 64_000
_MAX_WORDS = 2_000
_MAX_FILES = 500
_MAX_MATCHES = 200


def hash_files(workspace: Path, commands: list[str]) -> str:
    """Return a hash of every file that the commands run, by name and content."""
    seal = hashlib.sha256()
    for path in sorted(find_files(workspace, commands)):
        seal.update(b"\0" + str(path.relative_to(workspace)).encode("utf-8", "surrogateescape") + b"\0")
        try:
            with open_regular(path) as file:
                seal.update(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            seal.update(b"unreadable")
    return seal.hexdigest()


def find_files(workspace: Path, commands: list[str]) -> set[Path]:
    """Return the files of a workspace that the commands name, and those that these files name in turn."""
    paths: set[Path] = set()
    top = [entry for entry in sorted(os.listdir(workspace)) if (workspace / entry).is_file()]
    waiting = [(workspace, command) for command in commands]
    while waiting and len(paths) < _MAX_FILES:
        folder, text = waiting.pop()
        for word in sorted(set(_WORD.findall(text)))[:_MAX_WORDS]:
            for path in _named_files(workspace, folder, word, top):
                if path not in paths:
                    paths.add(path)
                    waiting.append((path.parent, _read(path)))
    return paths


def _named_files(workspace: Path, folder: Path, word: str, top: list[str]) -> Iterator[Path]:
    """Return the files below the workspace that a word may mean, in `folder` or at the top."""
    name = os.path.basename(word).casefold()
    if name in _PACKAGE_RUNNERS and "package.json" in top:
        yield workspace / "package.json"
    if len(name) >= _MIN_PROGRAM_CHARS and name.isidentifier():
        yield from (workspace / entry for entry in top if name in entry.casefold())
    module = word.replace(".", "/")
    forms = (word, f"{word}.py", f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py")
    for base in dict.fromkeys((workspace, folder)):
        for path in _expand(base, word) if has_magic(word) else (base / form for form in forms):
            full = Path(os.path.normpath(path))
            if full.is_relative_to(workspace) and os.path.isfile(full):
                yield full


def _expand(folder: Path, pattern: str) -> Iterator[Path]:
    if ".." in Path(pattern).parts:
        return  # outside of the workspace, where nothing is looked for
    try:
        for count, path in enumerate(folder.glob(pattern.removeprefix("./"))):
            if count >= _MAX_MATCHES:
                return
            yield path
    except (OSError, ValueError, NotImplementedError):  # an absolute pattern names nothing here
        return


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_SCANNED_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
