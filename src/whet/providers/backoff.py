"""Decide how a failed call is retried: how often, for how long, and after which waits.

Exponential back-off with full jitter (AWS architecture blog, 2015), or the server's own Retry-After. During
an outage (no server, a busy one, one that is loading its model) it retries for up to `patience_s`. Other
retryable failures, such as an answer that does not follow the protocol, are retried a few times. Decides by
error class and status, not by message text.
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
_MAX_LOCAL_S = 5.0  # a local server has no other clients to wait for
_DOUBLINGS = 16  # more than the longest wait needs; without a limit, the power would overflow


def _watch() -> MachineWatch:
    from whet.http1.machine import MachineWatch  # noqa: PLC0415 no call without an outage needs it

    return MachineWatch()


class Backoff(msgspec.Struct):
    """The rules for retrying one call. Clocks, randomness and sleep can be injected, so that tests don't
    wait.

    `max_retries` 0: never retries, even with `patience_s`. `is_local`: the server runs on this machine.
    """

    max_retries: int
    patience_s: float = 0.0
    uniform: Callable[[float, float], float] = random.uniform
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic_s: Callable[[], float] = time.monotonic
    watch: Callable[[], MachineWatch] = _watch
    is_local: bool = False

    def wait_s(self, attempt: int, error: ProviderError, lost_s: float = 0.0) -> float | None:
        """Return the wait before retry number `attempt` (1 is the first) in seconds, or None if the call has
        failed.

        `lost_s`: how long the outage has lasted.
        """
        if not error.retryable:
            return None
        is_outage = self.max_retries > 0 and isinstance(error, Unavailable | RateLimited)
        left_s = self.patience_s - lost_s if is_outage else 0.0
        if attempt > self.max_retries and left_s <= 0:
            return None
        requested_s = error.retry_after_s if isinstance(error, Unavailable | RateLimited) else None
        if requested_s is None:
            longest_s = _MAX_LOCAL_S if self.is_local and is_outage else _LONGEST_S
            wait_s = self.uniform(0.0, min(longest_s, 0.5 * 2 ** min(attempt - 1, _DOUBLINGS)))
            return min(wait_s, left_s) if left_s > 0 else wait_s
        if requested_s > max(LONGEST_WAIT_S, left_s):
            return None
        # A little more than the server asked for, so that sessions of one process don't all retry at the same
        # moment.
        return requested_s + self.uniform(0.0, 0.25)
