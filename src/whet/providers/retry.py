"""When a failed call is tried again, and after how long. Pure, but for the two things that are handed in.

Exponential back-off with full jitter (AWS architecture blog, 2015): a random wait between 0 and the cap
of the attempt. A server's own Retry-After is honoured up to 60 s; a longer one fails at once, because a
person is waiting and another key or model may answer now.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from whet.contract.errors import ProviderError, RateLimited

LONGEST_WAIT_S = 60.0


class Backoff:
    """How one call is retried. `uniform` and `sleep` are injectable, so that tests need no waiting."""

    def __init__(
        self,
        max_retries: int,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._max_retries = max_retries
        self._uniform = uniform
        self.sleep = sleep

    def wait_s(self, attempt: int, error: ProviderError) -> float | None:
        """Give the wait before retry number `attempt` (1 is the first), None where the call has failed."""
        if not error.retryable or attempt > self._max_retries:
            return None
        asked = error.retry_after_s if isinstance(error, RateLimited) else None
        if asked is None:
            return self._uniform(0.0, min(30.0, 0.5 * 2 ** (attempt - 1)))
        if asked > LONGEST_WAIT_S:
            return None
        # A little more than asked, so that sessions of one process don't all return in the same instant.
        return asked + self._uniform(0.0, 0.25)
