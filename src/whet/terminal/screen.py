"""The chat's interface to a terminal, and its implementation for dumb terminals, `LineScreen`.

`terminal/terminal.py` has the other implementation.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal as signals
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from whet.contract.protocols import Person
from whet.contract.texts import parse_typed_number
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.person import LinePerson, drop_typed_ahead, raise_interrupt
from whet.terminal.signs import Fragment, Marks
from whet.typed_answer import AnswerOption, read_line


class PromptSignal(Enum):
    """Inputs at the prompt other than text. RESTED means that a turn has ended for which inputs waited."""

    INTERRUPT = auto()
    END = auto()
    ESCAPE = auto()
    MODE = auto()
    UNFOLD = auto()
    BACKGROUND = auto()
    IMAGE = auto()
    EDITOR = auto()
    PLAN = auto()
    RESTED = auto()


@dataclass(frozen=True, slots=True)
class Typed:
    """A sent line: `line` as in the input, `text` with placeholders of pastes expanded, `marked` also with
    tags around the pasted text. `is_pasted`: it begins with a pasted text."""

    line: str
    text: str
    marked: str
    is_pasted: bool = False

    @property
    def sign(self) -> str:
        """The sign that makes this a shell command (`!`) or a note (`#`), or an empty string.

        Only a single line that was typed begins with one: a pasted script starts nothing. A note has a blank
        after its sign, as `#42` is a part of a message.
        """
        if self.is_pasted or "\n" in self.line:
            return ""
        is_note = self.line == "#" or self.line.startswith("# ")
        return "#" if is_note else "!" if self.line.startswith("!") else ""


T = TypeVar("T")
LiveLines = Callable[[int, int], list[list[Fragment]]]
StatusLine = Callable[[int], str]


class Screen(Protocol):
    """The chat's input and output. `stop_turn` cancels the running turn; the chat sets it."""

    person: Person
    stop_turn: Callable[[], object]

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Take over the terminal.

        `live` returns the lines above the input for a width and a height. `status` returns the line below it,
        which may be empty.
        """
        ...

    def write(self, text: str) -> None:
        """Write finished text above the input line. It ends with a newline."""
        ...

    def echo(self, text: str) -> None:
        """Show the sent line above the input line, unless the terminal has already shown it."""
        ...

    async def page(self, text: str) -> None:
        """Show a text of any length: in a pager if it is longer than the screen."""
        ...

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Release the terminal to another program while `function` runs on a thread."""
        ...

    def refresh(self) -> None:
        """Schedule a redraw of the live area."""
        ...

    def width(self) -> int:
        """Return the terminal's current width in columns."""
        ...

    def is_quiet(self) -> bool:
        """Return whether text can be written above the input now without disturbing the person's typing."""
        ...

    async def read(self) -> Typed | PromptSignal:
        """Wait for the person's next input."""
        ...

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Let the person pick one of `choices` (line, preview), and return its index, or None."""
        ...

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Ask the person to decide for one of `choices` (line, preview), and return its index, or the words
        that they typed instead. Empty words are a no."""
        ...

    def put_in(self, text: str, *, is_sent: bool = False) -> None:
        """Insert text into the input line at the cursor. With `is_sent`, the text was sent before, and is
        inserted before the present text."""
        ...

    async def edit_input(self) -> None:
        """Let the person edit the input line in their editor. Raises ConfigError if it can't be run."""
        ...

    def wake(self, signal: PromptSignal) -> None:
        """Make `read` return `signal` now, as if the person had caused it."""
        ...

    async def aclose(self) -> None:
        """Restore the terminal."""
        ...


def picked_choice(line: str, choices: Sequence[tuple[str, str]]) -> int | str:
    """Return the index of the choice whose name or number a line is, or else the line."""
    options = [AnswerOption(label.lower(), str(number)) for number, (label, _) in enumerate(choices, 1)]
    names = [option.name for option in options]
    typed = read_line(line, options)
    return names.index(typed.option) if typed.option in names else line.strip()


class LineScreen:
    """A screen that only writes text and reads lines. It reads only while `idle` is set."""

    def __init__(self, marks: Marks, idle: asyncio.Event, theme: str) -> None:
        self.stop_turn: Callable[[], object] = raise_interrupt
        self.person: Person = LinePerson(lambda: self.stop_turn(), theme)
        self._marks = marks
        self._idle = idle
        self._signals: asyncio.Queue[PromptSignal] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Handle Ctrl-C. There is no live area and no status line."""
        self._loop.add_signal_handler(signals.SIGINT, self._signals.put_nowait, PromptSignal.INTERRUPT)

    def write(self, text: str) -> None:
        """Write `text`."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def echo(self, text: str) -> None:
        """Do nothing: the terminal itself shows typed text."""

    async def page(self, text: str) -> None:
        """Write `text`."""
        self.write(text)

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Run `function` on a thread."""
        return await asyncio.to_thread(function)

    def refresh(self) -> None:
        """Do nothing: there is no live area."""

    def width(self) -> int:
        """Return the terminal's current width in columns."""
        return shutil.get_terminal_size().columns

    def is_quiet(self) -> bool:
        """Return False: typed text can't be seen here before it is sent."""
        return False

    async def read(self) -> Typed | PromptSignal:
        """Prompt, and wait for a line or Ctrl-C. A trailing backslash continues on the next line."""
        while not self._idle.is_set():
            if signal := await self._first_of(self._idle.wait()):
                return signal
        self.write(self._marks.prompt)
        lines: list[str] = []
        while True:
            if signal := await self._first_of(self._wait_for_input()):
                self.write("\n")
                return signal
            line = os.read(sys.stdin.fileno(), 65_536).decode("utf-8", "replace")
            if not line:
                return PromptSignal.END
            text = line.rstrip("\r\n")
            if text.endswith("\\"):
                lines.append(text[:-1])
                continue
            entry = "\n".join([*lines, text]).strip()
            return Typed(entry, entry, entry)

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Show a numbered list and read a number. Any other input picks none."""
        number = parse_typed_number((await self._ask(title, choices)).strip()) or 0
        return number - 1 if 1 <= number <= len(choices) else None

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Show a numbered list and read a number or words."""
        drop_typed_ahead()
        rows = [(f"{line}: {preview}", "") for line, preview in choices]
        return picked_choice(await self._ask(title, rows), choices)

    async def _ask(self, title: str, choices: Sequence[tuple[str, str]]) -> str:
        rows = [title, *(f"{number:>3}  {line}" for number, (line, _) in enumerate(choices, 1))]
        self.write("\n".join([*rows, "A number picks one, Enter none: "]))
        if await self._first_of(self._wait_for_input()):
            self.write("\n")
            return ""
        return os.read(sys.stdin.fileno(), 65_536).decode("utf-8", "replace")

    def put_in(self, text: str, *, is_sent: bool = False) -> None:
        """Print the text for the person to type: this terminal's input can't be filled."""
        self.write(f"not sent: {fold_pastes(text)}\n" if is_sent else f"{text}\n")

    async def edit_input(self) -> None:
        """Do nothing: no key of this terminal opens an editor."""

    def wake(self, signal: PromptSignal) -> None:
        """Make `read` return `signal` now."""
        self._signals.put_nowait(signal)

    async def aclose(self) -> None:
        """Restore Python's handling of Ctrl-C."""
        self._loop.remove_signal_handler(signals.SIGINT)

    async def _first_of(self, other: Coroutine[object, object, object]) -> PromptSignal | None:
        """Wait for a signal or for `other`. Returns the signal, or None if `other` came first."""
        other_task = asyncio.ensure_future(other)
        signalled = asyncio.ensure_future(self._signals.get())
        try:
            await asyncio.wait({other_task, signalled}, return_when=asyncio.FIRST_COMPLETED)
            return signalled.result() if signalled.done() else None
        finally:
            other_task.cancel()
            signalled.cancel()

    async def _wait_for_input(self) -> None:
        ready = asyncio.Event()
        fd = sys.stdin.fileno()
        self._loop.add_reader(fd, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(fd)
