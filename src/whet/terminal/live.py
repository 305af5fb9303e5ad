"""Show a turn as it happens: finished output in the scroll-back, and a live area below it.

Finished text is written once. The screen redraws the live area from `lines`: the open end of the answer,
running tools with their last output, queued messages, a status line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.contract.events import (
    ApprovalAsked,
    ApprovalDecided,
    ConfirmationAsked,
    Event,
    ReasoningDelta,
    Retry,
    Steered,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)
from whet.contract.texts import call_subject
from whet.contract.tools import tags_of
from whet.terminal import wording
from whet.terminal.blocks import Blocks, MarkdownBlock
from whet.terminal.diff_view import paint_edit
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.plan import count_done, plan_rows
from whet.terminal.render import Painter
from whet.terminal.signs import Fragment, Marks
from whet.terminal.turn_progress import TAIL_CHARS, RunningCall, TurnProgress
from whet.terminal.wrapping import wrap_lines
from whet.tools.todo import TodoItem

_DIFF_ROWS = 16
_PLAN_ROWS, _WHOLE_PLAN_ROWS = 6, 20


@dataclass(frozen=True, slots=True)
class Surface:
    """The functions of a screen: `write` adds text to the scroll-back, `refresh` redraws the live area."""

    write: Callable[[str], None]
    refresh: Callable[[], None]
    width: Callable[[], int]


def person_text(painter: Painter, marks: Marks, text: str) -> str:
    """Return a message of the person with a shaded background, after an empty line."""
    first, *lines = wording.printable(text).split("\n")
    message = "\n".join([marks.prompt + first, *(f"  {line}" for line in lines)])
    return f"\n{painter.line(message, 'said')}\n"


@dataclass(slots=True)
class TerminalTurnView:
    """Shows one chat's events, turn after turn."""

    surface: Surface
    painter: Painter
    marks: Marks
    show_reasoning: bool = False
    now_s: Callable[[], float] = time.monotonic
    queued: list[str] = field(default_factory=list[str])
    plan: Callable[[], Sequence[TodoItem]] = tuple
    _turn: TurnProgress = field(default_factory=TurnProgress)
    _planned: tuple[str, ...] = ()
    _blocks: Blocks = field(default_factory=Blocks)
    _reasoning: str = ""
    _running: dict[str, RunningCall] = field(default_factory=dict[str, RunningCall])
    _subjects: dict[str, str] = field(default_factory=dict[str, str])
    _began_s: float | None = None
    _decides_until_s: float | None = None
    _after_call: bool = False
    _label: str = ""
    _waits: tuple[float, float] | None = None

    def begin(self, label: str = "") -> None:
        """Start a turn, or a task shown as `label`. Its status line is shown until TurnEnd or `stop`."""
        self._began_s = self.now_s()
        self._turn = TurnProgress()
        self._label = label
        self._after_call = False

    def stop(self) -> None:
        """End a turn that sent no TurnEnd, and write its open text."""
        self._flush()
        self._running.clear()
        self._subjects.clear()
        self._turn.approval = None
        self._decides_until_s = self._waits = self._began_s = None

    def report_interruption(self) -> None:
        """End a turn that the person stopped, and list its stopped calls and its results so far."""
        stopped_calls, duration = list(self._running.values()), wording.duration(self._turn_seconds())
        self.stop()
        for call in stopped_calls:
            self._write_stopped(call)
        results = filter(None, (f"cancelled after {duration}", self._turn.summary()))
        self.say("\n" + " · ".join(results), "yellow")

    def _write_stopped(self, call: RunningCall) -> None:
        self.surface.write(call.stopped_text(self.marks, self.painter, self.surface.width(), self.now_s()))

    def emit(self, event: Event) -> None:
        """Show one event. Called on the loop's task; does not block."""
        self._waits = _next_waits(event, self._waits, self.now_s())
        self._turn.track_question(event)
        match event:
            case TextDelta():
                self._flush_reasoning()
                self._write_blocks(self._blocks.feed(event.text))
            case ReasoningDelta():
                self._add_reasoning(event.text)
            case StepFinished():
                self._flush()
            case ToolStarted():
                self._flush()
                subject = call_subject(event.arguments)
                self._running[event.call_id] = RunningCall(event.name, subject, self.now_s())
                if "asks" in tags_of(event.name):
                    self._turn.asked_at_s = self.now_s()
            case ToolProgress():
                self._add_output(event)
            case ToolFinished():
                self._finish_call(event)
            case ApprovalAsked() | ConfirmationAsked() | ApprovalDecided():
                self._track_question(event)
            case TurnEnd():
                self._show_end(event)
            case _:
                self._show_aside(event)
        self.surface.refresh()

    def say(self, text: str, style: str = "dim") -> None:
        """Write one or more lines of Whet itself into the scroll-back."""
        self._after_call = False
        rows = [row for line in wording.printable_styled(text).split("\n") for row in self._break(line)]
        self.surface.write(self.painter.line("\n".join(rows), style) + "\n")

    def show_person(self, text: str) -> None:
        """Write a message of the person into the scroll-back."""
        self._flush()
        self.surface.write(person_text(self.painter, self.marks, text))
        self._after_call = False

    def lines(self, width: int, height: int) -> list[list[Fragment]]:
        """Return the lines of the live area, each at most `width` columns long, about `height` of them."""
        rows: list[list[Fragment]] = []
        if self._began_s is None:
            return rows
        room = max(height, 1)
        if tail := self._blocks.tail_end(room, TAIL_CHARS) or self._reasoning[-TAIL_CHARS:]:
            style = "" if self._blocks.tail_end(1, 1) else "class:dim"
            rows += [[(style, line)] for line in wrap_lines(wording.printable(tail), width)[-room:]]
        for call in self._running.values():
            rows += call.live(self.marks, width, self.now_s())
        max_rows = min(_PLAN_ROWS, max(room // 2, 2))
        rows += [[("", text)] for text in plan_rows(self.plan(), width, max_rows, plain=self.marks.plain)]
        rows.append([("class:dim", wording.clip(self._status(width), width))])
        queued = [f"{self.marks.queued} queued: {fold_pastes(text)}" for text in self.queued]
        rows += [[("class:dim", wording.clip(text, width))] for text in queued]
        return [[(style, self.marks.fit(text)) for style, text in row] for row in rows]

    def _turn_seconds(self) -> float:
        return self._turn.seconds(self._began_s, self.now_s())

    def _status(self, width: int) -> str:
        spin = self.marks.spinner[int((self.now_s() - (self._began_s or 0.0)) * 8) % len(self.marks.spinner)]
        if self._turn.awaits_answer or any("asks" in tags_of(call.name) for call in self._running.values()):
            return "waiting for your answer"
        if self._decides_until_s is not None:
            remaining = wording.duration(max(0.0, self._decides_until_s - self.now_s()))
            text = f"{spin} waiting for a human · {remaining} left · Ctrl-C withdraws"
            return (
                text
                if wording.count_columns(text) <= width
                else f"{spin} {remaining} left · Ctrl-C withdraws"
            )
        if self._waits is not None:
            return _countdown(spin, width, self.now_s(), *self._waits)
        turn = "running" if self._running else "writing" if self._blocks.tail_end(1, 1) else "thinking"
        return f"{spin} {self._label or turn} {round(self._turn_seconds())} s · Esc stops"

    def _add_output(self, event: ToolProgress) -> None:
        if call := self._running.get(event.call_id):
            call.add_output(event.text)

    def _finish_call(self, event: ToolFinished) -> None:
        call = self._running.pop(event.call_id, None)
        self._turn.count_call(event)
        if "asks" in tags_of(event.name):
            self._turn.end_wait(self.now_s())
        width = self.surface.width()
        if call is not None and event.error_kind == wording.STOPPED:
            self._write_stopped(call)
            return
        mark, style = (self.marks.ok, "green") if event.ok else (self.marks.failed, "red")
        subject = call.subject if call else self._subjects.pop(event.call_id, "")
        subject = subject.removeprefix(f"{event.name} ") or call_subject(event.arguments)
        line = wording.call_line(event.name, subject, width, mark=mark, tail=wording.outcome(event))
        text = self.painter.line(mark, style) + line[len(mark) :] + "\n"
        is_own = event.name == wording.OWN_COMMAND
        if (reason := wording.failure(event)) and not (is_own and call):
            text += self.painter.line("  " + wording.clip(reason, width - 2), "red") + "\n"
        elif call is not None:
            rows = call.rows(self.marks, width, full=is_own)
            text += "".join(self.painter.line(row, "dim") + "\n" for row in rows)
        if event.ok and "tasks" in tags_of(event.name):
            text += self._describe_plan(width)
        text += _edit_rows(event, width, self.marks, self.painter)
        self.surface.write(text if self._after_call else "\n" + text)
        self._after_call = True

    def _describe_plan(self, width: int) -> str:
        """Return the whole task list if it has changed, otherwise a line with its progress."""
        items = self.plan()
        before, self._planned = self._planned, tuple(item.content for item in items)
        if self._planned != before:
            rows = plan_rows(items, width - 2, _WHOLE_PLAN_ROWS, plain=self.marks.plain)
            return "".join(f"  {row}\n" for row in rows)
        done, total = count_done(items)
        current = next((item.content for item in items if item.status == "in_progress"), "")
        line = f"{done} of {total} done" + (f" · now: {current}" if current else "")
        return self.painter.line("  " + wording.clip(line, width - 2), "dim") + "\n" if items else ""

    def _show_aside(self, event: Event) -> None:
        if isinstance(event, StreamRestarted):
            self._flush()
        elif isinstance(event, Steered):
            if event.text in self.queued:
                self.queued.remove(event.text)
            self.show_person(fold_pastes(event.text))
        if line := wording.aside(event):
            self._flush()
            self.say(line)

    def _show_end(self, end: TurnEnd) -> None:
        self.stop()
        if line := wording.ending(end):
            self.say("\n" + line, "red" if end.reason in ("failed", "crashed", "refused") else "yellow")
        if end.hint:
            self.say(wording.printable(end.hint))
        if end.receipt is not None:
            self.say("\n" + wording.receipt(end.receipt, self.surface.width()))
        self.say("\n" * (end.receipt is None) + wording.footer(end, self.surface.width()))

    def _track_question(self, event: ApprovalAsked | ConfirmationAsked | ApprovalDecided) -> None:
        """Note who is asked, the person here or people at a confirmation service, and since when."""
        self._decides_until_s = None
        self._turn.end_wait(self.now_s())
        if isinstance(event, ApprovalDecided):
            self._show_aside(event)
            return
        self._turn.asked_at_s = self.now_s()
        self._subjects[event.call_id] = event.subject
        if isinstance(event, ConfirmationAsked):
            self._decides_until_s = self.now_s() + event.expires_in_s
            self._flush()
            self.say(f"\n{wording.aside(event)}")

    def _break(self, line: str) -> list[str]:
        """Break a line at the terminal's width. A URL is not broken, so that it can be clicked or copied."""
        return [line] if line.startswith(("http://", "https://")) else wrap_lines(line, self.surface.width())

    def _add_reasoning(self, text: str) -> None:
        if not self.show_reasoning:
            return
        *lines, self._reasoning = (self._reasoning + text).split("\n")
        for line in lines:
            self._write_reasoning(line)

    def _write_reasoning(self, line: str) -> None:
        text = "\n".join(wrap_lines(wording.printable(line), self.surface.width()))
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


def _next_waits(event: Event, waits: tuple[float, float] | None, now_s: float) -> tuple[float, float] | None:
    """Return the time of the next retry and the time when retrying ends, or None if no retry is due."""
    if isinstance(event, Retry) and event.left_s:
        return now_s + event.wait_s, now_s + event.left_s
    # Other events mean that the server has answered. ToolProgress may come from background work.
    return waits if isinstance(event, ToolProgress) else None


def _countdown(spin: str, width: int, now_s: float, retry_s: float, until_s: float) -> str:
    wait = f"{round(retry_s - now_s)} s" if retry_s > now_s + 0.5 else "now"
    remaining = wording.duration(max(0.0, until_s - now_s))
    text = f"{spin} the model's server is away · next try {wait} · {remaining} left · Esc stops"
    return text if wording.count_columns(text) <= width else f"{spin} server away · try {wait} · Esc stops"


def _edit_rows(event: ToolFinished, width: int, marks: Marks, painter: Painter) -> str:
    """Return the changes of an edit, file by file. Long diffs are folded."""
    lines: list[str] = []
    for edit in event.edits:
        if len(event.edits) > 1:
            lines.append(f"  +{edit.added:,} −{edit.removed:,} {wording.printable(edit.path)}")
        lines += [marks.fit(row.to_line()) for row in paint_edit(edit, painter.theme, _DIFF_ROWS, width)]
    return "".join(f"{line}\n" for line in lines)
