"""Whether work takes time in proportion to its size, on a machine that does other things too."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 15
_LEAST_S = 0.0002


def grows_in_proportion(work: Callable[[int], object], size: int) -> bool:
    """Say whether sixteen times the size takes less than 64 times the CPU time of this thread.

    What grows by its square takes 256 times as long. Both are done again until it is so, and each counts by
    its quickest run: other work on the machine slows some runs, long ones more than short ones.
    """
    small_s = large_s = float("inf")
    for _ in range(_TRIES):
        small_s, large_s = min(small_s, _took_s(work, size)), min(large_s, _took_s(work, 16 * size))
        if large_s < 64 * max(small_s, _LEAST_S):
            return True
    return False


def _took_s(work: Callable[[int], object], size: int) -> float:
    began_s = time.thread_time()
    work(size)
    return time.thread_time() - began_s
