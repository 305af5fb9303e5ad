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

import msgspec

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
_MAX_TEXT_BYTES = 400_000


class HookFile(msgspec.Struct, frozen=True):
    """A file that a hook runs, as it was read once: its path in the workspace, what stands for its content in
    a hash, and its text, or None if it is too large to show or not text."""

    name: str
    seal: bytes
    size_bytes: int = 0
    text: str | None = None


def read_files(workspace: Path, commands: list[str]) -> list[HookFile]:
    """Read every file that the commands run. After 200 MB, files count by size and times."""
    files: list[HookFile] = []
    left_bytes, left_text_bytes = _MAX_HASHED_BYTES, _MAX_TEXT_BYTES
    for path in sorted(find_files(workspace, commands)):
        name, text = str(path.relative_to(workspace)), None
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                left_bytes -= state.st_size
                if left_bytes < 0:
                    seal = f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}".encode()
                elif state.st_size > left_text_bytes:
                    seal = hashlib.file_digest(file, "sha256").digest()
                else:
                    data = file.read()
                    left_text_bytes -= len(data)
                    seal, text = hashlib.sha256(data).digest(), _decode(data)
        except OSError:
            files.append(HookFile(name, b"unreadable"))
        else:
            files.append(HookFile(name, seal, state.st_size, text))
    return files


def hash_files(files: list[HookFile]) -> str:
    """Return a hash of files by name and content."""
    seal = hashlib.sha256()
    for file in files:
        seal.update(b"\0" + file.name.encode("utf-8", "surrogateescape") + b"\0" + file.seal)
    return seal.hexdigest()


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


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
        for form in (word,) if is_glob(word) else forms:
            path = os.path.normpath(os.path.join(base, form))  # as text: a `Path` takes ten times as long
            if path.startswith(inside):
                matches = _expand(path, globs) if is_glob(word) else (path,)
                yield from (Path(match) for match in matches if os.path.isfile(match))


def _expand(pattern: str, globs: GlobReader) -> list[str]:
    """Return the paths that match a pattern, or none if it leads through too many folders."""
    try:
        return sorted(globs.expand(pattern))[:_MAX_MATCHES]
    except GlobTooWide:
        return []


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_SCANNED_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
