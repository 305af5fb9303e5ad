"""The demo's output: headings, prose that fits the terminal, pauses, and the chat's own view of a turn."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from whet.contract.events import Event, TextDelta, ToolFinished
from whet.terminal import wording
from whet.terminal.live import Surface, TerminalTurnView
from whet.terminal.output import wrap_text as prose
from whet.terminal.render import Painter
from whet.terminal.signs import Marks
from whet.terminal.wrapping import wrap_lines

Speed = Literal["fast", "normal", "slow"]
_FACTOR: dict[Speed, float] = {"fast": 0.0, "normal": 1.0, "slow": 2.0}
_READ_S_PER_WORD = 0.11
_EVENT_S = 0.35
_DIFF = {"+": "green", "-": "red", "@": "cyan"}
_MAX_COLUMNS = 88


@dataclass(slots=True)
class DemoStage:
    """The output of the demo. A `silent` stage shows nothing and never waits."""

    speed: Speed
    silent: bool = False
    sleep: Callable[[float], None] = time.sleep
    _painter: Painter = field(default_factory=Painter)
    _marks: Marks = field(init=False)
    _plain: bool = field(init=False)

    def __post_init__(self) -> None:
        self._marks = Marks.for_encoding(sys.stdout.encoding)
        self._plain = self._marks != Marks()
        if not sys.stdout.isatty():
            self._painter = Painter({"TERM": "dumb"})

    def width(self) -> int:
        """Return the number of columns to fill: the terminal's, up to a readable maximum."""
        return max(20, min(shutil.get_terminal_size((80, 24)).columns, _MAX_COLUMNS))

    def title(self, text: str) -> None:
        """Show the heading of a part."""
        sign = "-" if self._plain else "─"
        line = wording.cut(f"{sign * 2} {text}", self.width())
        fill = sign * max(self.width() - wording.count_columns(line) - 1, 0)
        self.write("\n" + self._painter.line(f"{line} {fill}".rstrip(), "bold"))
        self.write("\n")

    def say(self, text: str) -> None:
        """Show a paragraph, and wait as long as it takes to read."""
        self.write("\n" + prose(text, width=self.width()) + "\n")
        self.wait(len(text.split()) * _READ_S_PER_WORD)

    def show_conclusion(self, text: str) -> None:
        """Show a conclusion, marked so that it differs from the agent's own text."""
        head = "= " if self._plain else "▸ "
        lines = prose(text, width=self.width() - 2).splitlines()
        body = "\n".join((head if number == 0 else "  ") + line for number, line in enumerate(lines))
        self.write("\n" + self._painter.line(body, "cyan") + "\n")
        self.wait(len(text.split()) * _READ_S_PER_WORD)

    def command(self, text: str) -> None:
        """Show a command line as a person would type it."""
        body = "\n  ".join(prose(text, width=self.width() - 2).splitlines())
        self.write("\n" + self._painter.line(f"$ {body}", "bold") + "\n")
        self.wait(1.0)

    def block(self, text: str, *, diff: bool = False) -> None:
        """Show lines as they are, indented; a diff in its colours."""
        rows = [row for line in text.splitlines() for row in wrap_lines(line, self.width() - 4)]
        for row in rows:
            style = _DIFF.get(row[:1], "") if diff else ""
            self.write("    " + self._painter.line(wording.printable(row), style) + "\n")
        self.wait(1.0)

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Show labels and values, below each other on a narrow terminal."""
        label = max(wording.count_columns(name) for name, _ in rows) + 2
        stacked = self.width() < label + 28
        for name, value in rows:
            if stacked:
                self.write(f"{name}\n{prose(value, indent=2, width=self.width())}\n")
            else:
                lines = prose(value, indent=label, width=self.width())
                self.write(name.ljust(label) + lines[label:] + "\n")
        self.wait(3.0)

    def view(self) -> TerminalTurnView:
        """Return the chat's view of a turn, drawing on this stage."""
        return TerminalTurnView(Surface(self.write, lambda: None, self.width), self._painter, self._marks)

    def after(self, event: Event, pace: float) -> None:
        """Wait as long as it takes to read an event."""
        if isinstance(event, TextDelta | ToolFinished):
            self.wait(_EVENT_S * pace)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` times the speed's factor. A silent stage does not wait."""
        if not self.silent and (factor := _FACTOR[self.speed]):
            sys.stdout.flush()
            self.sleep(seconds * factor)

    def write(self, text: str) -> None:
        """Write text unchanged, except for characters that the terminal can't show."""
        if not self.silent:
            sys.stdout.write(self._signs(text))
            sys.stdout.flush()

    def _signs(self, text: str) -> str:
        for sign, plain in (
            (("…", "..."), ("·", "|"), ("«", ">"), ("»", "<"), ("“", '"'), ("”", '"')) if self._plain else ()
        ):
            text = text.replace(sign, plain)
        return text
