"""The service's time: the wall clock, except that it never goes back.

Deadlines are points on this timeline. While the process runs, setting the wall clock back has no effect,
because elapsed time is measured by a clock that also counts while the machine sleeps. After a restart the
timeline continues from the newest time in the database (`floor_s`) if the wall clock is behind it. If the
wall clock is set forward by less than a day, the timeline follows: requests then expire early, which is
the safe side. A larger jump counts as a clock error and has no effect until the next start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

_LONGEST_LEAP_S = 86_400.0


_SINCE_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_elapsed_s = partial(time.clock_gettime, _SINCE_BOOT)


class Timeline:
    """Returns Unix seconds, rounded to milliseconds, that never decrease."""

    def __init__(
        self,
        floor_s: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = _elapsed_s,
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._base_s = max(wall(), floor_s)
        self._began_s = elapsed()
        self._last_s = 0.0

    def now_s(self) -> float:
        """Return the current time in Unix seconds."""
        now_s, wall_s = self._base_s + self._elapsed() - self._began_s, self._wall()
        if now_s < wall_s < now_s + _LONGEST_LEAP_S:
            now_s = wall_s
        if now_s < self._last_s:
            return self._last_s
        if now_s > self._last_s + 1.0:
            # Followed the wall clock forward (or a pause): from here on count the elapsed time.
            self._base_s, self._began_s = now_s, self._elapsed()
        self._last_s = now_s = round(now_s, 3)
        return now_s

    def raise_floor(self, floor_s: float) -> None:
        """Continue from `floor_s` at least, because another process on the same database is ahead."""
        self._last_s = max(self._last_s, floor_s)
