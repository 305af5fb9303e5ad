"""Whether to compact before a request: what the engine wants, and when trying again makes no sense.

An automatic compaction that changes nothing, or after which the server still counts more than the
threshold, is ineffective; two in a row stop automatic compaction until something else changes. A turn may
have as many as it needs, but only three that leave little room. `wish` runs on the engine's lane and may
raise whatever the engine raises. What a compaction is, and how one is made, is not known here.
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
_ROOM = 0.75  # of the threshold; one that leaves more than that will be due again soon


class CircuitBreaker:
    """Counts ineffective compactions of one session."""

    def __init__(self) -> None:
        self.stopped = ""
        self._strikes = 0
        self._in_turn = 0
        self._unmeasured = False
        self._again_at = 0

    def new_turn(self) -> None:
        """A turn begins: three poor compactions are free again."""
        self._in_turn = 0

    def allows(self, tokens: int) -> bool:
        """Say whether an automatic compaction may be tried at `tokens`.

        After one has happened, the server's next count comes first. Attempts that changed nothing are
        tried once more when the conversation has grown well beyond where they stopped.
        """
        if self._unmeasured or self._in_turn >= _POOR_PER_TURN:
            return False
        return not self.stopped or 0 < self._again_at <= tokens

    def idle(self, tokens: int, window: int) -> bool:
        """An attempt changed nothing; True where automatic compaction stops now."""
        self._again_at = tokens + max(4096, window // 20)
        return self._strike("nothing could be made smaller")

    def compacted(self, *, grew: bool = False) -> bool:
        """The list was replaced; the next count of the server tells what it was worth.

        One that has `grew` was worth nothing; True where automatic compaction stops now.
        """
        self._in_turn += 1
        self._unmeasured = not grew
        return grew and self._strike("its compactions made the conversation larger")

    def measured(self, tokens: int, threshold: int) -> bool:
        """The server counted; True where automatic compaction stops now."""
        if not self._unmeasured:
            return False
        self._unmeasured = False
        if not threshold or tokens < threshold:
            self._strikes, self.stopped, self._again_at = 0, "", 0
            if not threshold or tokens <= threshold * _ROOM:
                self._in_turn -= 1
            return False
        self._again_at = 0
        return self._strike(f"{tokens:,} tokens are left, still above the threshold of {threshold:,}")

    def recall(self, counts: Sequence[int], threshold: int) -> bool:
        """Go on where an earlier process ended: `counts` are the server's after the session's last
        compactions, oldest first. True where automatic compaction is stopped."""
        for count in counts:
            self._unmeasured = True
            self.measured(count, threshold)
        self.new_turn()
        return bool(self.stopped)

    def reset(self) -> None:
        """The model or the list was changed by hand: start over."""
        self.__init__()

    def _strike(self, why: str) -> bool:
        self._strikes += 1
        first = not self.stopped and self._strikes >= _STRIKES
        if self._strikes >= _STRIKES:
            self.stopped: str = why
        return first


class CompactionQuestion(msgspec.Struct, frozen=True):
    """What an engine is asked before a request. `first`: of its turn. `may`: whether a compaction may be
    tried at all. `is_rough`: no server has counted any of these rows yet."""

    rows: ChatRows
    tokens: int
    first: bool
    may: bool
    is_rough: bool


class CompactionAnswer(msgspec.Struct, frozen=True):
    """An engine's answer: whether to compact now, in which phase, and why not although it should."""

    wants: bool = False
    phase: str = "threshold"
    blocked: str = ""


def wish(engine: ContextEngine, question: CompactionQuestion) -> CompactionAnswer:
    """Ask whether to compact before the next request.

    In this order: the look at the list that opens a turn, an operation that the engine has pending, the
    size. A rough size counts for nothing where the engine would rather wait for the server's count.
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
    """Give a hook that only newer engines have; None where this one has not."""
    hook = getattr(engine, name, None)
    return cast("Callable[..., Any]", hook) if callable(hook) else None


def _reason(answer: object) -> str:
    """Read (bool, reason): a reason beside a False means that something keeps it from compacting."""
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        return ""
    wanted, reason = cast("tuple[object, object]", answer)
    return " ".join(reason.split())[:REASON_CHARS] if not wanted and isinstance(reason, str) else ""
