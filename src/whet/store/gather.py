"""Brings the writes of one event loop to the lane, all that are ready at once as one batch.

Writes made in the same pass of the loop are committed together and their waiters woken by one callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import apsw

from whet.store.lane import Lane, Outcome, Work


class Gather:
    """One loop's way to the lane; used on that loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lane: Lane) -> None:
        self.loop = loop
        self._lane = lane
        self._works: list[Work] = []
        self._futures: list[asyncio.Future[Any]] = []

    def add(self, work: Callable[[apsw.Connection], Any]) -> asyncio.Future[Any]:
        """Take a small write; the future is done after its commit. Cancelling it undoes nothing."""
        future = self.loop.create_future()
        self._works.append(work)
        self._futures.append(future)
        if len(self._works) == 1:
            self.loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        works, futures = self._works, self._futures
        self._works, self._futures = [], []
        outcomes = self._lane.try_here(works)
        if outcomes is not None:
            _resolve(futures, outcomes)
        else:
            self.send(works, futures)

    def send(self, works: list[Work], futures: list[asyncio.Future[Any]]) -> None:
        """Put writes on the lane's thread, where they may take long."""

        def deliver(outcomes: list[Outcome]) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(_resolve, futures, outcomes)

        self._lane.put(works, deliver)


def _resolve(futures: list[asyncio.Future[Any]], outcomes: list[Outcome]) -> None:
    for future, (result, error) in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
