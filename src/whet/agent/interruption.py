"""The time limit of a turn, which pauses while a person is asked, and cancels that wait for writes to finish.

This module does not know what a turn does.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")
Pause = Callable[[], AbstractContextManager[None]]
"""Returns a context in which a turn's clock is paused."""


class TurnClock:
    """The time limit of one turn, in seconds of work; None: no limit.

    Enter it around the turn: it raises TimeoutError there when the time is used up. `around` is the pause
    of the parent turn: a question in a delegated task pauses the clocks of all turns above it.
    """

    def __init__(
        self,
        limit_s: float | None,
        around: Pause = nullcontext,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_s = now_s
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(None)
        self._around = around
        self._open_pauses = 0
        self._paused_s = 0.0
        self._paused_at_s = 0.0
        self._due_s = math.inf  # in the loop's time, without the current pause
        self._paused_at_loop_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        if self._limit_s is not None:
            self._due_s = asyncio.get_running_loop().time() + self._limit_s
            self._check_time()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = math.inf
        await self._timeout.__aexit__(kind, error, stack)

    @property
    def left_s(self) -> float | None:
        """The seconds left, or None without a limit or while the clock is paused."""
        if self._open_pauses or self._due_s == math.inf:
            return None
        return self._due_s - asyncio.get_running_loop().time()

    @property
    def paused_s(self) -> float:
        """The seconds for which the clock was paused while people were asked."""
        return self._paused_s + (self._now_s() - self._paused_at_s if self._open_pauses else 0.0)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the clock inside the context. If several contexts are open, it continues after the last."""
        with self._around():
            loop = asyncio.get_running_loop()
            self._open_pauses += 1
            if self._open_pauses == 1:
                self._paused_at_s, self._paused_at_loop_s = self._now_s(), loop.time()
            try:
                yield
            finally:
                self._open_pauses -= 1
                if not self._open_pauses:
                    self._paused_s += self._now_s() - self._paused_at_s
                    if self._paused_at_loop_s < self._due_s:
                        self._due_s += loop.time() - self._paused_at_loop_s
                    if self._timer is None:
                        self._check_time()

    def _check_time(self) -> None:
        """Expire the timeout if the time is up, else set the timer again.

        A pause does not move the timer, because most pauses are short: after one, the timer fires early
        and is set again for the remaining time.
        """
        loop, self._timer = asyncio.get_running_loop(), None
        if self._due_s == math.inf or (self._open_pauses and self._paused_at_loop_s < self._due_s):
            return  # no limit, or the end of the pause calls this again
        if loop.time() < self._due_s:
            self._timer = loop.call_at(self._due_s, self._check_time)
        else:
            self._due_s = math.inf
            self._timeout.reschedule(loop.time())


async def finish_shielded(work: Awaitable[T]) -> T:
    """Finish `work` even if this task is cancelled meanwhile, any number of times; then raise the
    cancellation."""
    return await finish_or_undo(work, None)


async def finish_or_undo(work: Awaitable[T], undo: Callable[[T], Awaitable[object]] | None) -> T:
    """Finish `work`; if this task was cancelled meanwhile, `undo` its result, then raise the cancellation.

    The caller is cancelled and never gets the result, so only `undo` can clean up after it. An error of
    `work` is lost to the cancellation.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # half-finished work would collide with the next
                await asyncio.wait([task])
        has_result = not task.cancelled() and task.exception() is None  # else asyncio reports the error
        if undo is not None and has_result:
            await finish_shielded(undo(task.result()))
        raise


async def write_uncancelled(write: Awaitable[T], finish: Callable[[], Awaitable[object]]) -> T:
    """Wait for a write. If this task is cancelled meanwhile, run `finish`, then raise the cancellation.

    The write itself continues when its waiter is cancelled. Unlike `finish_shielded`, this creates a task
    only after a cancellation.
    """
    try:
        return await write
    except asyncio.CancelledError:
        await finish_shielded(finish())
        raise
