"""Brings the writes of one event loop to the lane, all that are ready at once as one batch.

Writes made in the same pass of the loop are committed together and their waiters woken by one callback;
what these write at once goes into the next commit, in that same pass. While no two writes ever meet, a write
is committed at once, without a detour over the loop; every now and then one takes the detour, to see whether
others have come. Where the loop serves many clients, it does so only as the last of its pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from whet.contract.errors import StoreError
from whet.lanes import tell_loop
from whet.sqlite.lane import Outcome, Work, WriterLane

After = Callable[[Any, BaseException | None], object]

_SINGLES_MEAN_ALONE = 2
_AT_ONCE = 32
_UNKNOWN = (None,)


Write = tuple[Work, asyncio.Future[Any], After | None]
"""A write on its way: the work, its waiter, and `after`, which gets the result or the error on the loop's
thread before the waiter does, and also where the waiter has gone."""


class WriteBatcher:
    """One loop's way to the lane; used on that loop's thread only.

    `many_writers`: the loop serves many clients at once. Then no write is committed without looking for
    others, and what comes together is committed on the lane's thread. `committed` is called after each commit
    on the loop's thread, once every `after` was, and before any waiter goes on.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: WriterLane,
        committed: Callable[[], object],
        *,
        many_writers: bool = False,
    ) -> None:
        self.loop = loop
        self._lane = lane
        self._committed = committed
        self._many_writers = many_writers
        # What the loop has yet to run in this pass: asyncio's own, which tells it nowhere else. Another kind
        # of loop has none, and each write takes the detour.
        self._still_to_run: Collection[object] = getattr(loop, "_ready", _UNKNOWN)
        self._writes: list[Write] = []
        self._flush_is_due = False
        self._singles = 0
        self._at_once = 0

    async def small(self, work: Work, after: After | None) -> Any:
        """Commit a write of a few rows and give its result. A cancel leaves, and undoes nothing."""
        done = self._try_at_once(work) if self._at_once and not self._writes else None
        if done is None:
            return await self._queue(work, after)
        result, error = done
        if after is not None:
            after(result, error)
        self._committed()
        if error is not None:
            raise error
        return result

    def _try_at_once(self, work: Work) -> Outcome | None:
        """Commit a write here and now, as none has met another lately; None: nothing was done."""
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

    async def large(self, work: Work) -> Any:
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
        is_alone = self._singles >= _SINGLES_MEAN_ALONE
        self._at_once = _AT_ONCE if is_alone else 0
        goes_aside = self._many_writers and not is_alone  # the loop works on while the disk syncs
        outcomes = None if goes_aside else self._lane.try_here([work for work, _, _ in writes])
        if outcomes is not None:
            self._resolve(writes, outcomes)
        else:
            self._send(writes)
        if self._flush_is_due:  # behind the waiters that were just woken
            self.loop.call_soon(self._flush)

    def _send(self, writes: list[Write]) -> None:
        def deliver(outcomes: Sequence[Outcome]) -> None:
            tell_loop(self.loop, self._resolve, writes, outcomes)

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
        self._committed()  # those who were woken go on in a later pass
