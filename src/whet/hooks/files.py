"""Find the workspace files that a repository's hook runs, as far as its text and theirs name them.

Followed are paths, globs, Python modules, and the files that a program reads by default (`make`: Makefile). A
script can name a file in ways that no reader follows, so a repository's hook also runs with less rights.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from whet.regular import open_regular
from whet.sandbox.shell_globs import GlobReader, GlobTooWide, is_glob

_WORD = re.compile(r"[^\s\"'`;|&()<>$=,:{}]+")
_PACKAGE_RUNNERS = frozenset(("npm", "npx", "pnpm", "yarn", "bun", "bunx", "node"))
_MIN_PROGRAM_CHARS = 4
_SCANNED_BYTES = 64_000
_MAX_WORDS = 2_000
_MAX_LOOKUPS = 20_000
"""The words that are looked up for all files together; each takes about ten looks at the disk."""
_MAX_FILES = 500
_MAX_MATCHES = 200
_MAX_HASHED_BYTES = 200_000_000


def hash_files(workspace: Path, commands: list[str]) -> str:
    """Return a hash of every file that the commands run, by name and content. After 200 MB, files count by
    size and times."""
    seal, left_bytes = hashlib.sha256(), _MAX_HASHED_BYTES
    for path in sorted(find_files(workspace, commands)):
        seal.update(b"\0" + str(path.relative_to(workspace)).encode("utf-8", "surrogateescape") + b"\0")
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                left_bytes -= state.st_size
                if left_bytes >= 0:
                    seal.update(hashlib.file_digest(file, "sha256").digest())
                else:
                    seal.update(f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}".encode())
        except OSError:
            seal.update(b"unreadable")
    return seal.hexdigest()


def find_files(workspace: Path, commands: list[str]) -> set[Path]:
    """Return the files of a workspace that the commands name, and those that these files name in turn."""
    paths: set[Path] = set()
    looked_up: set[tuple[Path, str]] = set()
    globs = GlobReader()
    names = [name for name in sorted(os.listdir(workspace)) if (workspace / name).is_file()]
    top = {name: name.casefold() for name in names}
    waiting = [(workspace, command) for command in commands]
    while waiting and len(paths) < _MAX_FILES:
        folder, text = waiting.pop()
        for word in sorted(set(_WORD.findall(text)))[:_MAX_WORDS]:
            if (folder, word) in looked_up or len(looked_up) >= _MAX_LOOKUPS:
                continue
            looked_up.add((folder, word))
            for path in _named_files((workspace, folder), word, top, globs):
                if path not in paths:
                    paths.add(path)
                    waiting.append((path.parent, _read(path)))
    return paths


def _named_files(
    folders: tuple[Path, Path], word: str, top: dict[str, str], globs: GlobReader
) -> Iterator[Path]:
    """Yield the files below the workspace that a word may mean. `folders` are the workspace and the folder of
    the file that holds the word."""
    workspace = folders[0]
    name = os.path.basename(word).casefold()
    if name in _PACKAGE_RUNNERS and "package.json" in top:
        yield workspace / "package.json"
    if len(name) >= _MIN_PROGRAM_CHARS and name.isidentifier():
        yield from (workspace / entry for entry, folded in top.items() if name in folded)
    module = word.replace(".", "/")
    forms = (word, f"{word}.py", f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py")
    inside = f"{workspace}/"
    for base in dict.fromkeys(folders):
        for path in (
            _expand(base, word, globs) if is_glob(word) else (os.path.join(base, form) for form in forms)
        ):
            full = os.path.normpath(path)  # as text: a `Path` for each costs ten times as much
            if full.startswith(inside) and os.path.isfile(full):
                yield Path(full)


def _expand(folder: Path, pattern: str, globs: GlobReader) -> list[str]:
    """Return the files that match a pattern, or none if it leads through too many folders."""
    if os.path.isabs(pattern) or ".." in Path(pattern).parts:
        return []  # outside of the workspace, where nothing is looked for
    try:
        return sorted(globs.expand(f"{folder}/{pattern}"))[:_MAX_MATCHES]
    except GlobTooWide:
        return []


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_SCANNED_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
