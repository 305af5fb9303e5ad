"""The circuit breaker of one channel: after repeated failures no calls are made for a while.

Pure: the time is passed in as seconds.
"""

from __future__ import annotations

_THRESHOLD = 4
_FIRST_PAUSE_S = 15.0
_LONGEST_PAUSE_S = 300.0


class Breaker:
    """Closed: calls are allowed. Open: no calls until `open_until_s`. Then one call decides."""

    def __init__(self) -> None:
        self._failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self.open_until_s = 0.0
        self.reason = ""

    def wait_s(self, now_s: float) -> float:
        """Return how long no call may be made, or 0 if one may."""
        return max(0.0, self.open_until_s - now_s)

    def record_success(self) -> None:
        """Record a successful call and reset the breaker."""
        self._failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self.open_until_s = 0.0
        self.reason = ""

    def record_failure(self, now_s: float, reason: str, retry_after_s: float | None = None) -> None:
        """Record a failed call. `retry_after_s` is the vendor's own delay and is followed."""
        self._failures += 1
        self.reason: str = reason
        if retry_after_s is not None:
            self.open_until_s = max(self.open_until_s, now_s + retry_after_s)
        if self._failures >= _THRESHOLD:
            self.open_until_s: float = max(self.open_until_s, now_s + self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    @property
    def is_open(self) -> bool:
        """Whether the channel counts as broken, as the page shows it."""
        return self._failures >= _THRESHOLD


def retry_delay_s(attempts: int, spread: float) -> float:
    """Return the wait after this many failures: 1, 2, 4 ... 60 s, less up to a quarter by `spread`."""
    return min(2.0 ** min(max(attempts - 1, 0), 10), 60.0) * (1 - 0.25 * spread)
