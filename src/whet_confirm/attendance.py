"""Cancel requests whose agent has gone.

A hook or a gateway is the only program that would run the approved action, and says so when it waits. If its
connection breaks and it does not wait again soon, the request is cancelled in its name. The first such wait
is recorded in the log, so that the service knows of it after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import apsw
import msgspec

from whet.contract.errors import WhetError
from whet.contract.texts import from_json
from whet_confirm.ledger import Tx
from whet_confirm.records import Caller, RequestOutcome

EVENT = "attended"
_GRACE_S = 15.0
_MAX_RECORDED = 10_000
_PENDING = (
    "SELECT r.id, r.principal, e.data FROM requests r JOIN events e ON e.request_id = r.id"
    f" WHERE r.status = 'pending' AND e.kind = '{EVENT}' ORDER BY e.id"
)
_REASON = "the agent has gone: it stopped waiting"
_logger = logging.getLogger("whet_confirm.attendance")


class ServiceProcess(msgspec.Struct, frozen=True):
    """The process of the service in which a client waits."""

    host: str
    pid: int

    @classmethod
    def current(cls) -> ServiceProcess:
        """Return this process."""
        return cls(platform.node(), os.getpid())

    def has_ended(self) -> bool:
        """Return whether this was a process of this machine that does not run any more."""
        now = ServiceProcess.current()
        return self.host == now.host and (self.pid == now.pid or not Path(f"/proc/{self.pid}").exists())


def list_abandoned(db: apsw.Connection) -> list[tuple[str, Caller]]:
    """Return the pending requests whose clients waited in processes that have ended, and their submitters."""
    latest = {str(row[0]): row for row in db.execute(_PENDING)}
    return [
        (request_id, Caller(str(principal), "submit"))
        for request_id, principal, data in latest.values()
        if from_json(str(data), ServiceProcess).has_ended()
    ]


def note(tx: Tx, request_id: str, caller: Caller) -> None:
    """Record that the only client that would run the action waits in this process."""
    data: dict[str, object] = msgspec.structs.asdict(ServiceProcess.current())
    tx.record(EVENT, request_id, caller.name, caller.name, data)


class Attendance:
    """The waiting clients, by request. `grace_s` is how long a client may take to wait again."""

    def __init__(self, cancel: Callable[[str, Caller, str], Awaitable[RequestOutcome]]) -> None:
        self.grace_s = _GRACE_S
        self._cancel = cancel
        self._waits: Counter[str] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._recorded: set[str] = set()

    def needs_note(self, request_id: str) -> bool:
        """Return whether the wait for a request must be recorded, which is true once per process."""
        if request_id in self._recorded:
            return False
        if len(self._recorded) >= _MAX_RECORDED:
            self._recorded.clear()  # at worst a wait is recorded twice
        self._recorded.add(request_id)
        return True

    def resume(self, abandoned: Iterable[tuple[str, Caller]]) -> None:
        """Cancel the requests whose clients waited before a restart, unless they wait again in time."""
        for request_id, caller in abandoned:
            if not self._waits[request_id]:
                self._start_timer(request_id, caller)

    def begin_wait(self, request_id: str) -> None:
        """Count a client that begins to wait."""
        self._waits[request_id] += 1
        if timer := self._timers.pop(request_id, None):
            timer.cancel()

    def end_wait(self, request_id: str, caller: Caller, *, is_cut: bool) -> None:
        """Count a wait that ended. If its connection broke and no other client waits, start the timer."""
        self._waits[request_id] -= 1
        if self._waits[request_id] > 0:
            return
        del self._waits[request_id]
        if is_cut:
            self._start_timer(request_id, caller)

    def _start_timer(self, request_id: str, caller: Caller) -> None:
        loop = asyncio.get_running_loop()
        self._timers[request_id] = loop.call_later(self.grace_s, self._withdraw, request_id, caller)

    def _withdraw(self, request_id: str, caller: Caller) -> None:
        del self._timers[request_id]

        async def withdraw() -> None:
            try:
                await self._cancel(request_id, caller, _REASON)
            except WhetError as error:
                _logger.warning("request %s is not cancelled: %s", request_id, error.message)

        task = asyncio.create_task(withdraw())
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)
