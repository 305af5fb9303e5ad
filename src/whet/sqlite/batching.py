"""Pass the writes of one event loop to the lane, batching those that are ready at the same time.

Writes made in the same pass of the loop share a commit. One callback wakes all their waiters, so that the
writes that these make next share a commit again. While writes come one at a time, each is committed
directly, without going through the loop; every 32nd is queued, to see whether others have come. If the loop
serves many clients, it commits directly only as the last step of its pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from whet.contract.errors import StoreError
from whet.lanes import call_in_loop
from whet.sqlite.lane import GroupLane, Outcome, Write

After = Callable[[Any, BaseException | None], object]

_MIN_SINGLES = 2
_MAX_DIRECT = 32
_UNKNOWN = (None,)


QueuedWrite = tuple[Write, asyncio.Future[Any], After | None]
"""A write, its waiter, and `after`, which receives the result or the error on the loop's thread before the
waiter does, even if the waiter was cancelled."""


class WriteBatcher:
    """One loop's connection to the lane; used on that loop's thread only.

    `many_writers`: the loop serves many clients at once. Then every write waits for others to join, and
    batches are committed on the lane's thread. `on_commit` is called after each commit on the loop's
    thread, after every `after` callback and before any waiter continues.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: GroupLane,
        on_commit: Callable[[], object],
        *,
        many_writers: bool = False,
    ) -> None:
        self.loop = loop
        self._lane = lane
        self._on_commit = on_commit
        self._many_writers = many_writers
        # The callbacks that the loop has yet to run in this pass. asyncio does not publish this; another kind
        # of loop lacks it, and then each write is queued.
        self._still_to_run: Collection[object] = getattr(loop, "_ready", _UNKNOWN)
        self._queued: list[QueuedWrite] = []
        self._flush_is_due = False
        self._single_flushes = 0
        self._direct_left = 0

    async def write_small(self, write: Write, after: After | None) -> Any:
        """Commit a write of a few rows and return its result. A cancel stops waiting but undoes nothing."""
        outcome = self._try_direct(write) if self._direct_left and not self._queued else None
        if outcome is None:
            return await self._queue(write, after)
        result, error = outcome
        if after is not None:
            after(result, error)
        self._on_commit()
        if error is not None:
            raise error
        return result

    def _try_direct(self, write: Write) -> Outcome | None:
        """Commit a write directly, or return None if it would have to wait."""
        if self._many_writers:
            if self._still_to_run:
                return None
        else:
            self._direct_left -= 1
        outcomes = self._lane.try_here((write,))
        return outcomes[0] if outcomes is not None else None

    def _queue(self, write: Write, after: After | None) -> asyncio.Future[Any]:
        """Queue a write for the commit of this pass of the loop and return the future of its result."""
        future = self.loop.create_future()
        self._queued.append((write, future, after))
        if not self._flush_is_due:
            self._flush_is_due = True
            self.loop.call_soon(self._flush)
        return future

    async def write_large(self, write: Write) -> Any:
        """Commit a write that may take long, on the lane's thread."""
        future = self.loop.create_future()
        self._send([(write, future, None)])
        return await future

    def _flush(self) -> None:
        queued, self._queued = self._queued, []
        self._flush_is_due = len(queued) > 1
        if not queued:
            return
        self._single_flushes = self._single_flushes + 1 if len(queued) == 1 else 0
        is_alone = self._single_flushes >= _MIN_SINGLES
        self._direct_left = _MAX_DIRECT if is_alone else 0
        goes_to_thread = self._many_writers and not is_alone  # the loop continues while the disk syncs
        outcomes = None if goes_to_thread else self._lane.try_here([write for write, _, _ in queued])
        if outcomes is not None:
            self._resolve(queued, outcomes)
        else:
            self._send(queued)
        if self._flush_is_due:  # after the waiters that were just woken
            self.loop.call_soon(self._flush)

    def _send(self, queued: list[QueuedWrite]) -> None:
        def deliver(outcomes: Sequence[Outcome]) -> None:
            call_in_loop(self.loop, self._resolve, queued, outcomes)

        try:
            self._lane.put([write for write, _, _ in queued], deliver)
        except StoreError as error:
            self._resolve(queued, [(None, error)] * len(queued))

    def _resolve(self, queued: list[QueuedWrite], outcomes: Sequence[Outcome]) -> None:
        for (_, future, after), (result, error) in zip(queued, outcomes, strict=True):
            if after is not None:
                after(result, error)
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._on_commit()  # the woken waiters continue in a later pass
