"""Work that a cancel does not undo: it is finished first, and the cancel is raised afterwards.

It does not know what is being finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


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
