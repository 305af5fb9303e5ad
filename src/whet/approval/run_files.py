"""Find the workspace files that a command runs, as far as its text and theirs name them.

Followed are paths, globs, modules, and the files that a program reads by default (`make`: Makefile), in each
folder that a text names. A script can name a file in ways that no reader follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.late import late_pattern
from whet.regular import read_regular_text
from whet.sandbox.shell_globs import GlobReader, GlobTooWide, is_glob

_WORD = late_pattern(r"[^\s\0\"'`;|&()<>$=,:{}]+")
_PACKAGE_RUNNERS = frozenset(("npm", "npx", "pnpm", "yarn", "bun", "bunx", "node"))
_MIN_PROGRAM_CHARS = 4
_SCANNED_BYTES = 64_000
_MAX_WORDS = 2_000
_MAX_LOOKUPS = 20_000
"""How many words are looked up for all files together; each costs about ten accesses to the disk."""
_MAX_FILES, _MAX_FOLDERS = 500, 20
_MAX_MATCHES = 200


def find_run_files(workspace: Path, commands: Sequence[str], folder: Path | None = None) -> set[Path]:
    """Return the files of a workspace that the commands name, and those that these files name in turn. The
    commands run in `folder`, or in the workspace itself.

    Names in a text are looked up in the workspace, in the text's own folder, and in each folder that it or
    its callers name, because it may change into that folder or search it for programs and modules.
    """
    paths: set[Path] = set()
    looked_up: set[tuple[Path, str]] = set()
    reader = _NameReader(workspace)
    waiting: list[tuple[tuple[Path, ...], str]] = [
        (tuple(dict.fromkeys((folder or workspace, workspace))), command) for command in commands
    ]
    while waiting and len(paths) < _MAX_FILES:
        named_folders, text = waiting.pop()
        forms = (form for word in _WORD.findall(text) for form in _without_variable(word))
        words = list(dict.fromkeys(forms))[:_MAX_WORDS]
        folders = reader.add_named_folders(named_folders, words)
        for folder in folders:
            for word in words:
                if (folder, word) in looked_up or len(looked_up) >= _MAX_LOOKUPS:
                    continue
                looked_up.add((folder, word))
                for path in reader.find_named(folder, word):
                    if path not in paths:
                        paths.add(path)
                        waiting.append((tuple(dict.fromkeys((path.parent, *folders))), _read_start(path)))
    return paths


def _without_variable(word: str) -> tuple[str, ...]:
    """Return a word, and the word without the variable or substitution at its beginning."""
    return (word, word.partition("/")[2]) if "/" in word and not word.startswith(".") else (word,)


class _NameReader:
    """Finds the files below a workspace that the words of a text may mean."""

    def __init__(self, workspace: Path) -> None:
        self._inside = f"{workspace}/"
        self._globs = GlobReader()
        self._names: dict[str, list[str]] = {}

    def add_named_folders(self, folders: tuple[Path, ...], words: list[str]) -> tuple[Path, ...]:
        """Return the folders, and those below the workspace that the words name, relative to any folder
        before."""
        all_folders = dict.fromkeys(folders)
        for word in words:
            for folder in list(all_folders):
                path = os.path.normpath(os.path.join(folder, word))
                if len(all_folders) < _MAX_FOLDERS and path.startswith(self._inside) and os.path.isdir(path):
                    all_folders[Path(path)] = None
        return tuple(all_folders)

    def find_named(self, folder: Path, word: str) -> Iterator[Path]:
        """Yield the files that a word may mean in a folder."""
        name = os.path.basename(word).casefold()
        files = self._files_in(str(folder))
        if name in _PACKAGE_RUNNERS and "package.json" in files:
            yield folder / "package.json"
        if len(name) >= _MIN_PROGRAM_CHARS and name.isidentifier():
            yield from (folder / entry for entry in files if self._is_default(folder, entry.casefold(), name))
        module = word.replace(".", "/")
        forms = (word, f"{word}.py", f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py")
        for form in (word,) if is_glob(word) else forms:
            path = os.path.normpath(os.path.join(folder, form))  # as text: a `Path` takes ten times as long
            if path.startswith(self._inside):
                matches = _expand(path, self._globs) if is_glob(word) else (path,)
                yield from (Path(match) for match in matches if os.path.isfile(match))
        if "/" in word and not is_glob(word):
            yield from self._find_modules(os.path.normpath(os.path.join(folder, word)))

    def _is_default(self, folder: Path, entry: str, program: str) -> bool:
        """Return whether a program may read a file by default: one with a typical name, or in the workspace
        itself any whose name contains that of the program."""
        stem = entry.partition(".")[0]
        return program in entry if f"{folder}/" == self._inside else stem in (program, f"{program}file")

    def _find_modules(self, path: str) -> Iterator[Path]:
        """Yield the files that a module's path without an ending may mean: `./b` for `b.js`."""
        for folder, stem in (os.path.split(path), (path, "index")):
            if f"{folder}/".startswith(self._inside):
                files = self._files_in(folder)
                yield from (Path(folder, file) for file in files if file.startswith(f"{stem}."))

    def _files_in(self, folder: str) -> list[str]:
        if folder not in self._names:
            try:
                self._names[folder] = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
            except (OSError, ValueError):  # a surrogate or another character that no path has
                self._names[folder] = []
        return self._names[folder]


def _expand(pattern: str, globs: GlobReader) -> list[str]:
    """Return the paths that match a pattern, or an empty list if it leads through too many folders."""
    try:
        return sorted(globs.expand(pattern))[:_MAX_MATCHES]
    except GlobTooWide:
        return []


def _read_start(path: Path) -> str:
    try:
        return read_regular_text(path, _SCANNED_BYTES)
    except OSError:
        return ""
