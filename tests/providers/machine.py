"""A machine whose time passes when somebody sleeps, with a lid that closes and a network that changes."""

from __future__ import annotations

import asyncio

from whet.http1.machine import MachineWatch
from whet.providers.backoff import Backoff


class Machine:
    """A machine whose time passes when somebody sleeps; `at` says what happens when."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asleep_s = 0.0
        self.address = "10.0.0.1"
        self.at: dict[float, object] = {}
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.slept.append(seconds)
        self.now_s += seconds
        for moment in sorted(self.at):
            if moment <= self.now_s:
                happens = self.at.pop(moment)
                assert callable(happens)
                happens()

    def watch(self) -> MachineWatch:
        return MachineWatch(
            wall_s=lambda: self.now_s + self.asleep_s,
            monotonic_s=lambda: self.now_s,
            source=lambda: self.address,
        )

    def backoff(self, patience_s: float, retries: int = 4) -> Backoff:
        return Backoff(
            retries,
            patience_s=patience_s,
            uniform=lambda low, high: high,
            sleep=self.sleep,
            monotonic_s=lambda: self.now_s,
            watch=self.watch,
        )
