"""When the audit log was last verified at a look where that is quick, else when asked."""

from __future__ import annotations

import asyncio

import msgspec

from whet.confirm.audit import AuditReport, verify
from whet.confirm.service import ConfirmService

QUICK_EVENTS = 20_000  # a fraction of a second of one core; more would be felt by those who submit
_FRESH_S = 10.0


class Verified(msgspec.Struct, frozen=True):
    """What the last check found, and when it was, in Unix seconds."""

    report: AuditReport
    at_s: float


class AuditWatch:
    """Verifies off the event loop, one check at a time."""

    def __init__(self, service: ConfirmService) -> None:
        self._service = service
        self._known: Verified | None = None
        self._lock = asyncio.Lock()

    async def look(self, *, is_asked: bool = False) -> Verified | None:
        """Give the newest check, a fresh one where the log is short or `is_asked`; None: never checked."""
        async with self._lock:
            known, now_s = self._known, self._service.timeline.now_s()
            is_quick = self._service.log.state().size <= QUICK_EVENTS
            if (is_quick or is_asked) and (known is None or now_s - known.at_s > _FRESH_S):
                own = self._service.key  # whole: it alone checks what is not signed yet
                keys = {**self._service.public_keys, own.id: own}
                report = await self._service.database.read_long(lambda db: verify(db, keys))
                self._known = Verified(report, now_s)
            return self._known
