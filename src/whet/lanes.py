"""The only crossings between the event loop and threads.

`ToolPool` runs synchronous tool functions. Plugin lanes and the store lane keep pools of their own: a
hook may wait for the model, and a shared pool would then starve what it waits for. Python can't kill a
thread, so a call that is given up on keeps its worker until it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ToolPool:
    """Threads for synchronous tools; made at the first use."""

    def __init__(self, workers: int = 8) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` on a thread and give its result. A cancel leaves the thread to finish alone."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="tool")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let running calls finish and take no more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
