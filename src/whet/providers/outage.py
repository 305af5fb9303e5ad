"""An outage in the middle of a call: how long it has lasted, and the wait until the next try.

A wait is cut short when the machine was asleep or its network changed: the server may be back in reach now.
After a sleep the patience begins anew, since nobody waited meanwhile. Loaded when a call has failed.
"""

from __future__ import annotations

from whet.contract.errors import ProviderError
from whet.http1.machine import MachineWatch
from whet.providers.backoff import Backoff

_LOOK_S = 1.0


class Outage:
    """The failures of one call. Time in which the model streamed an answer is not counted."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._watch: MachineWatch | None = None
        self._lost_s = 0.0
        self.retries = 0

    @property
    def left_s(self) -> float:
        """How long the call will still be tried."""
        return max(self._backoff.patience_s - self._lost_s, 0.0)

    def lost(self, seconds: float) -> None:
        """Count a try that brought nothing; what comes before the first failure is no part of an outage."""
        if self.retries:
            self._lost_s += seconds

    def next_wait_s(self, error: ProviderError) -> float | None:
        """Give the wait before the next try; None where the call has failed."""
        self.retries += 1
        return self._backoff.wait_s(self.retries, error, self._lost_s)

    async def wait(self, seconds: float) -> None:
        """Wait, or less where the machine woke up or its network changed."""
        backoff = self._backoff
        if not backoff.patience_s:
            await backoff.sleep(seconds)
            return
        watch = self._watch = self._watch or backoff.watch()
        began_s = backoff.monotonic_s()
        while (left_s := seconds - (backoff.monotonic_s() - began_s)) > 0.001:
            await backoff.sleep(min(left_s, _LOOK_S))
            news = watch.look()
            if news == "resumed":
                self._lost_s, self.retries = 0.0, 1
                return
            if news == "network":
                break
        self._lost_s += backoff.monotonic_s() - began_s
