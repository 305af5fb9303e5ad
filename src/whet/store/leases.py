"""Run a leased job's work while a heartbeat renews the lease. The worker stores the job's state
afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from whet.clock import Clock
from whet.store import jobs
from whet.store.database import StateDatabase

T = TypeVar("T")
LEASE_S = 120.0
HEARTBEAT_S = 30.0


class LeaseLost(Exception):
    """Another worker has taken the job, so this one must stop."""


async def run_with_lease(
    database: StateDatabase,
    clock: Clock,
    job: jobs.Job,
    work: Coroutine[Any, Any, T],
    on_stop: Callable[[], Awaitable[object]],
) -> T:
    """Run `work` while renewing the job's lease, and return its result.

    If the lease is lost, `work` is ended and LeaseLost raised. If this task is cancelled, `work` is ended
    and `on_stop` awaited before the cancel goes on.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
            if not await database.append(lambda db: jobs.heartbeat(db, job, LEASE_S, clock)):
                raise LeaseLost
        return task.result()
    except asyncio.CancelledError:
        await _cancel_and_wait(task)
        await on_stop()
        raise
    finally:
        await _cancel_and_wait(task)


async def _cancel_and_wait(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
