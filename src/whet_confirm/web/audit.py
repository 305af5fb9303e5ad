"""Verifies the audit log when its page is opened, if that is quick, and otherwise on request."""

from __future__ import annotations

import asyncio

import msgspec

from whet_confirm.audit import AuditReport, verify
from whet_confirm.service import ConfirmService

QUICK_EVENTS = 20_000  # a fraction of a second of one core; a longer check would delay submissions
_FRESH_S = 10.0


class LogVerification(msgspec.Struct, frozen=True):
    """The result of the last check and its time in Unix seconds."""

    report: AuditReport
    at_s: float


class AuditWatch:
    """Verifies off the event loop, one check at a time."""

    def __init__(self, service: ConfirmService) -> None:
        self._service = service
        self._latest: LogVerification | None = None
        self._lock = asyncio.Lock()

    async def latest_check(self, *, is_asked: bool = False) -> LogVerification | None:
        """Return the newest check, or None. Checks now if the log is short or `is_asked`."""
        async with self._lock:
            last, now_s = self._latest, self._service.timeline.now_s()
            is_quick = self._service.log.state().size <= QUICK_EVENTS
            if (is_quick or is_asked) and (last is None or now_s - last.at_s > _FRESH_S):
                key = self._service.key  # the private key too: only it can check data that is not signed yet
                keys = {**self._service.public_keys, key.id: key}
                report = await self._service.database.read_long(lambda db: verify(db, keys))
                self._latest = LogVerification(report, now_s)
            return self._latest
