"""What may interrupt a turn: its time limit, which stands still while a person is asked, and a cancel, which
waits for work that must not be cut.

It does not know what a turn does.
"""

from __future__ import annotations

import asyncio
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
        self._timeout = asyncio.timeout(limit_s)
        self._around = around
        self._askers = 0
        self._kept_s: float | None = None  # what is left while the clock stands still
        self._paused_s = 0.0
        self._stopped_at_s = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, stack)

    @property
    def left_s(self) -> float | None:
        """The seconds that are left; None without a limit, and while the clock stands still."""
        due_s = self._timeout.when()
        return None if due_s is None else due_s - asyncio.get_running_loop().time()

    @property
    def paused_s(self) -> float:
        """How long it has stood still, for a person."""
        return self._paused_s + (self._now_s() - self._stopped_at_s if self._askers else 0.0)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock inside; where several ask at once, it goes on when the last one has an answer."""
        with self._around():
            self._askers += 1
            if self._askers == 1:
                self._stopped_at_s = self._now_s()
                self._stop()
            try:
                yield
            finally:
                self._askers -= 1
                if not self._askers:
                    self._paused_s += self._now_s() - self._stopped_at_s
                if not self._askers and self._kept_s is not None:
                    self._timeout.reschedule(asyncio.get_running_loop().time() + self._kept_s)

    def _stop(self) -> None:
        left_s = self.left_s
        runs = left_s is not None and left_s > 0  # else there is no limit, or nothing can stop it any more
        self._kept_s = left_s if runs else None
        if runs:
            self._timeout.reschedule(None)


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
