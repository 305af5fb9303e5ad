"""Collect the events of a running turn for open pages: the answer so far, and the running calls.

They are kept in memory while the turn runs; pages read stored messages from the store. Text is returned ready
for display, with secrets masked and hidden characters spelled out.
"""

from __future__ import annotations

import re

import msgspec

from whet.contract.events import (
    Compaction,
    ConfirmationAsked,
    Event,
    Notice,
    ReasoningDelta,
    Retry,
    ReviewFinished,
    ReviewQueued,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)
from whet.contract.texts import NOT_JSON, from_json, subject_of
from whet.log import mask
from whet.visible import visible

# The text so far may end with a part of a secret, so a long word is held back until it is complete.
_GROWING = re.compile(r"[A-Za-z0-9_+/=.:~-]{9,}\Z")
_BEGIN, _END = "-----BEGIN", "-----END"
_MAX_SHOWN = 1_000_000
_TAIL_CHARS, _MAX_SESSIONS = 1_200, 500


class LiveText:
    """A growing text, ready for display. Complete lines never change again."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._size = 0
        self._open = ""

    def add(self, text: str) -> None:
        """Append text."""
        self._open += text
        if "\n" not in text or (_BEGIN in self._open and _END not in self._open):
            return
        done, _, self._open = self._open.rpartition("\n")
        visible_text = visible(done, _MAX_SHOWN, masking=mask) + "\n"
        self._whole.append(visible_text)
        self._size += len(visible_text)

    @property
    def size(self) -> int:
        """The number of characters in complete lines."""
        return self._size

    def since(self, start_char: int) -> tuple[str, str]:
        """Return the complete lines after the first `start_char` characters, and the incomplete last line."""
        parts: list[str] = []
        start = self._size
        for piece in reversed(self._whole):
            if start <= start_char:
                break
            start -= len(piece)
            parts.append(piece)
        complete = "".join(reversed(parts))[max(0, start_char - start) :]
        growing = _GROWING.search(self._open)
        return complete, visible(
            self._open[: growing.start()] if growing else self._open, _MAX_SHOWN, masking=mask
        )


class LiveCall(msgspec.Struct):
    """A running call: its subject and the end of its output."""

    id: str
    name: str
    about: str
    tail: str = ""


class LiveTurn:
    """The part of a turn that is not stored yet. `version` grows with each change other than text."""

    def __init__(self) -> None:
        self.text: LiveText = LiveText()
        self.step: int = 0
        self.calls: dict[str, LiveCall] = {}
        self.note: str = ""
        self.notices: list[str] = []
        self.is_thinking: bool = False
        self.version: int = 0

    def apply(self, event: Event) -> None:
        """Apply an event."""
        if isinstance(event, TextDelta):
            self.text.add(event.text)
            changed = bool(self.note or self.is_thinking)
            self.note, self.is_thinking = "", False
        else:
            changed = self._apply_other(event)
        self.version += changed

    def _apply_other(self, event: Event) -> bool:
        match event:
            case ReasoningDelta():
                changed = not self.is_thinking
                self.is_thinking = True
                return changed
            case StepFinished() | StreamRestarted():
                self._next_step()
            case ToolStarted(call_id, name, arguments):
                self.calls[call_id] = LiveCall(call_id, visible(name, 60), _call_subject(arguments))
            case ToolProgress(call_id, text) if call_id in self.calls:
                call = self.calls[call_id]
                call.tail = (call.tail + text)[-_TAIL_CHARS:]
            case ToolFinished(call_id):
                self.calls.pop(call_id, None)
            case Retry():
                self.note = visible(f"{event.reason}; tried again in {event.wait_s:.0f} s", 300)
            case ConfirmationAsked():
                self.note = visible(event.text, 300)
            case Compaction():
                self.note = f"compacted: {event.messages_before} messages became {event.messages_after}"
            case Notice(text, must_show):
                self.note = visible(text, 300)
                self.notices += [self.note] if must_show else []
            case _:
                return False
        return True

    def _next_step(self) -> None:
        self.text, self.step = LiveText(), self.step + 1
        self.is_thinking = False


def _call_subject(arguments: str) -> str:
    try:
        fields = from_json(arguments or "{}", dict[str, object])
    except NOT_JSON:
        return ""
    return " ".join(visible(subject_of(fields)[:400], 400).split())[:160]


def _problem_of(end: TurnEnd, turn: LiveTurn | None) -> str:
    if end.reason in ("failed", "refused") and not end.turn_id:
        return visible(f"{end.error} ({end.hint})" if end.hint else end.error, 500)
    return visible(" · ".join(turn.notices), 500) if turn is not None else ""


class LiveTurns:
    """The turns that run in this process, by session. Also keeps the problem of each session's last turn: why
    it could not start, or the notices that a person must see."""

    def __init__(self) -> None:
        self._by_session: dict[str, LiveTurn] = {}
        self._problems: dict[str, str] = {}

    def handle_event(self, session_id: str, event: Event) -> None:
        """Apply an event of a session."""
        if isinstance(event, TurnEnd):
            turn = self._by_session.pop(session_id, None)
            self._keep_problem(session_id, _problem_of(event, turn))
            return
        if not isinstance(event, ReviewQueued | ReviewFinished):  # these come after a turn
            self._by_session.setdefault(session_id, LiveTurn()).apply(event)

    def _keep_problem(self, session_id: str, problem: str) -> None:
        self._problems.pop(session_id, None)
        if problem:
            self._problems[session_id] = problem
            while len(self._problems) > _MAX_SESSIONS:
                del self._problems[next(iter(self._problems))]

    def turn_of(self, session_id: str) -> LiveTurn | None:
        """Return the turn that runs in a session, or None."""
        return self._by_session.get(session_id)

    def problem(self, session_id: str) -> str:
        """Return why the last turn could not start, or the notices that a person must see, or ""."""
        return self._problems.get(session_id, "")
