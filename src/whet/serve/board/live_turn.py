"""What runs at this moment, as an open page shows it: the answer as far as it has come, and the calls.

Heard from the turns' events, kept in memory for as long as a turn runs; what is stored comes from the store.
Text is given out as it may be shown: secrets masked, characters that hide spelled out.
"""

from __future__ import annotations

import re

import msgspec

from whet.contract.events import (
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
from whet.visible import visible

# A key may be growing at the end of what has come: a long run without a blank waits until it is whole.
_GROWING = re.compile(r"[A-Za-z0-9_+/=.:~-]{9,}\Z")
_BEGIN, _END = "-----BEGIN", "-----END"
_MOST_SHOWN = 1_000_000
_TAIL_CHARS, _MOST_SESSIONS = 1_200, 500


class LiveText:
    """A text that grows, as it may be shown. Lines that are whole do not change any more."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._size = 0
        self._open = ""

    def add(self, text: str) -> None:
        """Take more of it."""
        self._open += text
        if "\n" not in text or (_BEGIN in self._open and _END not in self._open):
            return
        done, _, self._open = self._open.rpartition("\n")
        shown = visible(done, _MOST_SHOWN) + "\n"
        self._whole.append(shown)
        self._size += len(shown)

    @property
    def size(self) -> int:
        """How many characters will not change any more."""
        return self._size

    def since(self, known: int) -> tuple[str, str]:
        """Give what became whole after the first `known` characters, and what follows that for now."""
        parts: list[str] = []
        start = self._size
        for piece in reversed(self._whole):
            if start <= known:
                break
            start -= len(piece)
            parts.append(piece)
        whole = "".join(reversed(parts))[max(0, known - start) :]
        growing = _GROWING.search(self._open)
        return whole, visible(self._open[: growing.start()] if growing else self._open, _MOST_SHOWN)


class LiveCall(msgspec.Struct):
    """A call that runs: what it is about, and the last of its output."""

    id: str
    name: str
    about: str
    tail: str = ""


class LiveTurn:
    """One turn as far as it is not stored yet. `version` grows with each change of anything but text."""

    def __init__(self) -> None:
        self.text: LiveText = LiveText()
        self.step: int = 0
        self.calls: dict[str, LiveCall] = {}
        self.note: str = ""
        self.is_thinking: bool = False
        self.version: int = 0

    def take(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, TextDelta):
            self.text.add(event.text)
            changed = bool(self.note or self.is_thinking)
            self.note, self.is_thinking = "", False
        else:
            changed = self._told(event)
        self.version += changed

    def _told(self, event: Event) -> bool:
        match event:
            case ReasoningDelta():
                changed = not self.is_thinking
                self.is_thinking = True
                return changed
            case StepFinished() | StreamRestarted():
                self._next_step()
            case ToolStarted(call_id, name, arguments):
                self.calls[call_id] = LiveCall(call_id, visible(name, 60), _about(arguments))
            case ToolProgress(call_id, text) if call_id in self.calls:
                call = self.calls[call_id]
                call.tail = (call.tail + text)[-_TAIL_CHARS:]
            case ToolFinished(call_id):
                self.calls.pop(call_id, None)
            case Retry():
                self.note = visible(f"{event.reason}; tried again in {event.wait_s:.0f} s", 300)
            case Notice(text):
                self.note = visible(text, 300)
            case _:
                return False
        return True

    def _next_step(self) -> None:
        self.text, self.step = LiveText(), self.step + 1
        self.is_thinking = False


def _about(arguments: str) -> str:
    try:
        found = from_json(arguments or "{}", dict[str, object])
    except NOT_JSON:
        return ""
    return " ".join(visible(subject_of(found)[:400], 400).split())[:160]


class LiveTurns:
    """The turns that run in this process, by session, and how the last one of each went wrong."""

    def __init__(self) -> None:
        self._by_session: dict[str, LiveTurn] = {}
        self._problems: dict[str, str] = {}

    def hear(self, session_id: str, event: Event) -> None:
        """Take an event of a session in."""
        if isinstance(event, TurnEnd):
            self._by_session.pop(session_id, None)
            self._problems.pop(session_id, None)
            if event.reason in ("failed", "refused") and not event.turn_id:
                self._problems[session_id] = visible(
                    f"{event.error} ({event.hint})" if event.hint else event.error, 500
                )
                while len(self._problems) > _MOST_SESSIONS:
                    del self._problems[next(iter(self._problems))]
            return
        if not isinstance(event, ReviewQueued | ReviewFinished):  # they come after a turn
            self._by_session.setdefault(session_id, LiveTurn()).take(event)

    def of(self, session_id: str) -> LiveTurn | None:
        """Give the turn that runs in a session."""
        return self._by_session.get(session_id)

    def problem(self, session_id: str) -> str:
        """Give why the last turn that was asked for here never began; empty where it did."""
        return self._problems.get(session_id, "")
