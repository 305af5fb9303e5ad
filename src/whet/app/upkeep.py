"""Keep the memory of a long-running server small: return free memory to the system, limit caches."""

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

    Limits the page caches of all SQLite connections together to 6 MB. Every 30 s it runs the garbage
    collector, whose default thresholds leave cycles for hours in a server, and returns free memory to the
    system.
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
    """Return a function that returns free memory to the system: glibc keeps the memory that each thread
    freed. Without glibc the function does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
