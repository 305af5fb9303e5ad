"""Start a worker for due schedules while a program is open for something else.

A run inside the program would end with it, so the worker is a detached process: `whet worker --drain`. It is
started only if a job is still due at the second check: a worker that already runs has taken it by then.
"""

from __future__ import annotations

import asyncio
import logging

from whet.app.learning.reviews import start_detached_worker
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import ScheduleSettings
from whet.contract.errors import StoreError
from whet.store.database import StateDatabase

log: logging.Logger = logging.getLogger("whet.schedules")
_POLL_S = 20.0


class ScheduleWatch:
    """Checks whether a schedule is due while the program runs. It costs one read every 20 s."""

    def __init__(self, home: Home, database: StateDatabase, clock: Clock, settings: ScheduleSettings) -> None:
        self._home = home
        self._database = database
        self._clock = clock
        self._settings = settings
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking, unless schedules.worker is off."""
        if self._settings.worker == "auto" and self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def aclose(self) -> None:
        """Stop checking; workers that were started continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def check(self, was_due: bool) -> bool:
        """Return whether an unclaimed job is due. If one `was_due` at the last check too, start a worker and
        return False."""
        from whet.store import digests, jobs, schedules  # noqa: PLC0415 - a one-shot never looks

        try:
            is_due = await self._database.read(
                lambda db: jobs.is_due(db, (schedules.KIND, digests.KIND), self._clock)
            )
            if is_due and was_due:
                start_detached_worker(self._home)
                return False
        except (OSError, StoreError) as error:
            log.warning("no worker could be started for a schedule: %s", error)
            return False
        return is_due

    async def _watch(self) -> None:
        was_due = False
        while True:
            await asyncio.sleep(_POLL_S)
            was_due = await self.check(was_due)
