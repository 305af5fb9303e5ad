"""Runs a command's coroutine on an event loop of its own, so that Ctrl-C meets it between two callbacks."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end and give its result, as asyncio.run does.

    The first Ctrl-C cancels it from the loop, and KeyboardInterrupt is raised once it has ended; the second
    raises at once. asyncio.run itself cancels inside the signal's handler, so in the middle of any callback:
    one that has just seen a future open then finds it cancelled, and fails with a stack.
    """
    interrupted = False

    async def under_signals() -> T:
        before = signal.getsignal(signal.SIGINT)
        if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
            return await work
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            del number, frame
            if interrupted:
                raise KeyboardInterrupt
            interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGINT, interrupt)
        try:
            return await work
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, before)

    try:
        return asyncio.run(under_signals())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
