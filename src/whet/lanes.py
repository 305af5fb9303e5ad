"""Run synchronous functions on threads, and call the event loop from threads.

`ToolPool` runs tools. A lane is one thread with a queue: `PluginLane` runs a plugin's code. Lanes are
separate, because a hook may wait for the model, and in a shared pool it could block the call it waits for.
Python can't kill a thread, so an abandoned call keeps its thread until it returns.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Schedule `function` on a loop, from any thread. Returns False if the loop is closed.

    Checking first whether it is closed is not enough: it may close between the check and the call.
    """
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


class ToolPool:
    """Threads for synchronous tools, created at first use."""

    def __init__(self, workers: int = 8) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` on a thread and return its result. If cancelled, the thread still runs to its
        end."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="tool")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let running calls finish and accept no more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class LaneOutcome(msgspec.Struct, Generic[T], frozen=True):
    """The result of foreign code: `value`, or the `error` that it raised."""

    value: T | None = None
    error: BaseException | None = None


def attempt(function: Callable[[], T]) -> LaneOutcome[T]:
    """Call foreign code and return its result or its exception, even SystemExit and CancelledError."""
    try:
        return LaneOutcome(function())
    except BaseException as error:  # noqa: BLE001 the plugin-hook boundary; the caller shows it
        return LaneOutcome(error=error)


class LaneTimeout(Exception):
    """A call passed its deadline, or an abandoned call still runs on the lane."""


class PluginLane:
    """One thread for one instance of foreign code: its calls run one at a time, in order.

    The thread is created at the first call and does not keep the process alive. A call that passes its
    deadline blocks the lane until the thread returns.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: Future[Any] | None = None
        self._given_up: Future[Any] | None = None
        self._pending: deque[Future[Any]] = deque()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether no call runs or is queued, so that a call on another thread would not overlap with one."""
        self._forget_done()
        return not self._pending and not self._closed

    @property
    def stuck(self) -> bool:
        """Whether an abandoned call still runs."""
        return self._given_up is not None and not self._given_up.done()

    def submit(self, function: Callable[[], T]) -> Future[LaneOutcome[T]]:
        """Queue a call and return a future for its outcome."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_jobs, name=self._name, daemon=True)
            self._thread.start()
        future: Future[LaneOutcome[T]] = Future()
        self._forget_done()
        self._pending.append(future)
        self._jobs.put((future, function))
        return future

    async def run(self, function: Callable[[], T], deadline_s: float) -> LaneOutcome[T]:
        """Run `function` after the queued calls and return its outcome.

        Raises LaneTimeout after `deadline_s`, and at once while the lane is stuck or after `close`. If
        cancelled, a call that has begun still runs to its end.
        """
        if self.stuck or self._closed:
            raise LaneTimeout
        future = self.submit(function)
        waiter = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({waiter}, timeout=deadline_s)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if done:
            return waiter.result()
        self._given_up = self._running or future
        future.cancel()  # a call that has not begun yet never will
        raise LaneTimeout

    def close(self) -> None:
        """Let the queued calls run, then end the thread. A later `run` raises LaneTimeout."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)

    def _forget_done(self) -> None:
        while self._pending and self._pending[0].done():
            self._pending.popleft()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            self._running = future
            if future.set_running_or_notify_cancel():
                future.set_result(attempt(function))
            self._running = None
