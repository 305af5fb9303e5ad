"""Whether work takes time in proportion to its size, on a machine that does other things too."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 15
_LEAST_S = 0.0005


def grows_in_proportion(work: Callable[[int], object], size: int, times: int = 4) -> bool:
    """Say whether `times` the size takes less than twice as many times the CPU time of this thread.

    Both are done again until it is so, and each counts by its quickest run: other work on the machine slows
    some runs, and what grows by its square is never as quick as that.
    """
    small_s = large_s = float("inf")
    for _ in range(_TRIES):
        small_s, large_s = min(small_s, _took_s(work, size)), min(large_s, _took_s(work, times * size))
        if large_s < 2 * times * max(small_s, _LEAST_S):
            return True
    return False


def _took_s(work: Callable[[int], object], size: int) -> float:
    began_s = time.thread_time()
    work(size)
    return time.thread_time() - began_s
