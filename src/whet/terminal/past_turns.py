"""Render stored turns as the chat showed them while they ran, by passing their parts through its view."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from whet.contract.changes import FileEdit
from whet.contract.events import (
    EndReason,
    ReasoningDelta,
    StepFinished,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)
from whet.contract.messages import Usage
from whet.contract.receipts import TurnReceipt
from whet.contract.texts import argument_texts, call_subject
from whet.contract.tools import tags_of
from whet.question import parse_row
from whet.store.parts import AnswerPart, CallPart, ConversationPart, PersonPart, read_call
from whet.store.replay import ReplayedTurn
from whet.terminal import output, wording
from whet.terminal.live import Surface, TerminalTurnView
from whet.terminal.pasted_text import fold_paste
from whet.terminal.render import Painter
from whet.terminal.signs import Marks

_PREVIEW_CHARS = 400
_MAX_EDIT_ROWS = 400


class PastTurns:
    """Renders parts of a stored conversation for a terminal of `width` columns. With `is_full`, pastes and
    the arguments and results of calls are not shortened."""

    def __init__(
        self,
        painter: Painter,
        marks: Marks,
        width: int,
        *,
        is_full: bool = False,
        show_reasoning: bool = False,
    ) -> None:
        self._written: list[str] = []
        self._now_s = 0.0
        self._is_full = is_full
        surface = Surface(self._written.append, lambda: None, lambda: width)
        self._view = TerminalTurnView(surface, painter, marks, show_reasoning=show_reasoning)
        self._view.now_s = lambda: self._now_s

    @property
    def text(self) -> str:
        """The text so far; it begins with an empty line."""
        return "".join(self._written)

    def read_end(self, max_rows: int) -> str:
        """Return the last `max_rows` rows of the text, after a row that counts the omitted ones."""
        lines = self.text.split("\n")
        omitted = len(lines) - 1 - max_rows
        if omitted <= 0:
            return self.text
        note = f"… {omitted:,} earlier lines; /calls lists the calls, whet sessions show has all"
        note = self._view.painter.line(wording.clip(note, self._view.surface.width()), "dim")
        return "\n".join(["", note, *lines[-max_rows - 1 :]])

    def add(self, parts: Sequence[ConversationPart]) -> None:
        """Add parts to the text, in order."""
        for part in parts:
            if isinstance(part, PersonPart):
                self._add_person(part)
            elif isinstance(part, AnswerPart):
                self._view.emit(ReasoningDelta(part.reasoning))
                self._view.emit(TextDelta(part.text))
                self._view.emit(StepFinished(0, Usage()))
            else:
                self._add_call(part)

    def end_turn(self, session_id: str, turn: ReplayedTurn, receipt: TurnReceipt | None) -> None:
        """Add a turn's end: its error, its effects and its usage."""
        if not turn.ended or not turn.reason:
            return
        took = datetime.fromisoformat(turn.ended) - datetime.fromisoformat(turn.started)
        end = TurnEnd(
            session_id,
            str(turn.number),
            cast("EndReason", turn.reason),
            "",
            turn.steps,
            turn.usage,
            took.total_seconds(),
            error=turn.error,
            receipt=receipt,
        )
        self._view.emit(end)

    def _add_person(self, part: PersonPart) -> None:
        text = part.text(str if self._is_full else fold_paste)
        images = [
            f"[image {image.media_type}, {output.size(len(image.data_base64) * 3 // 4)}]"
            for image in part.images
        ]
        self._view.show_person("\n".join(filter(None, (text.strip(), *images))))

    def _add_call(self, part: CallPart) -> None:
        call, view = part.call, self._view
        if part.result is None:
            view.say(call_row(part, view.surface.width(), view.marks))
        else:
            event, text = finished_event(part), part.result.text
            if "command" in tags_of(call.name):
                view.emit(ToolStarted(call.id, call.name, call.arguments))
                view.emit(ToolProgress(call.id, wording.command_output(text)))
            self._now_s += event.duration_s
            view.emit(event)
        if self._is_full:
            rows = (view.painter.line(f"    | {line}", "dim") for line in full_rows(part))
            view.surface.write("".join(f"{row}\n" for row in rows))


def finished_event(part: CallPart) -> ToolFinished:
    """Return the event with which a stored call ended."""
    call, facts = part.call, part.facts
    text = part.result.text if part.result is not None else ""
    kind = facts.error_kind if facts else "error" * (part.state == "failed")
    is_exit = kind == "exit"  # the end of a command's output says more about its failure
    return ToolFinished(
        call.id,
        call.name,
        (facts.duration_s if facts else None) or 0.0,
        kind,
        facts.exit_code if facts else None,
        text[-_PREVIEW_CHARS:] if is_exit else text[:_PREVIEW_CHARS],
        call.arguments,
        _edits_of(part),
    )


def call_row(part: CallPart, width: int, marks: Marks) -> str:
    """Return a call as one line, without its output."""
    mark = {"open": marks.running, "failed": marks.failed, "done": marks.ok}[part.state]
    tail = "no result yet" if part.result is None else wording.outcome(finished_event(part))
    return wording.call_line(part.call.name, call_subject(part.call.arguments), width, mark=mark, tail=tail)


def full_rows(part: CallPart) -> list[str]:
    """Return a call's arguments and result in full, each under its name."""
    rows = [f"  {name}: {text}" for name, text in argument_texts(part.call.arguments)]
    rows += part.result.text.split("\n") if part.result is not None else ["(no result yet)"]
    return [line for row in rows for line in wording.exact(row).split("\n")]


def _edits_of(part: CallPart) -> tuple[FileEdit, ...]:
    """Return the edits of a call with their diffs. A diff that was not stored is taken from the call's
    arguments, if it has the stored number of lines."""
    edits = part.facts.own_edits if part.facts else ()
    if len(edits) != 1 or edits[0].diff:
        return tuple(FileEdit(edit.path, edit.added, edit.removed, edit.diff) for edit in edits)
    edit = edits[0]
    rows = [row for row in read_call(part.call).rows if row.kind != "file"]
    counts = [sum(row.kind == kind for row in rows) for kind in ("added", "removed")]
    if rows and counts == [len(rows), 0]:  # a new file
        rows.insert(0, parse_row(f"@@ -0,0 +1,{len(rows)} @@"))
    is_whole = counts == [edit.added, edit.removed]
    diff = "\n".join(row.text for row in rows[:_MAX_EDIT_ROWS]) if is_whole else ""
    return (FileEdit(edit.path, edit.added, edit.removed, diff),)
