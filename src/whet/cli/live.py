"""Shows one turn as it happens: what is finished goes into the scroll-back, what runs into a live area.

Finished text is written once and never again; the live area (the answer's open end, running tools with
their last output, queued messages, a status line) is redrawn by the screen from `lines`. It does not know
about prompt_toolkit or sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.cli import wording
from whet.cli.blocks import Blocks, MarkdownBlock
from whet.cli.deciding import coloured, diff_lines
from whet.cli.render import Painter
from whet.contract.events import (
    ApprovalAsked,
    ApprovalDecided,
    ConfirmationAsked,
    Event,
    ReasoningDelta,
    Steered,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)

_TAIL_CHARS = 4_000
_OUTPUT_LINES = 3
_DIFF_ROWS = 16
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

_PLAIN = str.maketrans("…·“”•─−→", '~-""---~')

Fragment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """The few signs of the screen, in a form that its encoding has."""

    ok: str = "●"
    failed: str = "✗"
    running: str = "○"
    prompt: str = "› "
    queued: str = "↳"
    output: str = "│"
    spinner: str = _SPINNER
    plain: bool = False

    def fit(self, text: str) -> str:
        """Give `text` in signs that the encoding has, column for column."""
        return text.translate(_PLAIN) if self.plain else text

    @classmethod
    def for_encoding(cls, encoding: str | None) -> Marks:
        """Give the signs that `encoding` can write."""
        try:
            "●✗○›↳│⠋…·".encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return cls("*", "x", "o", "> ", "+", "|", "-\\|/", plain=True)
        return cls()


@dataclass(slots=True)
class _Running:
    name: str
    subject: str
    began_s: float
    output: str = ""


@dataclass(frozen=True, slots=True)
class Surface:
    """Where a turn is shown: `write` puts text into the scroll-back, `refresh` has the live area redrawn."""

    write: Callable[[str], None]
    refresh: Callable[[], None]
    width: Callable[[], int]


@dataclass(slots=True)
class TerminalTurnView:
    """The consumer of one chat's events, turn after turn."""

    surface: Surface
    painter: Painter
    marks: Marks
    show_reasoning: bool = False
    now_s: Callable[[], float] = time.monotonic
    queued: list[str] = field(default_factory=list[str])
    _blocks: Blocks = field(default_factory=Blocks)
    _reasoning: str = ""
    _running: dict[str, _Running] = field(default_factory=dict[str, _Running])
    _subjects: dict[str, str] = field(default_factory=dict[str, str])
    _asked: str = ""
    _began_s: float | None = None
    _decides_until_s: float | None = None
    _after_call: bool = False
    _doing: str = ""

    def begin(self, doing: str = "") -> None:
        """Start a turn, or other work that is shown as `doing`: the status line runs until its TurnEnd or
        `stop`."""
        self._began_s = self.now_s()
        self._doing = doing
        self._after_call = False

    def stop(self) -> None:
        """End a turn that gave no TurnEnd; its open text is written out."""
        self._flush()
        self._running.clear()
        self._subjects.clear()
        self._asked = ""
        self._decides_until_s = None
        self._began_s = None

    def emit(self, event: Event) -> None:
        """Show one event. Called on the loop's task; does not block."""
        match event:
            case TextDelta():
                self._flush_reasoning()
                self._write_blocks(self._blocks.feed(event.text))
            case ReasoningDelta():
                self._reason(event.text)
            case StepFinished():
                self._flush()
            case ToolStarted():
                self._flush()
                about = wording.subject(event.arguments)
                self._running[event.call_id] = _Running(event.name, about, self.now_s())
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                self._finished(event)
            case ApprovalAsked() | ConfirmationAsked() | ApprovalDecided():
                self._asking(event)
            case TurnEnd():
                self._end(event)
            case _:
                self._aside(event)
        self.surface.refresh()

    def say(self, text: str, style: str = "dim") -> None:
        """Write one line or several of ours into the scroll-back."""
        self._after_call = False
        rows = [row for line in text.split("\n") for row in self._rows(line)]
        self.surface.write(self.painter.line("\n".join(rows), style) + "\n")

    def lines(self, width: int, height: int) -> list[list[Fragment]]:
        """Give the live area's lines, each at most `width` columns, about `height` of them."""
        rows: list[list[Fragment]] = []
        if self._began_s is None:
            return rows
        room = max(height, 1)
        if tail := self._blocks.tail_end(room, _TAIL_CHARS) or self._reasoning_tail():
            style = "" if self._blocks.tail_end(1, 1) else "class:dim"
            rows += [[(style, line)] for line in wrapped(wording.printable(tail), width)[-room:]]
        for call in self._running.values():
            rows += self._call_rows(call, width)
        for text in self.queued:
            rows.append([("class:dim", wording.clip(f"{self.marks.queued} queued: {text}", width))])
        rows.append([("class:dim", wording.clip(self._status(width), width))])
        return [[(style, self.marks.fit(text)) for style, text in row] for row in rows]

    def _status(self, width: int) -> str:
        elapsed = self.now_s() - (self._began_s or 0.0)
        spin = self.marks.spinner[int(elapsed * 8) % len(self.marks.spinner)]
        if self._asked:
            return "waiting for your answer"
        if self._decides_until_s is not None:
            left = wording.duration(max(0.0, self._decides_until_s - self.now_s()))
            text = f"{spin} waiting for a human · {left} left · Ctrl-C withdraws"
            return text if wording.columns(text) <= width else f"{spin} {left} left · Ctrl-C withdraws"
        turn = "running" if self._running else "writing" if self._blocks.tail_end(1, 1) else "thinking"
        doing = self._doing or turn
        return f"{spin} {doing} {round(elapsed)} s · Ctrl-C stops"

    def _call_rows(self, call: _Running, width: int) -> list[list[Fragment]]:
        took = f"{round(self.now_s() - call.began_s)} s"
        line = wording.call_line(call.name, call.subject, width, mark=self.marks.running, tail=took)
        rows: list[list[Fragment]] = [[("", line)]]
        for text in call.output.splitlines()[-_OUTPUT_LINES:]:
            rows.append([("class:dim", f"  {self.marks.output} {wording.clip(text, width - 4)}")])
        return rows

    def _progress(self, event: ToolProgress) -> None:
        if call := self._running.get(event.call_id):
            call.output = (call.output + wording.printable(event.text[-_TAIL_CHARS:]))[-_TAIL_CHARS:]

    def _finished(self, event: ToolFinished) -> None:
        call = self._running.pop(event.call_id, None)
        width = self.surface.width()
        mark, style = (self.marks.ok, "green") if event.ok else (self.marks.failed, "red")
        about = call.subject if call else self._subjects.pop(event.call_id, "")
        about = about or wording.subject(event.arguments)
        line = wording.call_line(event.name, about, width, mark=mark, tail=wording.outcome(event))
        text = self.painter.line(mark, style) + line[len(mark) :] + "\n"
        if reason := wording.failure(event):
            text += self.painter.line("  " + wording.clip(reason, width - 2), "dim red") + "\n"
        text += self._edits(event, width)
        self.surface.write(text if self._after_call else "\n" + text)
        self._after_call = True

    def _edits(self, event: ToolFinished, width: int) -> str:
        """Give what an edit changed, file by file, folded where it is long."""
        lines: list[str] = []
        for edit in event.edits:
            if len(event.edits) > 1:
                lines.append(f"  +{edit.added:,} −{edit.removed:,} {wording.printable(edit.path)}")
            for row in diff_lines(edit.diff, _DIFF_ROWS):
                shown = wording.cut(wording.exact(row.text).expandtabs(4), width - 4)
                lines.append("    " + coloured(row, self.marks.fit(shown), colour=self.painter.has_colour))
        return "".join(f"{line}\n" for line in lines)

    def _aside(self, event: Event) -> None:
        if isinstance(event, StreamRestarted):
            self._flush()
        if isinstance(event, Steered):
            self._steered(event)
        if line := wording.aside(event):
            self._flush()
            self.say(line)

    def _steered(self, event: Steered) -> None:
        if event.text in self.queued:
            self.queued.remove(event.text)
        self._flush()
        text = wording.clip(self.marks.prompt + event.text, self.surface.width())
        self.surface.write("\n" + self.painter.line(text, "bold") + "\n")
        self._after_call = False

    def _end(self, end: TurnEnd) -> None:
        self.stop()
        if line := wording.ending(end):
            self.say("\n" + line, "red" if end.reason in ("failed", "crashed", "refused") else "yellow")
        if end.hint:
            self.say(wording.printable(end.hint))
        if end.receipt is not None:
            self.say("\n" + wording.receipt(end.receipt, self.surface.width()))
        self.say("\n" * (end.receipt is None) + wording.footer(end, self.surface.width()))

    def _asking(self, event: ApprovalAsked | ConfirmationAsked | ApprovalDecided) -> None:
        """Keep in mind who is asked: the person here, or humans at a service."""
        self._asked = event.call_id if isinstance(event, ApprovalAsked) else ""
        self._decides_until_s = None
        if isinstance(event, ApprovalDecided):
            self._aside(event)
            return
        self._subjects[event.call_id] = event.subject
        if isinstance(event, ConfirmationAsked):
            self._decides_until_s = self.now_s() + event.expires_in_s
            self._flush()
            self.say(f"\n{wording.aside(event)}")

    def _rows(self, line: str) -> list[str]:
        """Break a line of ours; an address stays whole, or it could be neither clicked nor copied."""
        return [line] if line.startswith(("http://", "https://")) else wrapped(line, self.surface.width())

    def _reason(self, text: str) -> None:
        if not self.show_reasoning:
            return
        *done, self._reasoning = (self._reasoning + text).split("\n")
        for line in done:
            self._write_reasoning(line)

    def _reasoning_tail(self) -> str:
        return self._reasoning[-_TAIL_CHARS:]

    def _write_reasoning(self, line: str) -> None:
        text = "\n".join(wrapped(wording.printable(line), self.surface.width()))
        self.surface.write(self.painter.line(text, "dim italic") + "\n")
        self._after_call = False

    def _flush_reasoning(self) -> None:
        if self._reasoning:
            self._write_reasoning(self._reasoning)
            self._reasoning = ""

    def _flush(self) -> None:
        self._flush_reasoning()
        self._write_blocks(self._blocks.finish())

    def _write_blocks(self, blocks: Sequence[MarkdownBlock]) -> None:
        if blocks:
            width = self.surface.width()
            self.surface.write("".join(self.painter.block(block, width) for block in blocks))
            self._after_call = False


def wrapped(text: str, width: int) -> list[str]:
    """Break `text` into lines of at most `width` columns, at blanks where there are some."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        while wording.columns(line) > width:
            cut = _cut(line, max(width, 1))
            rows.append(line[:cut].rstrip())
            line = line[cut:].lstrip(" ")
        rows.append(line)
    return rows


def _cut(line: str, width: int) -> int:
    room = width
    for index, character in enumerate(line):
        room -= wording.columns(character)
        if room < 0:
            blank = line.rfind(" ", 0, index + 1)
            return blank + 1 if blank > width // 2 else max(index, 1)
    return len(line)
