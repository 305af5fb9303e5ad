"""Small memory in a process that serves for months: what is free is given back, caches have a bound.

It does not know what the process serves.
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
async def kept_small() -> AsyncGenerator[None]:
    """Keep the process small while this lasts.

    The page caches of all SQLite connections together stay below 6 MB. Every 30 s the collector runs, for a
    command line's thresholds leave cycles for hours, and free memory is given back.
    """
    before_bytes = apsw.soft_heap_limit(_STORE_CACHE_BYTES)
    task = asyncio.create_task(_tidy())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        apsw.soft_heap_limit(before_bytes)


async def _tidy() -> None:
    trim = _trimmer()
    while True:
        gc.collect()
        trim()
        await asyncio.sleep(_EVERY_S)


def _trimmer() -> Callable[[], object]:
    """Give what hands free memory back to the system: sessions come and go on many threads, and glibc keeps
    what each of them freed. Elsewhere it does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
