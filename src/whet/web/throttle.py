"""Counts wrong secrets by address.

A right secret is never limited here: 256 bits can't be guessed, and one person on an address must not be
able to lock others out.
"""

from __future__ import annotations

from collections import OrderedDict, deque

_WINDOW_S, _ADDRESSES = 60.0, 10_000


class Throttle:
    """Makes an address wait after `limit` wrong secrets in a minute. Addresses idle for longest are dropped
    first."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def record_failure(self, address: str, now_s: float) -> float:
        """Count a failure and return how long the address must wait, or 0.0 if it need not.

        Failures while it must wait are not counted, so that the wait ends.
        """
        stamps = self._failures.setdefault(address, deque(maxlen=self._most))
        self._failures.move_to_end(address)
        if len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)
        if len(stamps) == self._most and stamps[0] > now_s - _WINDOW_S:
            return max(1.0, stamps[0] + _WINDOW_S - now_s)
        stamps.append(now_s)
        return 0.0

    def count_recent(self, address: str, now_s: float) -> int:
        """Return how many failures of an address count now."""
        return sum(at > now_s - _WINDOW_S for at in self._failures.get(address, ()))
