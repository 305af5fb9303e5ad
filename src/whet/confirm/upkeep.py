"""What the service does by itself: expiry, escalation, checkpoints, policy reloads, other processes' events.

None of it is needed for a decision to be right: a request past its deadline can't be decided whether or not
this runs. It makes the end visible to those who wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import msgspec

from whet.confirm import decide
from whet.confirm.ledger import Tx
from whet.confirm.service import ConfirmService
from whet.contract.errors import WhetError
from whet.web.beat import in_step

TICK_S = 0.25
_GLANCE_S, _GLANCE_ALONE_S = 0.02, 1.0
_CHECKPOINT_S = 60.0
_BATCH = 200
_KEEP_KEYS_S = 48 * 3600
_logger = logging.getLogger("whet.confirm.upkeep")


class Upkeep:
    """The loop behind the service. `exported` is the file that signed checkpoints are appended to."""

    def __init__(self, service: ConfirmService, exported: Path | None) -> None:
        self._service = service
        self._exported = exported
        self._exported_size = _last_exported(exported)
        self._next_hour_s = 0.0
        self._seen = -1
        self._next_s = 0.0

    async def run(self) -> None:
        """Keep house until cancelled; a failing disk is logged and tried again."""
        while True:
            try:
                await self.tick()
            except WhetError as error:
                _logger.warning("upkeep failed, trying again: %s", error.message)
            await asyncio.sleep(in_step(TICK_S))

    async def tick(self) -> None:
        """Do everything that is due; where nobody wrote and no time has come, that is next to nothing."""
        await self._reload_policy()
        service, now_s = self._service, self._service.timeline.now_s()
        seen = service.database.other_writes()
        if seen == self._seen and now_s < self._next_s:
            return
        service.catch_up()
        while service.has_due() and await service.change(lambda tx: decide.expire(tx, _BATCH)) == _BATCH:
            await asyncio.sleep(0)
        if service.has_escalations():
            await service.change(lambda tx: decide.escalate(tx, _BATCH))
        await service.database.move_log()
        if service.wants_checkpoint(_CHECKPOINT_S):
            await service.change(lambda tx: tx.checkpoint())
        self._export()
        if now_s >= self._next_hour_s:
            self._next_hour_s = now_s + 3600.0
            await service.change(_forget_old_keys)
        self._seen = seen
        self._next_s = min(self._next_hour_s, service.next_time(_CHECKPOINT_S))

    async def seal(self) -> None:
        """Sign and export what there is, before the service ends."""
        await self._service.change(lambda tx: tx.checkpoint())
        self._export()

    async def _reload_policy(self) -> None:
        file = self._service.policy_file
        before, was_broken = file.policy.version, file.error
        if file.reload():
            after = file.policy.version
            _logger.info("policy %s is in force", after)
            await self._service.change(lambda tx: _note_policy(tx, before, after))
        elif file.error and file.error != was_broken:
            _logger.error("the policy file is broken, the old policy stays: %s", file.error)
            await self._service.record("policy_broken", principal="system:policy", data={"error": file.error})

    def _export(self) -> None:
        if self._exported is None:
            return
        rows = self._service.checkpoints_after(self._exported_size)
        if not rows:
            return
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        try:
            handle = os.open(self._exported, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            _logger.warning("can't write %s: %s", self._exported, error.strerror)
            return
        with open(handle, "wb") as file:
            file.write(lines)
        self._exported_size = int(str(rows[-1]["size"]))


async def follow(service: ConfirmService) -> None:
    """Hear at once of what other processes on the same database write, while somebody waits for it, until
    cancelled. What nobody waits for is heard of with the next tick."""
    seen = -1
    while True:
        now = service.database.other_writes()
        if now != seen:
            seen = now
            service.catch_up()
        await service.hub.pause(_GLANCE_S, _GLANCE_ALONE_S)


def _note_policy(tx: Tx, before: str, after: str) -> None:
    tx.record("policy_changed", principal="system:policy", data={"was": before, "now": after})
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('policy_version', ?)", (after,))


def _forget_old_keys(tx: Tx) -> None:
    tx.connection.execute("DELETE FROM idempotency WHERE at < ?", (tx.now_s - _KEEP_KEYS_S,))


def _last_exported(path: Path | None) -> int:
    """Give the size in the file's last whole line, 0 where there is none."""
    try:
        lines = path.read_bytes().splitlines() if path else []
        return int(msgspec.json.decode(lines[-1])["size"]) if lines else 0
    except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError):
        return 0
