"""Cut an answer that does not end: one that repeats itself, or passes the cap.

Only exact, long repetitions count; a long list of similar lines is a valid answer. This module does not know
where the text comes from.
"""

from __future__ import annotations

from whet.contract.errors import Rambled

_REPEATED_CHARS = 6_000
_TIMES = 8
_CHECK_EVERY_CHARS = 2_000
_NEEDLE_CHARS = 48
_KEPT_TIMES = 2


class AnswerGuard:
    """Watches one answer as it arrives, text and reasoning separately; `cap_chars` 0: no cap."""

    def __init__(self, cap_chars: int) -> None:
        self._cap_chars = cap_chars
        self.text: str = ""
        self._pieces: list[str] = []
        self._size = self._checked_chars = 0

    def feed(self, piece: str) -> None:
        """Add a piece of the answer. Raises Rambled to cut the answer; `text` is then the part to keep."""
        self._pieces.append(piece)
        self._size += len(piece)
        is_over = 0 < self._cap_chars < self._size
        if not is_over and self._size - self._checked_chars < _CHECK_EVERY_CHARS:
            return
        self._checked_chars = self._size
        self.text += "".join(self._pieces)
        self._pieces.clear()
        if is_over:
            self.text = self.text[: self._cap_chars]
            raise Rambled(
                f"the answer passed {self._cap_chars:,} characters and was cut",
                hint="agent.answer_cap_chars sets the limit; say: go on",
            )
        if period := find_period(self.text):
            self.text = _trim_repetitions(self.text, period)
            raise Rambled(
                f"the model repeated itself and was cut; the last {period:,} characters came over and over",
                hint="ask again; another model or a larger window may help",
            )

    def all_text(self) -> str:
        """Return all text received so far."""
        return self.text + "".join(self._pieces)


def find_period(text: str) -> int:
    """Return the length of the passage that the end of `text` repeats, or 0 if it is not repeated often
    enough."""
    needle = text[-_NEEDLE_CHARS:]
    period = len(text) - _NEEDLE_CHARS - text.rfind(needle, None, -1)
    required_chars = max(_REPEATED_CHARS, period * _TIMES)
    if len(text) < required_chars + period:
        return 0
    return period if text[-required_chars:] == text[-required_chars - period : -period] else 0


def _trim_repetitions(text: str, period: int) -> str:
    """Return the text with only the first repetitions: a model that reads all of them continues them."""
    start = len(text) - period
    while start >= period and text[start - period : start] == text[start : start + period]:
        start -= period
    return text[: start + _KEPT_TIMES * period]
