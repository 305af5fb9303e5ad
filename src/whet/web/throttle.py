"""Limit wrong secrets by address.

A right secret is never refused: 256 bits can't be guessed, and nobody must be able to lock out others who
share the address.
"""

from __future__ import annotations

from collections import OrderedDict, deque

_WINDOW_S, _ADDRESSES = 60.0, 10_000


class Throttle:
    """Makes an address wait after `limit` wrong secrets in a minute. Remembers the latest 10,000
    addresses."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def record_failure(self, address: str, now_s: float) -> float:
        """Count a failure and return how many seconds the address must wait, or 0.0.

        Failures during a wait are not counted, so that the wait ends.
        """
        stamps = self._failures.setdefault(address, deque(maxlen=self._limit))
        self._failures.move_to_end(address)
        if len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)
        if len(stamps) == self._limit and stamps[0] > now_s - _WINDOW_S:
            return max(1.0, stamps[0] + _WINDOW_S - now_s)
        stamps.append(now_s)
        return 0.0

    def count_recent(self, address: str, now_s: float) -> int:
        """Return how many failures an address had in the last minute."""
        return sum(at > now_s - _WINDOW_S for at in self._failures.get(address, ()))
