"""The parts of the input line: completion, pasted text, history, keys.

It uses prompt_toolkit's small interfaces, and knows nothing about turns or sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from whet.terminal.input_filter import NEW_LINE, NEW_LINE_MARK, PASTE_BEGINS, PASTE_ENDS, SequenceFilter
from whet.tools.walk import files

_AT_WORD = re.compile(r"(?:^|\s)@([^\s@]*)$")
_MAX, _FOUND, _FEWEST_LETTERS = 60, 12, 2
_BURST_CHARS = 400
_MAX_FILES = 50_000
_FRESH_S = 15.0


class InputCompleter(Completer):
    """Completes `/command` at the start of the input and `@path` anywhere."""

    def __init__(self, commands: Callable[[], Sequence[tuple[str, str]]], folder: Callable[[], Path]) -> None:
        self._commands = commands
        self._folder = folder
        self.finder: FileFinder = FileFinder()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        if before.startswith("/") and not before.startswith("//") and " " not in before:
            for name, description in self._commands():
                if f"/{name}".startswith(before):
                    yield Completion(f"/{name}", start_position=-len(before), display_meta=description)
        elif match := _AT_WORD.search(before):
            self.finder.look(self._folder())
            completions = list(self._paths(match[1]))
            yield from completions
            listed = {
                match[1].rpartition("/")[0] + "/" * ("/" in match[1]) + completion.text
                for completion in completions
            }
            if len(match[1]) >= _FEWEST_LETTERS and len(completions) < _MAX:
                for path in self.finder.find(match[1], _FOUND):
                    if path not in listed:
                        yield Completion(path, start_position=-len(match[1]))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the same completions. The first time, wait until the list of files has been read."""
        if _AT_WORD.search(document.text_before_cursor) and not self.finder.has_read(self._folder()):
            self.finder.look(self._folder())
            await asyncio.to_thread(self.finder.wait)
        for completion in self.get_completions(document, complete_event):
            yield completion

    def _paths(self, typed: str) -> Iterable[Completion]:
        parent, _, prefix = typed.rpartition("/")
        folder = self._folder() / (parent + "/" if parent or typed.startswith("/") else "")
        try:
            with os.scandir(folder.expanduser()) as entries:
                names = sorted((entry.name, entry.is_dir()) for entry in entries)
        except OSError:
            return
        count = 0
        for name, is_folder in names:
            if not name.startswith(prefix) or (name.startswith(".") and not prefix):
                continue
            yield Completion(name + "/" * is_folder, start_position=-len(prefix))
            count += 1
            if count == _MAX:
                return


class PasteParser(Vt100Parser):
    """prompt_toolkit's key parser, without the terminal's own sequences, and with linear instead of quadratic
    time in a paste's length."""

    def __init__(self, feed_key: Callable[[KeyPress], None]) -> None:
        super().__init__(feed_key)
        self._held: list[str] | None = None
        self._edge = ""
        self._burst: list[str] = []
        self._sequences = SequenceFilter()
        self._has_escaped = False

    def feed(self, data: str) -> None:
        """Parse input that was read. A paste becomes one key press when its end mark arrives.

        Input without marks that arrives faster than a person types also becomes one paste, at the next
        `flush`.
        """
        sequences = self._sequences
        is_plain = "\x1b" not in data and not (sequences.pending or sequences.in_string)
        if self._held is None and is_plain and (self._burst or len(data) >= _BURST_CHARS):
            self._burst.append(data)
            return
        self._end_burst()
        if self._held is None:
            self._separate_escape(data)
            data, sequences.pending = sequences.pending + data, ""
            before, mark, data = data.partition(PASTE_BEGINS)
            self._press(sequences.feed(before))
            if not mark:
                return
            sequences.in_string, sequences.pending = False, ""
            self._held, self._edge = [], ""
        self._held.append(data)
        joined = self._edge + data
        self._edge = joined[-len(PASTE_ENDS) :]
        if PASTE_ENDS in joined:
            text, _, remainder = "".join(self._held).partition(PASTE_ENDS)
            self._held = None
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
            self.feed(remainder)

    def flush(self) -> None:
        """Handle a pause in the input: held input is complete."""
        self._end_burst()
        if held := self._sequences.flush():
            super().feed(held)
            self._has_escaped = held == "\x1b"
        super().flush()

    def _press(self, keys: str) -> None:
        first, *others = keys.replace("\x1b\n", NEW_LINE_MARK).split(NEW_LINE_MARK)
        super().feed(first)
        for part in others:
            self.feed_key_callback(KeyPress(NEW_LINE, ""))
            super().feed(part)

    def _separate_escape(self, data: str) -> None:
        """Keep an Enter that is read after an Esc a key of its own: both in one read are Alt-Enter."""
        if data.startswith(("\r", "\n")) and not self._sequences.in_string:
            if self._sequences.pending == "\x1b":
                super().feed(self._sequences.flush())
                super().flush()
                self._has_escaped = True
            if self._has_escaped:
                self.feed_key_callback(KeyPress(Keys.Ignore, ""))
        self._has_escaped = False

    def _end_burst(self) -> None:
        if self._burst:
            text, self._burst = "".join(self._burst), []
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))


def open_input() -> Input:
    """Open the terminal's input with a parser that handles long pastes."""
    terminal_input = create_input()
    if isinstance(terminal_input, Vt100Input):
        terminal_input.vt100_parser = PasteParser(terminal_input.vt100_parser.feed_key_callback)
    return terminal_input


class _File(FileHistory):
    """The history file. An entry that can't be written to it (a full disk) stays available in this chat."""

    def store_string(self, string: str) -> None:
        """Append one entry. Errors are ignored."""
        with contextlib.suppress(OSError):
            super().store_string(string)


def open_history(path: Path) -> History:
    """Open the history file, readable by its owner only; use memory if it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return _File(path)


class FileFinder:
    """The files of one folder, without hidden and .gitignored ones."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._folder: Path | None = None
        self._read_s = float("-inf")
        self._reading: threading.Thread | None = None

    def look(self, folder: Path) -> None:
        """Read the list again on a thread if it is old."""
        is_fresh = folder == self._folder and time.monotonic() - self._read_s < _FRESH_S
        if is_fresh or (self._reading is not None and self._reading.is_alive()):
            return
        self._reading = threading.Thread(target=self._read, args=(folder,), daemon=True)
        self._reading.start()

    def has_read(self, folder: Path) -> bool:
        """Whether the files of this folder have been read, even if not recently."""
        return folder == self._folder

    def wait(self) -> None:
        """Wait until the list has been read."""
        if self._reading is not None:
            self._reading.join()

    def find(self, letters: str, most: int) -> list[str]:
        """Return the paths that contain the letters in order, the best first: whole words and short paths
        win."""
        needle = letters.lower()
        scored = [(score, path) for path in self._paths if (score := rank(path.lower(), needle)) is not None]
        return [path for _, path in sorted(scored)[:most]]

    def _read(self, folder: Path) -> None:
        base = str(folder)
        self._paths = [os.path.relpath(path, base) for path in islice(files(base), _MAX_FILES)]
        self._folder, self._read_s = folder, time.monotonic()


def rank(path: str, letters: str) -> tuple[int, int, int] | None:
    """Return how well letters fit a path (lower is better), or None if they don't."""
    name = path.rpartition("/")[2]
    if letters in name:
        return (0, name.index(letters), len(path))
    if letters in path:
        return (1, path.index(letters), len(path))
    at, gaps = -1, 0
    for letter in letters:
        position = path.find(letter, at + 1)
        if position < 0:
            return None
        gaps += position - at - 1
        at = position
    return (2, gaps, len(path))
