"""When compacting again makes no sense.

An automatic compaction that changes nothing, or after which the server still counts more than the
threshold, is ineffective; two in a row stop automatic compaction until something else changes. A turn may
have as many as it needs, but only three that leave little room. It does not know what an engine is.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        """The model or the list was changed by hand: begin anew."""
        self.__init__()

    def _strike(self, why: str) -> bool:
        self._strikes += 1
        first = not self.stopped and self._strikes >= _STRIKES
        if self._strikes >= _STRIKES:
            self.stopped = why
        return first
