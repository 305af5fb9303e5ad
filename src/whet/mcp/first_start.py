"""Wait for the servers whose tools are not known yet, but only for a while.

A server that hangs must not hold up a session and the other servers. It goes on starting, beyond the end of
the program too, and later sessions have its tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from whet.config.permission_settings import McpServerSettings

WAIT_S = 5.0
SKIPPED = "its start was skipped"
"""The reason for a server whose start the person did not wait for."""

StartWait = Callable[[Sequence[str]], AbstractContextManager[asyncio.Event]]
"""Begins a wait for the servers of these names. The event ends it early."""


def wait_limit_s(settings: McpServerSettings, wait_s: float) -> float | None:
    """Return how long a session waits for a server's first start. None: until it is ready or has failed,
    because the person has set how long it may take."""
    return wait_s if settings.start_timeout_s is None else None


async def wait_for_starts(
    starts: Mapping[str, asyncio.Task[None]], limits_s: Mapping[str, float | None], wait: StartWait | None
) -> dict[str, str]:
    """Wait until each start has ended or its limit has passed. Returns the reason for each one that still
    runs."""
    with wait([*starts]) if wait is not None else nullcontext(asyncio.Event()) as skip:
        ends = asyncio.create_task(_wait_for_ends(starts, limits_s))
        skipping = asyncio.ensure_future(skip.wait())
        try:
            await asyncio.wait({ends, skipping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await end_starts(starts)
            raise
        finally:
            ends.cancel()
            skipping.cancel()
    for task in starts.values():
        if task.done():
            task.result()
    running = [name for name, task in starts.items() if not task.done()]
    if skip.is_set():
        return dict.fromkeys(running, SKIPPED)
    return {name: f"it was not ready within {limits_s[name]:g} s" for name in running}


async def _wait_for_ends(
    starts: Mapping[str, asyncio.Task[None]], limits_s: Mapping[str, float | None]
) -> None:
    await asyncio.gather(*(asyncio.wait({task}, timeout=limits_s[name]) for name, task in starts.items()))


async def end_starts(starts: Mapping[str, asyncio.Task[None]]) -> None:
    """Cancel the starts that still run."""
    running = [task for task in starts.values() if task.cancel()]
    if running:
        await asyncio.wait(running)
