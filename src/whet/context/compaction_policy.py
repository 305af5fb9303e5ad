"""Decides whether to compact before a request: asks the engine, and stops when further attempts are
pointless.

An automatic compaction is ineffective if it changes nothing or if the server still counts more than the
threshold afterwards. It counts only if it was wanted: engines also ask below the threshold, to maintain
what they store. Two in a row stop automatic compaction until the conversation has grown well
beyond its size, the server counts less than the threshold, or something else changes. A turn may have as
many as it needs, but only three that leave little room. `ask_engine` runs on the engine's lane and
passes on the engine's exceptions. This module does not know how a compaction is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from whet.contract.context_engine import ChatRows, ContextEngine

BY_HAND, BELOW = "by_hand", "engine_preflight_maintenance"
REASON_CHARS = 200
_STRIKES = 2
_POOR_PER_TURN = 3
_ROOM = 0.75  # of the threshold; a compaction that leaves more will soon be due again


class CircuitBreaker:
    """Counts ineffective compactions of one session."""

    def __init__(self) -> None:
        self.stopped = ""
        self._strikes = 0
        self._in_turn = 0
        self._unmeasured = False
        self._again_at = 0
        self._is_wanted = True
        self._is_above = False

    def new_turn(self) -> None:
        """Start a turn: three poor compactions are allowed again."""
        self._in_turn = 0

    def begin(self, phase: str, tokens: int, threshold: int) -> bool:
        """Start an automatic compaction of `tokens`; return whether it may be tried.

        It counts if the engine asked for it because of the size, or if the size is at the `threshold`.
        """
        self._is_wanted = phase == "threshold" or tokens >= threshold
        return self.allows(tokens)

    def allows(self, tokens: int) -> bool:
        """Return whether an automatic compaction may be tried at `tokens`.

        After a compaction the server must count first. After ineffective attempts one more is allowed when
        the conversation has grown well beyond its size at that time.
        """
        if self._unmeasured or self._in_turn >= _POOR_PER_TURN:
            return False
        return not self.stopped or 0 < self._again_at <= tokens

    def note_idle(self, tokens: int, window: int) -> bool:
        """Count an attempt that changed nothing. Returns True if automatic compaction stops now."""
        if not self._take_wanted():
            return False
        self._again_at: int = _grown(tokens, window)
        self._is_above: bool = False
        return self._strike("nothing could be made smaller")

    def note_compaction(self, *, grew: bool = False) -> bool:
        """Count a compaction; the server's next count shows how effective it was.

        One that `grew` is ineffective at once. Returns True if automatic compaction stops now.
        """
        self._in_turn += 1
        if not self._take_wanted():
            return False
        self._unmeasured: bool = not grew
        return grew and self._strike("its compactions made the conversation larger")

    def note_count(self, tokens: int, threshold: int) -> bool:
        """Take the server's count. Returns True if automatic compaction stops now."""
        if not self._unmeasured:
            if self._is_above and tokens < threshold:
                self._strikes, self.stopped, self._again_at, self._is_above = 0, "", 0, False
            return False
        self._unmeasured = False
        if not threshold or tokens < threshold:
            self._strikes, self.stopped, self._again_at, self._is_above = 0, "", 0, False
            if not threshold or tokens <= threshold * _ROOM:
                self._in_turn -= 1
            return False
        self._again_at = _grown(tokens, threshold)
        self._is_above = True
        return self._strike(f"{tokens:,} tokens are left, still above the threshold of {threshold:,}")

    def restore(self, counts: Sequence[int], threshold: int) -> bool:
        """Restore the state of an earlier process from the server's counts after the last compactions, oldest
        first.

        Returns True if automatic compaction is stopped.
        """
        for count in counts:
            self._unmeasured = True
            self.note_count(count, threshold)
        self.new_turn()
        return bool(self.stopped)

    def reset(self) -> None:
        """Start over, because the model or the list was changed by hand."""
        self.__init__()

    def _take_wanted(self) -> bool:
        """Return whether the compaction that was begun is wanted; any that is not begun here is."""
        is_wanted, self._is_wanted = self._is_wanted, True
        return is_wanted

    def _strike(self, why: str) -> bool:
        self._strikes += 1
        first = not self.stopped and self._strikes >= _STRIKES
        if self._strikes >= _STRIKES:
            self.stopped: str = why
        return first


def _grown(tokens: int, size: int) -> int:
    """Return the size from which a conversation has grown well beyond `tokens`, for a window or threshold of
    this `size`."""
    return tokens + max(4096, size // 20)


class CompactionQuestion(msgspec.Struct, frozen=True):
    """The facts for asking an engine before a request.

    `first`: this is the turn's first request. `may`: whether a compaction is allowed at all. `is_rough`:
    no server has counted any of these rows yet.
    """

    rows: ChatRows
    tokens: int
    first: bool
    may: bool
    is_rough: bool


class CompactionAnswer(msgspec.Struct, frozen=True):
    """An engine's answer: whether to compact now, in which phase, and why it should but can't."""

    wants: bool = False
    phase: str = "threshold"
    blocked: str = ""


def ask_engine(engine: ContextEngine, question: CompactionQuestion) -> CompactionAnswer:
    """Ask the engine whether to compact before the next request.

    In this order: its preflight check at the start of a turn, an operation that it has pending, the size.
    A rough size is ignored if the engine prefers to wait for the server's count.
    """
    rows, tokens = question.rows, question.tokens
    preflight = optional_hook(engine, "should_compress_preflight") if question.first else None
    if preflight is not None and preflight(rows):
        return CompactionAnswer(wants=True, phase="preflight")
    if not question.may:
        return CompactionAnswer()
    pending = optional_hook(engine, "pending_compression_operation")
    if pending is not None and (operation := pending(rows)):
        return CompactionAnswer(wants=True, phase=str(operation)[:40])
    defer = optional_hook(engine, "should_defer_preflight_to_real_usage") if question.is_rough else None
    if defer is not None and defer(tokens):
        return CompactionAnswer()
    if engine.should_compress(tokens):
        return CompactionAnswer(wants=True)
    inform = optional_hook(engine, "should_compress_info")
    return CompactionAnswer(blocked=_reason(inform(tokens))) if inform is not None else CompactionAnswer()


def optional_hook(engine: object, name: str) -> Callable[..., Any] | None:
    """Return a hook that only newer engines have, or None if this one lacks it."""
    hook = getattr(engine, name, None)
    return cast("Callable[..., Any]", hook) if callable(hook) else None


def _reason(answer: object) -> str:
    """Return the reason from a (bool, reason) pair if the bool is False: something prevents a compaction."""
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        return ""
    flag, reason = cast("tuple[object, object]", answer)
    return " ".join(reason.split())[:REASON_CHARS] if not flag and isinstance(reason, str) else ""
