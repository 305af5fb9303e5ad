"""Finds files of the workspace by a few letters of their path, in order and with gaps, as one types.

The list is read on a thread and kept for a while; until it is there nothing is found, and nobody waits.
"""

from __future__ import annotations

import os
import threading
import time
from itertools import islice
from pathlib import Path

from whet.tools.walk import files

_MOST_FILES = 50_000
_FRESH_S = 15.0


class FileFinder:
    """The files of one folder, .gitignored and hidden ones left out."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._folder: Path | None = None
        self._read_s = float("-inf")
        self._reading: threading.Thread | None = None

    def look(self, folder: Path) -> None:
        """Read the list again where it is old, on a thread."""
        is_fresh = folder == self._folder and time.monotonic() - self._read_s < _FRESH_S
        if is_fresh or (self._reading is not None and self._reading.is_alive()):
            return
        self._reading = threading.Thread(target=self._read, args=(folder,), daemon=True)
        self._reading.start()

    def has_read(self, folder: Path) -> bool:
        """Whether the files of this folder are known, if not of late."""
        return folder == self._folder

    def wait(self) -> None:
        """Wait until the list was read."""
        if self._reading is not None:
            self._reading.join()

    def find(self, letters: str, most: int) -> list[str]:
        """Give the paths that have the letters in order, the best first: whole words and short ones win."""
        wanted = letters.lower()
        scored = [(score, path) for path in self._paths if (score := rank(path.lower(), wanted)) is not None]
        return [path for _, path in sorted(scored)[:most]]

    def _read(self, folder: Path) -> None:
        base = str(folder)
        self._paths = [os.path.relpath(path, base) for path in islice(files(base), _MOST_FILES)]
        self._folder, self._read_s = folder, time.monotonic()


def rank(path: str, letters: str) -> tuple[int, int, int] | None:
    """Say how well letters fit a path, less is better; None where they don't."""
    name = path.rpartition("/")[2]
    if letters in name:
        return (0, name.index(letters), len(path))
    if letters in path:
        return (1, path.index(letters), len(path))
    at, gaps = -1, 0
    for letter in letters:
        found = path.find(letter, at + 1)
        if found < 0:
            return None
        gaps += found - at - 1
        at = found
    return (2, gaps, len(path))
