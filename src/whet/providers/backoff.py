"""How a failed call is tried again: how often, how long, after which waits.

Exponential back-off with full jitter (AWS architecture blog, 2015), or the server's own Retry-After. An
outage (no server, a busy one, one that loads its model) is waited out for `patience_s`; what else can be
tried again (an answer that is no protocol) is tried a few times. Decides by class and status, not by words.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from whet.contract.errors import ProviderError, RateLimited, Unavailable

if TYPE_CHECKING:
    from whet.http1.machine import MachineWatch

LONGEST_WAIT_S = 60.0
_LONGEST_S = 30.0
_LONGEST_LOCAL_S = 5.0  # nobody else asks a server on this machine
_DOUBLINGS = 16  # past the longest wait, and far from a power that is no number


def _watch() -> MachineWatch:
    from whet.http1.machine import MachineWatch  # noqa: PLC0415 no call without an outage needs it

    return MachineWatch()


class Backoff(msgspec.Struct):
    """How one call is retried. Clocks, chance and sleep are injectable, so that tests need no waiting.

    `max_retries` 0: never, whatever `patience_s` is. `is_local`: the server runs on this machine.
    """

    max_retries: int
    patience_s: float = 0.0
    uniform: Callable[[float, float], float] = random.uniform
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic_s: Callable[[], float] = time.monotonic
    watch: Callable[[], MachineWatch] = _watch
    is_local: bool = False

    def wait_s(self, attempt: int, error: ProviderError, lost_s: float = 0.0) -> float | None:
        """Give the wait before retry number `attempt` (1 is the first), None where the call has failed.
        `lost_s`: how long the outage has lasted."""
        if not error.retryable:
            return None
        passes = self.max_retries > 0 and isinstance(error, Unavailable | RateLimited)
        left_s = self.patience_s - lost_s if passes else 0.0
        if attempt > self.max_retries and left_s <= 0:
            return None
        asked = error.retry_after_s if isinstance(error, Unavailable | RateLimited) else None
        if asked is None:
            longest_s = _LONGEST_LOCAL_S if self.is_local and passes else _LONGEST_S
            wait_s = self.uniform(0.0, min(longest_s, 0.5 * 2 ** min(attempt - 1, _DOUBLINGS)))
            return min(wait_s, left_s) if left_s > 0 else wait_s
        if asked > max(LONGEST_WAIT_S, left_s):
            return None
        # A little more than asked, so that sessions of one process don't all return in the same instant.
        return asked + self.uniform(0.0, 0.25)
