"""The progress of a running turn: its running calls, finished edits and open question."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.contract.events import (
    ApprovalAsked,
    ConfirmationAsked,
    Event,
    ToolFinished,
    ToolStarted,
)
from whet.contract.texts import plural
from whet.terminal import wording
from whet.terminal.render import Painter
from whet.terminal.signs import Fragment, Marks

TAIL_CHARS = 4_000
_MAX_OUTPUT_CHARS = 20_000
_TAIL_LINES, _FULL_LINES = 3, 200


@dataclass(slots=True)
class RunningCall:
    """A running call and the end of its output."""

    name: str
    subject: str
    began_s: float
    output: str = ""
    is_cut: bool = False

    def add_output(self, text: str) -> None:
        """Append output, keeping only its end."""
        self.output += text
        if len(self.output) > _MAX_OUTPUT_CHARS:
            self.output, self.is_cut = self.output[-_MAX_OUTPUT_CHARS:], True

    def rows(self, marks: Marks, width: int, *, full: bool = False) -> list[str]:
        """Return the last lines of the output, or with `full` all kept lines."""
        output, max_lines = (self.output, _FULL_LINES) if full else (self.output[-TAIL_CHARS:], _TAIL_LINES)
        # A terminal does not show text before a carriage return either, e.g. an old state of a progress bar.
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n")]
        lines = [wording.printable(line).expandtabs(4) for line in lines]
        lines = [line for line in lines if line.strip()]
        if full and (len(lines) > max_lines or self.is_cut):
            lines = ["…", *lines[1 - max_lines :]]
        return [f"  {marks.output} {wording.cut(text, width - 4)}" for text in lines[-max_lines:]]

    def live(self, marks: Marks, width: int, now_s: float) -> list[list[Fragment]]:
        """Return the lines of a running call: name, subject, seconds so far, and the last lines of output."""
        seconds = f"{round(now_s - self.began_s)} s"
        line = wording.call_line(self.name, self.subject, width, mark=marks.running, tail=seconds)
        return [[("", line)], *([("class:dim", text)] for text in self.rows(marks, width))]

    def stopped_text(self, marks: Marks, painter: Painter, width: int, now_s: float) -> str:
        """Return the text of a stopped call: name, subject, running time, and the last lines of output."""
        tail = f"stopped  {wording.duration(now_s - self.began_s)}"
        line = wording.call_line(self.name, self.subject, width, mark=marks.failed, tail=tail)
        text = painter.line(marks.failed, "red") + line[len(marks.failed) :]
        rows = (painter.line(row, "dim") for row in self.rows(marks, width))
        return "\n".join(("", text, *rows, ""))


@dataclass(slots=True)
class TurnProgress:
    """The progress of a turn, shown if the person stops it. `waited_s` is the time spent on questions."""

    calls: int = 0
    edits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    waited_s: float = 0.0
    asked_at_s: float | None = None
    approval: ApprovalAsked | None = None

    def end_wait(self, now_s: float) -> None:
        """End a wait for the person, if there is one."""
        if self.asked_at_s is not None:
            self.waited_s += now_s - self.asked_at_s
            self.asked_at_s = None

    def seconds(self, began_s: float | None, now_s: float) -> float:
        """Return the seconds since the turn began, without those spent waiting for the person."""
        waits_s = now_s - self.asked_at_s if self.asked_at_s is not None else 0.0
        return now_s - (now_s if began_s is None else began_s) - self.waited_s - waits_s

    @property
    def awaits_answer(self) -> bool:
        """Whether the person here is being asked about a call."""
        return self.approval is not None and self.asked_at_s is not None

    def track_question(self, event: Event) -> None:
        """Remember which call the person is asked about, until it begins or ends."""
        if isinstance(event, ApprovalAsked | ConfirmationAsked):
            self.approval = event if isinstance(event, ApprovalAsked) else None
        elif isinstance(event, ToolStarted | ToolFinished) and self.approval is not None:
            self.approval = None if self.approval.call_id == event.call_id else self.approval

    def count_call(self, event: ToolFinished) -> None:
        """Count a finished call, unless it was stopped or never begun."""
        self.calls += event.error_kind not in (wording.NOT_RUN, wording.STOPPED)
        for edit in event.edits:
            added, removed = self.edits.get(edit.path, (0, 0))
            self.edits[edit.path] = (added + edit.added, removed + edit.removed)

    def summary(self) -> str:
        """Return a summary of the finished calls and edits, or an empty string if there are none."""
        parts = [f"{plural(self.calls, 'call')} done"] if self.calls else []
        parts += [f"{path} +{added:,} −{removed:,}" for path, (added, removed) in self.edits.items()]
        return " · ".join(parts)
