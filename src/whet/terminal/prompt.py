"""The parts of the input line for prompt_toolkit: completion, and a parser for keys and pastes."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from heapq import nsmallest
from itertools import accumulate, islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

from whet.terminal.input_filter import (
    ESCAPE_MARK,
    NEW_LINE,
    NEW_LINE_MARK,
    PASTE_BEGINS,
    PASTE_ENDS,
    SequenceFilter,
)
from whet.terminal.key_protocol import KeyProtocol, ProtocolInput
from whet.tools.walk import files, is_ignored_in

_AT_WORD = re.compile(r"(?:^|\s)@([^\s@]*)$")
_MAX_COMPLETIONS, _MAX_FOUND, _MIN_LETTERS = 60, 12, 2
_BURST_CHARS = 400
_MAX_FILES, _FIRST_PATHS, _MAX_RANKED = 50_000, 1_000, 2_000
_FIRST_S = 0.05
_FRESH_S = 15.0
_CONTROL, _CONTROL_KEY = re.compile(r"[\x00-\x1a]"), re.compile(r"\x1b?[\x00-\x1a]")
KEY_PAUSE_S, PASTE_PAUSE_S = 0.1, 1.0
"""The pauses after which an incomplete key, and a paste without an end mark, count as complete."""


class InputCompleter(Completer):
    """Completes `/command` at the start of the input and `@path` anywhere."""

    def __init__(self, commands: Callable[[], Sequence[tuple[str, str]]], folder: Callable[[], Path]) -> None:
        self._commands = commands
        self.folder: Callable[[], Path] = folder
        self.finder: FileFinder = FileFinder()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        if before.startswith("/") and not before.startswith("//") and " " not in before:
            for name, description in self._commands():
                if f"/{name}".startswith(before):
                    yield Completion(f"/{name}", start_position=-len(before), display_meta=description)
        elif match := _AT_WORD.search(before):
            self.finder.update(self.folder())
            completions = list(self._list_folder(match[1]))
            yield from completions
            if len(completions) < _MAX_COMPLETIONS:
                yield from self._find(match[1], _complete_paths(match[1], completions))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the same completions: those of the typed folder at once, and those from the whole tree while
        it is read for the first time."""
        match = _AT_WORD.search(document.text_before_cursor)
        if match is None or document.text_before_cursor.startswith("/"):
            for completion in self.get_completions(document, complete_event):
                yield completion
            return
        self.finder.update(self.folder())
        completions = await asyncio.to_thread(lambda: list(self._list_folder(match[1])))
        for completion in completions:
            yield completion
        listed = _complete_paths(match[1], completions)
        is_complete = len(completions) >= _MAX_COMPLETIONS
        while not is_complete:
            is_complete = await asyncio.to_thread(self.finder.wait, _FIRST_S)
            for completion in await asyncio.to_thread(self._find, match[1], listed):
                listed.add(completion.text)
                yield completion
            is_complete = is_complete or len(listed) >= _MAX_COMPLETIONS

    def _find(self, typed: str, listed: set[str]) -> list[Completion]:
        """Return the best matches anywhere below the folder, without those in `listed`."""
        if len(typed) < _MIN_LETTERS:
            return []
        paths = self.finder.find(typed, _MAX_FOUND)
        return [Completion(path, start_position=-len(typed)) for path in paths if path not in listed]

    def _list_folder(self, typed: str) -> Iterable[Completion]:
        """Yield the entries of the typed folder that begin with the typed name."""
        parent, _, prefix = typed.rpartition("/")
        folder = self.folder() / (parent + "/" if parent or typed.startswith("/") else "")
        is_offered = _make_entry_filter(self.folder(), parent, typed)
        try:
            with os.scandir(folder.expanduser()) as entries:
                matching = (
                    (entry.name, entry.is_dir())
                    for entry in entries
                    if entry.name.startswith(prefix)
                    and (prefix or not entry.name.startswith("."))
                    and is_offered(entry)
                )
                names = nsmallest(_MAX_COMPLETIONS, matching)
        except OSError:
            return
        for name, is_folder in names:
            yield Completion(name + "/" * is_folder, start_position=-len(prefix))


def _make_entry_filter(base: Path, parent: str, typed: str) -> Callable[[os.DirEntry[str]], bool]:
    """Return a function that decides whether an entry of the typed folder is offered.

    In the workspace, entries that .gitignore excludes are not offered, nor links that lead out of it, which
    the tools would refuse. Outside, all entries are.
    """
    parts = [part for part in parent.split("/") if part not in ("", ".")]
    if typed.startswith(("/", "~")) or ".." in parts:
        return lambda entry: True
    root = os.path.realpath(base)

    def is_inside(path: str) -> bool:
        return os.path.realpath(path).startswith((root + "/").replace("//", "/"))

    if parts and not is_inside(os.path.join(root, *parts)):
        return lambda entry: False
    is_ignored = is_ignored_in(str(base), parts)
    return lambda entry: (
        not is_ignored(entry.name, entry.is_dir(follow_symlinks=False))
        and (not entry.is_symlink() or is_inside(entry.path))
    )


def has_completions(document: Document) -> bool:
    """Return whether the typed text can have completions, so that they are not searched for at each key."""
    before = document.text_before_cursor
    return before.startswith("/") or _AT_WORD.search(before) is not None


def _complete_paths(typed: str, completions: Sequence[Completion]) -> set[str]:
    """Return the paths of completions, which hold only the last part of the typed path."""
    return {typed.rpartition("/")[0] + "/" * ("/" in typed) + item.text for item in completions}


class PasteParser(Vt100Parser):
    """prompt_toolkit's key parser, which ignores the terminal's own sequences and takes linear instead of
    quadratic time in a paste's length.

    A paste without an end mark ends at the next `flush`, which the caller makes after `pause_s` without
    input. The rest of the paste may come later. So further input that contains control characters, such as
    line ends, is pasted as well, until the end mark or a single key, and never sends or runs anything.
    """

    def __init__(
        self, feed_key: Callable[[KeyPress], None], note_reply: Callable[[str], object] = lambda reply: None
    ) -> None:
        super().__init__(feed_key)
        self._held: list[str] | None = None
        self._edge = ""
        self._burst: list[str] = []
        self._sequences = SequenceFilter(note_reply)
        self._has_escaped = False
        self._is_cut = False

    @property
    def pause_s(self) -> float:
        """Seconds without input after which `flush` is due."""
        return KEY_PAUSE_S if self._held is None else PASTE_PAUSE_S

    def feed(self, data: str) -> None:
        """Parse input. A paste becomes one key press when its end mark arrives. Input without marks that
        arrives faster than a person types becomes one paste at the next `flush`."""
        sequences = self._sequences
        if self._is_cut:
            self._continue_paste(data)
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
        """Handle a pause in the input, after which incomplete keys and pastes count as complete."""
        self._end_burst()
        if self._held is not None:
            self._end_cut_paste(self._held)
            return
        if held := self._sequences.flush():
            super().feed(held)
            self._has_escaped = held == "\x1b"
        super().flush()

    def _end_cut_paste(self, held: list[str]) -> None:
        """End a paste without an end mark. If it ends with the beginning of a mark, that is kept for
        later."""
        text = "".join(held)
        size = next((size for size in range(len(PASTE_ENDS), 0, -1) if text.endswith(PASTE_ENDS[:size])), 0)
        text, self._sequences.pending = text[: len(text) - size], text[len(text) - size :]
        self._held, self._is_cut = None, True
        if text:
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))

    def _continue_paste(self, data: str) -> None:
        """Decide whether input after a cut paste belongs to it."""
        data = self._sequences.pending + data
        before, mark, _ = data.partition(PASTE_ENDS)
        if data.startswith(PASTE_BEGINS) or (mark and not before) or _CONTROL_KEY.fullmatch(data):
            self._is_cut = False
        elif mark or _CONTROL.search(data):
            self._is_cut = False
            self._held, self._edge = [self._sequences.pending], self._sequences.pending
            self._sequences.pending = ""

    def _press(self, keys: str) -> None:
        first, *others = keys.split(ESCAPE_MARK)
        self._press_lines(first)
        for part in others:
            super().feed("\x1b")
            super().flush()
            if part.startswith("\r"):
                self.feed_key_callback(KeyPress(Keys.Ignore, ""))
            self._has_escaped = not part
            self._press_lines(part)

    def _press_lines(self, keys: str) -> None:
        first, *others = keys.replace("\x1b\n", NEW_LINE_MARK).split(NEW_LINE_MARK)
        super().feed(first)
        for part in others:
            self.feed_key_callback(KeyPress(NEW_LINE, ""))
            super().feed(part)

    def _separate_escape(self, data: str) -> None:
        """Separate an Enter from an Esc that was read before it. Only if both come in one read are they
        Alt-Enter."""
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


class _PasteInput(ProtocolInput):
    """The terminal's input. After each read, `set_pause` gets the seconds after which it must be flushed."""

    def __init__(self, protocol: KeyProtocol, set_pause: Callable[[float], object]) -> None:
        super().__init__(protocol)
        self._set_pause = set_pause
        self._parser = PasteParser(self.vt100_parser.feed_key_callback, protocol.note_reply)
        self.vt100_parser = self._parser

    def read_keys(self) -> list[KeyPress]:
        """Return the keys that were read."""
        keys = super().read_keys()
        self._set_pause(self._parser.pause_s)
        return keys


def open_input(set_pause: Callable[[float], object], protocol: KeyProtocol) -> Input:
    """Open the terminal's input with `PasteParser` and the key protocol. After each read, `set_pause` gets
    the seconds after which the input must be flushed."""
    if not isinstance(create_input(), Vt100Input):
        return create_input()
    return _PasteInput(protocol, set_pause)


class PasteNames(Processor):
    """Draws the name of each long paste in place of its mark. `show` returns a text with the names."""

    def __init__(self, show: Callable[[str], str]) -> None:
        self._show = show

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Replace the marks of one line."""
        line = transformation_input.document.lines[transformation_input.lineno]
        if line.isascii() or self._show(line) == line:
            return Transformation(transformation_input.fragments)
        characters = explode_text_fragments(transformation_input.fragments)
        fragments: StyleAndTextTuples = []
        starts = [0]
        for style, text, *_ in characters:
            name = self._show(text)
            fragments.append((style if name == text else f"{style} class:dim", name))
            starts.append(starts[-1] + len(name))
        last = len(starts) - 1
        return Transformation(
            fragments,
            source_to_display=lambda at: starts[at] if at <= last else starts[-1] + at - last,
            display_to_source=lambda at: (
                bisect_right(starts, at) - 1 if at <= starts[-1] else last + at - starts[-1]
            ),
        )


class FileFinder:
    """Finds files below one folder, except hidden and .gitignored ones."""

    def __init__(self) -> None:
        self._index: PathIndex = PathIndex([])
        self._folder: Path | None = None
        self._read_s = float("-inf")
        self._reading: threading.Thread | None = None

    def update(self, folder: Path) -> None:
        """Start a thread that reads the list of files, if it is missing or old."""
        is_fresh = folder == self._folder and time.monotonic() - self._read_s < _FRESH_S
        if is_fresh or (self._reading is not None and self._reading.is_alive()):
            return
        self._reading = threading.Thread(target=self._read, args=(folder,), daemon=True)
        self._reading.start()

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait until the list has been read once, at most `limit_s`, and return whether it has."""
        if self._reading is not None and self._read_s == float("-inf"):
            self._reading.join(limit_s)
            return not self._reading.is_alive()
        return True

    def find(self, letters: str, limit: int) -> list[str]:
        """Return the paths that contain the letters in order, best matches first, as ranked by `rank`."""
        return self._index.find(letters.lower(), limit)

    def _read(self, folder: Path) -> None:
        base = str(folder)
        paths: list[str] = []
        if folder != self._folder:
            self._index, self._folder, self._read_s = PathIndex([]), folder, float("-inf")
        next_count = _FIRST_PATHS if self._read_s == float("-inf") else _MAX_FILES
        for path in islice(files(base), _MAX_FILES):
            paths.append(path[len(base) :].lstrip("/"))
            if len(paths) == next_count:
                self._index, next_count = PathIndex(paths), 2 * next_count
        self._index, self._read_s = PathIndex(paths), time.monotonic()


class PathIndex:
    """Paths that can be searched by letters, in bounded time even if many paths match."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = [path for path in paths if "\n" not in path]
        self._text = "\n".join(self._paths).lower()
        lines = self._text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)][:-1]

    def find(self, letters: str, limit: int) -> list[str]:
        """Return the paths that contain lower-case letters in order, best matches first."""
        scored = _score(self._find_containing(letters), letters)
        if not scored or (len(scored) < limit and len(self._paths) <= _MAX_RANKED):
            scored = _score(self._paths, letters)
        return [path for _, path in nsmallest(limit, scored)]

    def _find_containing(self, letters: str) -> Iterable[str]:
        """Yield paths that contain the letters as one string, at most `_MAX_RANKED`."""
        at = self._text.find(letters)
        for _ in range(_MAX_RANKED):
            if at < 0:
                return
            line = bisect_right(self._starts, at) - 1
            yield self._paths[line]
            after = self._starts[line + 1] if line + 1 < len(self._starts) else len(self._text)
            at = self._text.find(letters, after)


def _score(paths: Iterable[str], letters: str) -> list[tuple[tuple[int, int, int], str]]:
    scores = ((rank(path.lower(), letters), path) for path in paths)
    return [(score, path) for score, path in scores if score is not None]


def rank(path: str, letters: str) -> tuple[int, int, int] | None:
    """Return how well letters match a path (lower is better), or None if they don't.

    A match in the file's name is better than one in a folder, and that is better than scattered letters.
    """
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
