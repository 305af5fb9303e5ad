"""Keep memory small in a process that serves for months: return free memory, limit caches.

This module knows nothing about the served interfaces.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import apsw

_EVERY_S = 30.0
_STORE_CACHE_BYTES = 6_000_000


@asynccontextmanager
async def limit_memory() -> AsyncGenerator[None]:
    """Keep the process small inside this context.

    The page caches of all SQLite connections together stay below 6 MB. Every 30 s the garbage collector
    runs, because its default thresholds leave cycles for hours in a server, and free memory is returned to
    the system.
    """
    before_bytes = apsw.soft_heap_limit(_STORE_CACHE_BYTES)
    task = asyncio.create_task(_free_memory())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        apsw.soft_heap_limit(before_bytes)


async def _free_memory() -> None:
    trim = _make_trimmer()
    while True:
        gc.collect()
        trim()
        await asyncio.sleep(_EVERY_S)


def _make_trimmer() -> Callable[[], object]:
    """Return a function that returns free memory to the system; without glibc it does nothing.

    Sessions come and go on many threads, and glibc keeps the memory that each of them freed.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
