"""What may interrupt a turn: its time limit, which stands still while a person is asked, and a cancel, which
waits for work that must not be cut.

It does not know what a turn does.
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
"""Makes a context in which a turn's clock stands still."""


class TurnClock:
    """The time limit of one turn, in seconds of work; None: without a limit.

    Enter it around the turn: it raises TimeoutError there when the time is used up. `around` is the pause of
    the turn that started this one: whoever is asked in a delegated task stops the clocks up to the root.
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
        self._askers = 0
        self._paused_s = 0.0
        self._stopped_at_s = 0.0
        self._due_s = math.inf  # in the loop's time, without the pause that lasts
        self._held_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        if self._limit_s is not None:
            self._due_s = asyncio.get_running_loop().time() + self._limit_s
            self._look()
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
        """The seconds that are left; None without a limit, and while the clock stands still."""
        if self._askers or self._due_s == math.inf:
            return None
        return self._due_s - asyncio.get_running_loop().time()

    @property
    def paused_s(self) -> float:
        """How long it has stood still, for a person."""
        return self._paused_s + (self._now_s() - self._stopped_at_s if self._askers else 0.0)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock inside; where several ask at once, it goes on when the last one has an answer."""
        with self._around():
            loop = asyncio.get_running_loop()
            self._askers += 1
            if self._askers == 1:
                self._stopped_at_s, self._held_at_s = self._now_s(), loop.time()
            try:
                yield
            finally:
                self._askers -= 1
                if not self._askers:
                    self._paused_s += self._now_s() - self._stopped_at_s
                    if self._held_at_s < self._due_s:
                        self._due_s += loop.time() - self._held_at_s
                    if self._timer is None:
                        self._look()

    def _look(self) -> None:
        """End the turn where its time is up. A pause moves no timer: most are over at once, so this one comes
        too early where there were any, and waits for the rest."""
        loop, self._timer = asyncio.get_running_loop(), None
        if self._due_s == math.inf or (self._askers and self._held_at_s < self._due_s):
            return  # there is no limit, or the pause's end looks again
        if loop.time() < self._due_s:
            self._timer = loop.call_at(self._due_s, self._look)
        else:
            self._due_s = math.inf
            self._timeout.reschedule(loop.time())


async def shielded(work: Awaitable[T]) -> T:
    """Finish `work` however often this task is cancelled meanwhile; the cancel is raised afterwards."""
    return await or_undone(work, None)


async def or_undone(work: Awaitable[T], undo: Callable[[T], Awaitable[object]] | None) -> T:
    """Finish `work`; where this task was cancelled meanwhile, `undo` what it gave, then raise the cancel.

    Without the undoing nobody would ever learn what was given. An error of `work` is lost to the cancel.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # half done, it would meet what comes next
                await asyncio.wait([task])
        if undo is not None and not task.cancelled() and not task.exception():
            await shielded(undo(task.result()))
        raise


async def then_late(write: Awaitable[T], late: Callable[[], Awaitable[object]]) -> T:
    """Wait for a write, which goes on where its waiter is cancelled; there do all of `late`, then raise the
    cancel. Without one it costs nothing: `shielded` takes a task."""
    try:
        return await write
    except asyncio.CancelledError:
        await shielded(late())
        raise
