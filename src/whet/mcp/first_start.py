"""Wait, for a limited time, for the first start of servers whose tools are unknown.

A server that hangs must not delay a session or the other servers. It goes on starting, even after the end of
the program, and later sessions have its tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from whet.config.permission_settings import McpServerSettings

WAIT_S = 5.0
SKIPPED = "its start was skipped"
"""The reason for a server if the person ended the wait."""

StartWait = Callable[[Sequence[str]], AbstractContextManager[asyncio.Event]]
"""Shows the person that servers of these names are waited for. Setting the event ends the wait."""


def wait_limit_s(settings: McpServerSettings, wait_s: float) -> float | None:
    """Return how long a session waits for a server's first start. Returns None, which means no limit of the
    wait, if the settings limit the start itself."""
    return wait_s if settings.start_timeout_s is None else None


async def wait_for_starts(
    starts: Mapping[str, asyncio.Task[None]], limits_s: Mapping[str, float | None], wait: StartWait | None
) -> dict[str, str]:
    """Wait until each start has ended or its limit has passed. Returns, by name, why the others have not."""
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
    """Cancel the starts that are still running, and wait for their ends."""
    running = [task for task in starts.values() if task.cancel()]
    if running:
        await asyncio.wait(running)
