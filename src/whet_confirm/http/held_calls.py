"""Limits the calls that stay open, event streams and long polls, by principal.

Each open call takes a file descriptor, and without descriptors the service answers no one. One principal may
hold a quarter of them, all agents together half, and all callers together three quarters. So people can
always decide, and short calls are always answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from whet.web.protocol import file_limit
from whet_confirm.http.wire import HttpRefusal
from whet_confirm.records import Caller

_HEADERS = [(b"retry-after", b"5"), (b"connection", b"close")]


class HeldCalls:
    """The calls that are open now."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._total = 0
        self._agents = 0

    @contextmanager
    def hold(self, caller: Caller) -> Generator[None]:
        """Count a call while it is open. Raises HttpRefusal (429) if too many are open."""
        files, is_agent = file_limit(), not caller.may("approve")
        if self._open[caller.name] >= files // 4 or self._total >= files * 3 // 4:
            raise HttpRefusal(429, "too many streams and waits are open", headers=_HEADERS)
        if is_agent and self._agents >= files // 2:
            raise HttpRefusal(429, "agents have too many streams and waits open", headers=_HEADERS)
        self._open[caller.name] += 1
        self._total += 1
        self._agents += is_agent
        try:
            yield
        finally:
            self._agents -= is_agent
            self._total -= 1
            self._open[caller.name] -= 1
            if not self._open[caller.name]:
                del self._open[caller.name]
