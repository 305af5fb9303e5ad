"""The service's background work: expiry, escalation, checkpoints, policy reloads, other processes' events.

Decisions don't depend on it: a request past its deadline can't be decided whether or not this runs. It
makes the end visible to waiting clients.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from whet.contract.errors import StoreError, WhetError
from whet.web.beat import aligned_delay
from whet_confirm import decide
from whet_confirm.ledger import Tx
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.policy_review import end_disallowed_grants
from whet_confirm.seals import CODED
from whet_confirm.service import ConfirmService
from whet_confirm.witnesses import CheckpointFile, RemoteWitnesses

TICK_S = 0.5
_FOLLOW_S, _FOLLOW_IDLE_S = 0.5, 1.0
_CHECKPOINT_S = 60.0
_WITNESS_S = 2.0
_BATCH = 200
_KEEP_KEYS_S = 48 * 3600
_DUE = "SELECT 1 FROM requests WHERE status = 'pending' AND expires_at <= ? LIMIT 1"
_ESCALATION = (
    "SELECT 1 FROM requests WHERE status = 'pending' AND escalates_at IS NOT NULL"
    " AND escalated_at IS NULL AND escalates_at <= ? LIMIT 1"
)
_UNSIGNED = "SELECT at FROM events WHERE id = 1 + (SELECT coalesce(max(size), 0) FROM checkpoints)"
_SEALED_BY = "SELECT key_id FROM seal"
_NEXT_DEADLINES = (
    "SELECT (SELECT min(expires_at) FROM requests WHERE status = 'pending'),"
    " (SELECT min(escalates_at) FROM requests WHERE status = 'pending'"
    " AND escalates_at IS NOT NULL AND escalated_at IS NULL),"
    " (SELECT at + ? FROM events WHERE id = 1 + (SELECT coalesce(max(size), 0) FROM checkpoints))"
)
_logger = logging.getLogger("whet_confirm.upkeep")


class Upkeep:
    """The background loop. Signed checkpoints are appended to `files`."""

    def __init__(self, service: ConfirmService, *files: Path | None) -> None:
        self._service = service
        self._files = [CheckpointFile(path) for path in files if path is not None]
        self._next_hour_s = 0.0
        self._last_counter: int | None = None
        self._next_s = 0.0
        self._is_unsigned = False

    async def run(self) -> None:
        """Run until cancelled. A disk failure is logged and retried."""
        while True:
            try:
                await self.tick()
            except WhetError as error:
                _logger.warning("upkeep failed, trying again: %s", error.message)
                await asyncio.sleep(TICK_S)
            await asyncio.sleep(min(aligned_delay(TICK_S), self.wait_s()))

    async def tick(self) -> None:
        """Do everything that is due. If there is nothing, this costs next to nothing."""
        await self._reload_policy()
        service, now_s = self._service, self._service.timeline.now_s()
        counter = service.database.change_counter()
        is_quiet = counter == self._last_counter
        if is_quiet and now_s < self._next_s and not self._is_unsigned:
            return
        service.log.catch_up(service.timeline)
        while self._has_row(_DUE) and await service.change(lambda tx: decide.expire(tx, _BATCH)) == _BATCH:
            await asyncio.sleep(0)
        if self._has_row(_ESCALATION):
            await service.change(lambda tx: decide.escalate(tx, _BATCH, service.policy_file.policy))
        await service.database.checkpoint_early()
        if self._wants_checkpoint():
            await service.change(lambda tx: tx.checkpoint())
        self._is_unsigned = self._needs_signature()
        if self._is_unsigned and is_quiet:  # while there are writes, they are signed once a second
            await service.change(lambda tx: tx.sealer.sign())
            self._is_unsigned = False
        self._export()
        if now_s >= self._next_hour_s:
            self._next_hour_s = now_s + 3600.0
            await service.change(_forget_old_keys)
        self._last_counter = counter
        due_s = min(self._next_hour_s, self._next_time())
        self._next_s = due_s if due_s > now_s else now_s + TICK_S  # retry work that failed

    def wait_s(self) -> float:
        """Return the seconds until something is due, at least 0.05."""
        return max(self._next_s - self._service.timeline.now_s(), 0.05)

    async def seal(self) -> None:
        """Sign and export the log's end, before the service stops."""
        try:
            await self._service.change(lambda tx: tx.checkpoint())
            self._export()
        except StoreError as error:
            _logger.error("the log was not signed and files at the end: %s", error.message)

    def _has_row(self, sql: str) -> bool:
        return self._service.database.read_one(sql, (self._service.timeline.now_s(),)) is not None

    def _wants_checkpoint(self) -> bool:
        """Return whether the oldest event without a signed checkpoint has waited long enough."""
        row = self._service.database.read_one(_UNSIGNED, ())
        return row is not None and self._service.timeline.now_s() - cast("float", row[0]) >= _CHECKPOINT_S

    def _needs_signature(self) -> bool:
        """Return whether the last commit of any process holds a code instead of a signature."""
        row = self._service.database.read_one(_SEALED_BY, ())
        return row is not None and str(row[0]).startswith(CODED)

    def _next_time(self) -> float:
        """Return the time of the next deadline, escalation or checkpoint, or infinity."""
        row = self._service.database.read_one(_NEXT_DEADLINES, (_CHECKPOINT_S,)) or ()
        return min((cast("float", at) for at in row if at is not None), default=math.inf)

    async def _reload_policy(self) -> None:
        file = self._service.policy_file
        before, was_broken = file.policy.version, file.error
        if file.reload():
            after = file.policy.version
            _logger.info("policy %s is in force", after)
            await self._service.change(lambda tx: _record_policy(tx, before, file.policy))
        elif file.error and file.error != was_broken:
            _logger.error("the policy file is broken, the old policy stays: %s", file.error)
            await self._service.record("policy_broken", principal="system:policy", data={"error": file.error})

    def _export(self) -> None:
        size = min((file.size for file in self._files), default=0)
        if self._files and (rows := self._service.log.checkpoints_after(size)):
            for file in self._files:
                file.add(rows)


async def notify_witnesses(service: ConfirmService, urls: Sequence[str]) -> None:
    """Post each new checkpoint to the remote witnesses, until cancelled."""
    witnesses, newest = RemoteWitnesses(urls), service.log.newest_checkpoint
    while True:
        try:
            if row := newest():
                await witnesses.send(row)
        except StoreError as error:
            _logger.warning("the witnesses can't be notified now, trying again: %s", error.message)
        await asyncio.sleep(aligned_delay(_WITNESS_S))


async def follow_other_processes(service: ConfirmService) -> None:
    """Publish the events of other processes while a client waits for events, until cancelled.

    Without a waiting client, `Upkeep` publishes them with its next tick.
    """
    last_counter: int | None = None
    while True:
        try:
            now = service.database.change_counter()
            if now != last_counter:
                service.log.catch_up(service.timeline)
                last_counter = now
        except StoreError as error:
            _logger.warning("other processes' events can't be read, trying again: %s", error.message)
        await service.hub.wait_for_change(aligned_delay(_FOLLOW_S), _FOLLOW_IDLE_S)


def _record_policy(tx: Tx, before: str, policy: ConfirmPolicy) -> None:
    after = policy.version
    tx.record("policy_changed", principal="system:policy", data={"was": before, "now": after})
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('policy_version', ?)", (after,))
    end_disallowed_grants(tx, policy, "system:policy")


def _forget_old_keys(tx: Tx) -> None:
    tx.connection.execute("DELETE FROM idempotency WHERE at < ?", (tx.now_s - _KEEP_KEYS_S,))
