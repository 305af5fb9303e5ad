"""The history file of the chat's input, which the arrow keys go through."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from whet.terminal.pasted_text import Pastes


class _File(FileHistory):
    """The history file. If an entry can't be written, e.g. to a full disk, it is available in this chat
    only."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(path)
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        """Yield the entries, the latest first."""
        return map(self._pastes.from_tags, super().load_history_strings())

    def store_string(self, string: str) -> None:
        """Append one entry. Errors are ignored."""
        with contextlib.suppress(OSError):
            super().store_string(self._pastes.to_entry(string))


def open_history(path: Path, pastes: Pastes) -> History:
    """Open the history file, readable by its owner only; use memory if it can't be written. A later chat
    gets the pasted texts of an entry as pastes of its own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return _File(path, pastes)
