"""Wait between the attempts of a call during an outage.

A wait ends early if the machine was asleep or its network changed, because the server may be reachable
again. After a sleep `patience_s` starts over, because nobody waited during the sleep. Loaded when a call has
failed.
"""

from __future__ import annotations

import math

import msgspec

from whet.contract.errors import ProviderError, RateLimited, Unavailable
from whet.contract.events import Retry, StreamRestarted
from whet.http1.machine import MachineWatch
from whet.providers.backoff import Backoff
from whet.providers.http import Key, KeyPool

_POLL_S = 1.0


class Outage:
    """The failures of one call. The time in which the model streamed an answer does not count.

    `notices` and `warnings` are lines for the person: changes of key and dialect, and tools that were cut.
    """

    def __init__(self, backoff: Backoff, keys: KeyPool) -> None:
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self._backoff = backoff
        self._keys = keys
        self._watch: MachineWatch | None = None
        self._lost_s = 0.0
        self._wait_s = 0.0
        self._retries = 0

    def note_failure(
        self, failure: ProviderError, key: Key, began_s: float | None
    ) -> list[StreamRestarted | Retry]:
        """Record an attempt that failed with `key`, and return the events to show before the next one.

        `began_s`: its start time, or None if part of an answer was shown. Raises `failure` if there is no
        next attempt.
        """
        backoff = self._backoff
        if began_s is not None and self._retries:  # the time before the first failure does not count
            self._lost_s += backoff.monotonic_s() - began_s
        notice = self._keys.rotate(key, failure)
        if notice is not None:
            self.notices.append(notice)
            wait_s: float | None = 0.0
        else:
            self._retries += 1
            wait_s = backoff.wait_s(self._retries, failure, self._lost_s)
        if wait_s is None:
            raise _add_wait_hint(failure)
        self._wait_s = wait_s
        left_s = max(backoff.patience_s - self._lost_s, 0.0)
        reason = notice or failure.message
        retry = Retry(max(self._retries, 1), wait_s, reason, left_s, "" if notice else failure.hint)
        if began_s is not None:
            if isinstance(failure, Unavailable) and failure.retry_after_s is None:
                retry = msgspec.structs.replace(retry, status=failure.status or 0)
            return [retry]
        return [StreamRestarted(reason), *([retry] if wait_s and left_s else [])]

    async def wait(self) -> None:
        """Wait, ending early if the machine woke up or its network changed."""
        backoff, seconds = self._backoff, self._wait_s
        if not backoff.patience_s:
            if seconds:
                await backoff.sleep(seconds)
            return
        watch = self._watch = self._watch or backoff.watch()
        began_s = backoff.monotonic_s()
        while (left_s := seconds - (backoff.monotonic_s() - began_s)) > 0.001:
            await backoff.sleep(min(left_s, _POLL_S))
            change = watch.poll()
            if change == "resumed":
                self._lost_s, self._retries = 0.0, 1
                return
            if change == "network":
                break
        self._lost_s += backoff.monotonic_s() - began_s


def _add_wait_hint(failure: ProviderError) -> ProviderError:
    """Add the time to its hint for which the server wants no request, if it named one. Returns the
    failure."""
    wait_s = failure.retry_after_s if isinstance(failure, Unavailable | RateLimited) else None
    if wait_s:
        unit, unit_s = ("h", 3_600) if wait_s >= 7_200 else ("min", 60) if wait_s >= 120 else ("s", 1)
        line = f"the server wants no request for {math.ceil(wait_s / unit_s)} {unit}"
        failure.hint = "; ".join(filter(None, (failure.hint, line)))
    return failure
