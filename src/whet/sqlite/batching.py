"""Pass the writes of one event loop to the lane, batching those that are ready at the same time.

Writes made in the same pass of the loop are committed together, and their waiters are woken by one
callback; their next writes go into the next commit, in that same pass. While writes come one at a time,
each is committed directly, without going through the loop; now and then one is queued, to see whether
others have come. If the loop serves many clients, it commits directly only as the last step of its pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from whet.contract.errors import StoreError
from whet.lanes import call_in_loop
from whet.sqlite.lane import GroupLane, Outcome, Work

After = Callable[[Any, BaseException | None], object]

_MIN_SINGLES = 2
_MAX_DIRECT = 32
_UNKNOWN = (None,)


Write = tuple[Work, asyncio.Future[Any], After | None]
"""A queued write: the work, its waiter, and `after`, which receives the result or the error on the loop's
thread before the waiter does, even if the waiter was cancelled."""


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
        self._committed = on_commit
        self._many_writers = many_writers
        # The callbacks that the loop has yet to run in this pass. asyncio does not publish this; another kind
        # of loop lacks it, and then each write is queued.
        self._still_to_run: Collection[object] = getattr(loop, "_ready", _UNKNOWN)
        self._writes: list[Write] = []
        self._flush_is_due = False
        self._singles = 0
        self._at_once = 0

    async def write_small(self, work: Work, after: After | None) -> Any:
        """Commit a write of a few rows and return its result. A cancel stops waiting but undoes nothing."""
        done = self._try_direct(work) if self._at_once and not self._writes else None
        if done is None:
            return await self._queue(work, after)
        result, error = done
        if after is not None:
            after(result, error)
        self._committed()
        if error is not None:
            raise error
        return result

    def _try_direct(self, work: Work) -> Outcome | None:
        """Commit a write directly if recent writes came alone. Returns None if nothing was done."""
        if self._many_writers:
            if self._still_to_run:
                return None
        else:
            self._at_once -= 1
        outcomes = self._lane.try_here((work,))
        return outcomes[0] if outcomes is not None else None

    def _queue(self, work: Work, after: After | None) -> asyncio.Future[Any]:
        """Commit a write of a few rows with all others of this pass; the future is its result."""
        future = self.loop.create_future()
        self._writes.append((work, future, after))
        if not self._flush_is_due:
            self._flush_is_due = True
            self.loop.call_soon(self._flush)
        return future

    async def write_large(self, work: Work) -> Any:
        """Commit a write that may take long, on the lane's thread."""
        future = self.loop.create_future()
        self._send([(work, future, None)])
        return await future

    def _flush(self) -> None:
        writes, self._writes = self._writes, []
        self._flush_is_due = len(writes) > 1
        if not writes:
            return
        self._singles = self._singles + 1 if len(writes) == 1 else 0
        is_alone = self._singles >= _MIN_SINGLES
        self._at_once = _MAX_DIRECT if is_alone else 0
        goes_aside = self._many_writers and not is_alone  # the loop continues while the disk syncs
        outcomes = None if goes_aside else self._lane.try_here([work for work, _, _ in writes])
        if outcomes is not None:
            self._resolve(writes, outcomes)
        else:
            self._send(writes)
        if self._flush_is_due:  # after the waiters that were just woken
            self.loop.call_soon(self._flush)

    def _send(self, writes: list[Write]) -> None:
        def deliver(outcomes: Sequence[Outcome]) -> None:
            call_in_loop(self.loop, self._resolve, writes, outcomes)

        try:
            self._lane.put([work for work, _, _ in writes], deliver)
        except StoreError as error:
            self._resolve(writes, [(None, error)] * len(writes))

    def _resolve(self, writes: list[Write], outcomes: Sequence[Outcome]) -> None:
        for (_, future, after), (result, error) in zip(writes, outcomes, strict=True):
            if after is not None:
                after(result, error)
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._committed()  # the woken waiters continue in a later pass
