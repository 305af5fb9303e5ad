"""What the chat needs of a terminal, and the plainest one: lines in, text out.

`LineScreen` serves dumb terminals; `cli/terminal.py` has the other screen. Neither knows about turns or
sessions.
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
from typing import Protocol

from whet.cli.live import Fragment, Marks
from whet.cli.person import LinePerson, drop_typed_ahead
from whet.contract.protocols import Person
from whet.contract.texts import typed_number
from whet.typed_answer import AnswerOption, read_line


class PromptSignal(Enum):
    """What a person does at the prompt that is no text; RESTED: a turn ended while commands waited for it."""

    INTERRUPT = auto()
    END = auto()
    ESCAPE = auto()
    MODE = auto()
    UNFOLD = auto()
    BACKGROUND = auto()
    IMAGE = auto()
    PLAN = auto()
    RESTED = auto()


@dataclass(frozen=True, slots=True)
class Typed:
    """A sent line: `shown` as it stood in the input, `text` with pasted parts put in, `marked` with these in
    tags."""

    shown: str
    text: str
    marked: str


LiveLines = Callable[[int, int], list[list[Fragment]]]
StatusLine = Callable[[int], str]


class Screen(Protocol):
    """Where the chat reads and writes."""

    person: Person

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Take the terminal; `live` gives the lines above the input for a width and a height, `status` the
        one below it, empty for none."""
        ...

    def write(self, text: str) -> None:
        """Put finished text above the input line; it ends with a newline."""
        ...

    def echo(self, text: str) -> None:
        """Leave what was typed above the input line, where the terminal has not done that itself."""
        ...

    def refresh(self) -> None:
        """Have the live area redrawn soon."""
        ...

    def width(self) -> int:
        """The columns of the terminal now."""
        ...

    def is_quiet(self) -> bool:
        """Whether text can be put above the input now without disturbing anybody's typing."""
        ...

    async def read(self) -> Typed | PromptSignal:
        """Wait for the next thing that the person does."""
        ...

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Have the person pick one of some (line, preview); None where they don't, or can't."""
        ...

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Have the person decide for one of some (line, preview), or return the words that they typed
        instead; empty words are a no."""
        ...

    def put_back(self, text: str) -> None:
        """Put text into the input line again."""
        ...

    def put_in(self, text: str) -> None:
        """Type text for the person, where the cursor stands."""
        ...

    def wake(self, signal: PromptSignal) -> None:
        """Have `read` give `signal` now, as if the person had done it."""
        ...

    async def aclose(self) -> None:
        """Give the terminal back as it was."""
        ...


def picked_choice(line: str, choices: Sequence[tuple[str, str]]) -> int | str:
    """Return the index of the choice that a whole line names or numbers exactly, or else the line."""
    options = [AnswerOption(label.lower(), str(number)) for number, (label, _) in enumerate(choices, 1)]
    names = [option.name for option in options]
    typed = read_line(line, options)
    return names.index(typed.option) if typed.option in names else line.strip()


class LineScreen:
    """A screen that only writes text and reads lines; nothing can be typed until `idle` is set."""

    def __init__(self, marks: Marks, idle: asyncio.Event) -> None:
        self.person: Person = LinePerson()
        self._marks = marks
        self._idle = idle
        self._signals: asyncio.Queue[PromptSignal] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Take over Ctrl-C; there is no live area and no status line."""
        self._loop.add_signal_handler(signals.SIGINT, self._signals.put_nowait, PromptSignal.INTERRUPT)

    def write(self, text: str) -> None:
        """Write `text`."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def echo(self, text: str) -> None:
        """Do nothing: the terminal shows what is typed."""

    def refresh(self) -> None:
        """Do nothing: there is no live area."""

    def width(self) -> int:
        """The columns of the terminal now."""
        return shutil.get_terminal_size().columns

    def is_quiet(self) -> bool:
        """Never: what is typed into this terminal can't be seen before it is sent."""
        return False

    async def read(self) -> Typed | PromptSignal:
        """Prompt and wait for a line or Ctrl-C; a trailing backslash goes on with the next line."""
        while not self._idle.is_set():
            if done := await self._first_of(self._idle.wait()):
                return done
        self.write(self._marks.prompt)
        lines: list[str] = []
        while True:
            if done := await self._first_of(self._readable()):
                self.write("\n")
                return done
            line = os.read(sys.stdin.fileno(), 65_536).decode("utf-8", "replace")
            if not line:
                return PromptSignal.END
            text = line.rstrip("\r\n")
            if text.endswith("\\"):
                lines.append(text[:-1])
                continue
            whole = "\n".join([*lines, text]).strip()
            return Typed(whole, whole, whole)

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Show the list with numbers, and read one; anything else picks none."""
        number = typed_number((await self._line_for(title, choices)).strip()) or 0
        return number - 1 if 1 <= number <= len(choices) else None

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Show the list with numbers, and read one; any other line is returned."""
        drop_typed_ahead()
        return picked_choice(await self._line_for(title, choices), choices)

    async def _line_for(self, title: str, choices: Sequence[tuple[str, str]]) -> str:
        rows = [title, *(f"{number:>3}  {line}" for number, (line, _) in enumerate(choices, 1))]
        self.write("\n".join([*rows, "A number picks one, Enter none: "]))
        if await self._first_of(self._readable()):
            self.write("\n")
            return ""
        return os.read(sys.stdin.fileno(), 65_536).decode("utf-8", "replace")

    def put_in(self, text: str) -> None:
        """Say what can be typed: nothing can be put into this terminal's input."""
        self.write(f"{text}\n")

    def put_back(self, text: str) -> None:
        """Say what was not sent: nothing can be put into this terminal's input."""
        self.write(f"not sent: {text}\n")

    def wake(self, signal: PromptSignal) -> None:
        """Have `read` give `signal` now."""
        self._signals.put_nowait(signal)

    async def aclose(self) -> None:
        """Leave Ctrl-C to Python again."""
        self._loop.remove_signal_handler(signals.SIGINT)

    async def _first_of(self, other: Coroutine[object, object, object]) -> PromptSignal | None:
        """Wait for a signal, which is given, or for `other` (None), whichever comes first."""
        waiting = asyncio.ensure_future(other)
        signalled = asyncio.ensure_future(self._signals.get())
        try:
            await asyncio.wait({waiting, signalled}, return_when=asyncio.FIRST_COMPLETED)
            return signalled.result() if signalled.done() else None
        finally:
            waiting.cancel()
            signalled.cancel()

    async def _readable(self) -> None:
        ready = asyncio.Event()
        fd = sys.stdin.fileno()
        self._loop.add_reader(fd, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(fd)
