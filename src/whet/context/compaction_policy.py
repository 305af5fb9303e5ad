"""Stop automatic compaction when further attempts are pointless.

An automatic compaction is ineffective if it changes nothing or if the server still counts more than the
threshold afterwards. Two ineffective ones in a row stop automatic compaction until the conversation has grown
well beyond its size, the server counts less than the threshold, or the model or the list changes. A
compaction that an engine asks for below the threshold, to maintain its store, does not count. Of the
compactions of a turn, at most three may leave little room.
"""

from __future__ import annotations

from collections.abc import Sequence

_STRIKES = 2
_POOR_PER_TURN = 3
_ROOM = 0.75  # of the threshold: a compaction that leaves more tokens leaves little room


class CircuitBreaker:
    """Counts ineffective compactions of one session."""

    def __init__(self) -> None:
        self.stopped = ""
        self._strikes = 0
        self._in_turn = 0
        self._is_unmeasured = False
        self._again_at_tokens = 0
        self._is_wanted = True
        self._is_above = False

    def new_turn(self) -> None:
        """Start a turn: three poor compactions are allowed again."""
        self._in_turn = 0

    def begin(self, phase: str, tokens: int, threshold: int) -> bool:
        """Start an automatic compaction at `tokens`, and return whether it may be tried.

        It counts if the engine asks because of the size, or if the size has reached the `threshold`.
        """
        self._is_wanted = phase == "threshold" or tokens >= threshold
        return self.allows(tokens)

    def allows(self, tokens: int) -> bool:
        """Return whether an automatic compaction may be tried at `tokens`.

        After a compaction it is not allowed until the server has counted. After ineffective attempts one more
        is allowed when the conversation has grown well beyond its size at that time.
        """
        if self._is_unmeasured or self._in_turn >= _POOR_PER_TURN:
            return False
        return not self.stopped or 0 < self._again_at_tokens <= tokens

    def note_idle(self, tokens: int, window: int) -> bool:
        """Count an attempt that changed nothing. Returns True if automatic compaction stops now."""
        if not self._take_wanted():
            return False
        self._again_at_tokens: int = _retry_size(tokens, window)
        self._is_above: bool = False
        return self._strike("nothing could be made smaller")

    def note_compaction(self, *, grew: bool = False) -> bool:
        """Count a compaction. The server's next count shows whether it was effective, unless the conversation
        `grew`. Returns True if automatic compaction stops now."""
        self._in_turn += 1
        if not self._take_wanted():
            return False
        self._is_unmeasured: bool = not grew
        return grew and self._strike("its compactions made the conversation larger")

    def note_count(self, tokens: int, threshold: int) -> bool:
        """Take the server's count. Returns True if automatic compaction stops now."""
        if not self._is_unmeasured:
            if self._is_above and tokens < threshold:
                self._strikes, self.stopped, self._again_at_tokens, self._is_above = 0, "", 0, False
            return False
        self._is_unmeasured = False
        if not threshold or tokens < threshold:
            self._strikes, self.stopped, self._again_at_tokens, self._is_above = 0, "", 0, False
            if not threshold or tokens <= threshold * _ROOM:
                self._in_turn -= 1
            return False
        self._again_at_tokens = _retry_size(tokens, threshold)
        self._is_above = True
        return self._strike(f"{tokens:,} tokens are left, still above the threshold of {threshold:,}")

    def restore(self, counts: Sequence[int], threshold: int) -> bool:
        """Restore the state of an earlier process from the server's counts after the last compactions, oldest
        first.

        Returns True if automatic compaction is stopped.
        """
        for count in counts:
            self._is_unmeasured = True
            self.note_count(count, threshold)
        self.new_turn()
        return bool(self.stopped)

    def reset(self) -> None:
        """Forget all attempts, because the model has changed or a person has compacted by hand."""
        self.__init__()

    def _take_wanted(self) -> bool:
        """Return whether the current compaction counts, and let the next one count."""
        is_wanted, self._is_wanted = self._is_wanted, True
        return is_wanted

    def _strike(self, why: str) -> bool:
        self._strikes += 1
        first = not self.stopped and self._strikes >= _STRIKES
        if self._strikes >= _STRIKES:
            self.stopped: str = why
        return first


def _retry_size(tokens: int, limit: int) -> int:
    """Return the size at which a conversation has grown well beyond `tokens`. `limit` is the window or the
    threshold."""
    return tokens + max(4096, limit // 20)
