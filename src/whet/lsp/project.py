"""List the files of a project that changed since the last call, and find those that mention a module."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from whet.beneath import open_beneath
from whet.tools.encoding import decode

_SETTINGS = (".toml", ".json", ".mod", ".sum", ".cfg")
_SKIPPED = frozenset(("node_modules", "venv", "target", "dist", "build", "__pycache__"))
_MAX_ENTRIES = 20_000
_MAX_SEARCHED = 400
_MAX_SEARCHED_CHARS = 20_000_000
MAX_FILE_BYTES = 1_000_000


class ChangeKind(IntEnum):
    """How a file on disk changed, with the numbers of the language server protocol."""

    CREATED = 1
    CHANGED = 2
    DELETED = 3


class ProjectFiles:
    """The source files of a language below `root`, and configuration files. Symlinks are ignored.

    `is_closed` returns whether a deny rule closes a path. The methods block: call one at a time, on a thread.
    """

    def __init__(self, root: Path, endings: Collection[str], is_closed: Callable[[Path], bool]) -> None:
        self._root = root
        self._endings = (*endings, *_SETTINGS)
        self._sources = tuple(endings)
        self._is_closed = is_closed
        self._states: dict[str, tuple[int, int]] | None = None

    def list_changes(self) -> dict[Path, ChangeKind]:
        """Return the files that changed since the last call. The first call returns none."""
        old, self._states = self._states, dict(self._scan())
        if old is None:
            return {}
        changes = {Path(name): ChangeKind.DELETED for name in old.keys() - self._states.keys()}
        for name, state in self._states.items():
            if old.get(name) != state:
                changes[Path(name)] = ChangeKind.CHANGED if name in old else ChangeKind.CREATED
        return changes

    def read(self, path: Path) -> str | None:
        """Return a file's text, or None if it is not text, too large, closed or outside the project."""
        if not path.is_relative_to(self._root) or self._is_closed(path):
            return None
        try:
            with open_beneath(self._root, path.relative_to(self._root)) as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        decoded = decode(data) if len(data) <= MAX_FILE_BYTES else None
        return None if decoded is None else decoded[0]

    def find_mentions(self, paths: Collection[Path], limit: int) -> list[Path]:
        """Return up to `limit` source files that mention the modules `paths`, the nearest first."""
        names = {
            path.parent.name if path.stem in ("__init__", "index", "mod") else path.stem for path in paths
        }
        word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
        folder, edited = str(next(iter(paths)).parent), set(map(str, paths))

        def distance(name: str) -> tuple[bool, int]:
            parent = os.path.dirname(name)
            return parent != folder, -len(os.path.commonpath((parent, folder)))

        others = [name for name in self._states or () if name.endswith(self._sources) and name not in edited]
        matches: list[Path] = []
        count_chars = 0
        for name in sorted(others, key=distance)[:_MAX_SEARCHED]:
            text = self.read(Path(name)) or ""
            count_chars += len(text)
            if word.search(text):
                matches.append(Path(name))
            if len(matches) == limit or count_chars > _MAX_SEARCHED_CHARS:
                break
        return matches

    def _scan(self) -> Iterator[tuple[str, tuple[int, int]]]:
        count, folders = 0, [str(self._root)]
        for folder in folders:
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if entry.name.endswith(self._endings):
                        with suppress(OSError):
                            state = entry.stat(follow_symlinks=False)
                            yield entry.path, (state.st_mtime_ns, state.st_size)
                    elif _may_hold_sources(entry):
                        folders.append(entry.path)
            if count > _MAX_ENTRIES:
                return


def _may_hold_sources(entry: os.DirEntry[str]) -> bool:
    is_skipped = entry.name.startswith(".") or entry.name in _SKIPPED
    return not is_skipped and entry.is_dir(follow_symlinks=False)
