"""Make threads late at random, as a busy machine does, to find tests and code that rest on who comes first.

    make test ARGS="-p tests.jitter"

Work handed to a thread begins late, what a thread hands back arrives late, new threads start late, and the
event loop stops now and then. One in a few hundred is late by a third of a second, which no test may mind
that doesn't wait for what it asserts. `JITTER_SEED` repeats the delays of one process, as far as its threads
come in the same order.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from selectors import DefaultSelector
from typing import Any

# The share of crossings and the longest delay of them, in seconds.
_CROSSINGS = ((0.003, 0.3), (0.02, 0.05), (0.15, 0.005))
_BEATS = ((0.0005, 0.2), (0.005, 0.02))
_SEED = int(os.environ.get("JITTER_SEED") or random.SystemRandom().randrange(10**6))
_random = random.Random(_SEED)


def _late(shares: tuple[tuple[float, float], ...]) -> None:
    drawn = _random.random()
    for share, longest_s in shares:
        if drawn < share:
            time.sleep(_random.random() * longest_s)
            return
        drawn -= share


class LateQueue:
    """A queue whose getter comes to it late."""

    def __init__(self, make: Callable[[], Any] = queue.SimpleQueue) -> None:
        self.queue = make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = self.queue.get(block, timeout)
        _late(_CROSSINGS)
        return item


def _before(original: Callable[..., Any], shares: tuple[tuple[float, float], ...]) -> Callable[..., Any]:
    def late(*args: Any, **keywords: Any) -> Any:
        _late(shares)
        return original(*args, **keywords)

    return late


def _starting_late(thread: threading.Thread) -> None:
    run = thread.run

    def late() -> None:
        _late(_CROSSINGS)
        run()

    thread.run = late  # type: ignore[method-assign]
    _start(thread)


_start = threading.Thread.start


def pytest_report_header() -> str:
    """Say which delays these are."""
    return f"jitter: JITTER_SEED={_SEED}"


# Here and not in a hook: conftest imports the code under test before the first hook that could do it.
queue.SimpleQueue = LateQueue  # type: ignore[misc,assignment]
threading.Thread.start = _starting_late  # type: ignore[method-assign]
BaseEventLoop.call_soon_threadsafe = _before(BaseEventLoop.call_soon_threadsafe, _CROSSINGS)  # type: ignore[method-assign]
DefaultSelector.select = _before(DefaultSelector.select, _BEATS)  # type: ignore[method-assign]
