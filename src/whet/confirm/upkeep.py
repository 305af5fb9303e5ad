"""What the service does by itself: expiry, escalation, checkpoints, policy reloads, other processes' events.

None of it is needed for a decision to be right: a request past its deadline can't be decided whether or not
this runs. It makes the end visible to those who wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from whet.confirm import decide
from whet.confirm.ledger import Tx
from whet.confirm.seals import CODED
from whet.confirm.service import ConfirmService
from whet.confirm.witnesses import CheckpointFile, RemoteWitnesses
from whet.contract.errors import StoreError, WhetError
from whet.web.beat import in_step

TICK_S = 0.5
_GLANCE_S, _GLANCE_ALONE_S = 0.5, 1.0
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
_NEXT = (
    "SELECT (SELECT min(expires_at) FROM requests WHERE status = 'pending'),"
    " (SELECT min(escalates_at) FROM requests WHERE status = 'pending'"
    " AND escalates_at IS NOT NULL AND escalated_at IS NULL),"
    " (SELECT at + ? FROM events WHERE id = 1 + (SELECT coalesce(max(size), 0) FROM checkpoints))"
)
_logger = logging.getLogger("whet.confirm.upkeep")


class Upkeep:
    """The loop behind the service. `exported` are the files that signed checkpoints are appended to."""

    def __init__(self, service: ConfirmService, *exported: Path | None) -> None:
        self._service = service
        self._files = [CheckpointFile(path) for path in exported if path is not None]
        self._next_hour_s = 0.0
        self._seen: int | None = None
        self._next_s = 0.0
        self._owes = False

    async def run(self) -> None:
        """Keep house until cancelled; a failing disk is logged and tried again."""
        while True:
            try:
                await self.tick()
            except WhetError as error:
                _logger.warning("upkeep failed, trying again: %s", error.message)
                await asyncio.sleep(TICK_S)
            await asyncio.sleep(min(in_step(TICK_S), self.left_s()))

    async def tick(self) -> None:
        """Do everything that is due; where nobody wrote and no time has come, that is next to nothing."""
        await self._reload_policy()
        service, now_s = self._service, self._service.timeline.now_s()
        seen = service.database.other_writes()
        is_quiet = seen == self._seen
        if is_quiet and now_s < self._next_s and not self._owes:
            return
        service.log.catch_up(service.timeline)
        while self._is_there(_DUE) and await service.change(lambda tx: decide.expire(tx, _BATCH)) == _BATCH:
            await asyncio.sleep(0)
        if self._is_there(_ESCALATION):
            await service.change(lambda tx: decide.escalate(tx, _BATCH))
        await service.database.move_log()
        if self._wants_checkpoint():
            await service.change(lambda tx: tx.checkpoint())
        self._owes = self._owes_signature()
        if self._owes and is_quiet:  # while more is written, that is signed once a second
            await service.change(lambda tx: tx.sealer.sign())
            self._owes = False
        self._export()
        if now_s >= self._next_hour_s:
            self._next_hour_s = now_s + 3600.0
            await service.change(_forget_old_keys)
        self._seen = seen
        due_s = min(self._next_hour_s, self._next_time())
        self._next_s = due_s if due_s > now_s else now_s + TICK_S  # what could not be done is tried again

    def left_s(self) -> float:
        """Give the time until something is due, at least a short breath."""
        return max(self._next_s - self._service.timeline.now_s(), 0.05)

    async def seal(self) -> None:
        """Sign and export what there is, before the service ends."""
        try:
            await self._service.change(lambda tx: tx.checkpoint())
            self._export()
        except StoreError as error:
            _logger.error("the log was not signed and exported at the end: %s", error.message)

    def _is_there(self, sql: str) -> bool:
        return self._service.database.read_one(sql, (self._service.timeline.now_s(),)) is not None

    def _wants_checkpoint(self) -> bool:
        """Whether there are events that have waited long enough for a signed checkpoint."""
        row = self._service.database.read_one(_UNSIGNED, ())
        return row is not None and self._service.timeline.now_s() - cast("float", row[0]) >= _CHECKPOINT_S

    def _owes_signature(self) -> bool:
        """Whether the last commit holds a code in place of a signature, whoever made it."""
        row = self._service.database.read_one(_SEALED_BY, ())
        return row is not None and str(row[0]).startswith(CODED)

    def _next_time(self) -> float:
        """When the next deadline, escalation or checkpoint is due, by the timeline; infinity for never."""
        row = self._service.database.read_one(_NEXT, (_CHECKPOINT_S,)) or ()
        return min((cast("float", at) for at in row if at is not None), default=math.inf)

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
        least = min((file.size for file in self._files), default=0)
        if not self._files or not (rows := self._service.log.checkpoints_after(least)):
            return
        for file in self._files:
            file.add(rows)


async def tell_witnesses(service: ConfirmService, urls: Sequence[str]) -> None:
    """Post each new checkpoint to those who keep them elsewhere, until cancelled."""
    witnesses, newest = RemoteWitnesses(urls), service.log.newest_checkpoint
    while True:
        try:
            if row := newest():
                await witnesses.tell(row)
        except StoreError as error:
            _logger.warning("witnesses are told later: %s", error.message)
        await asyncio.sleep(in_step(_WITNESS_S))


async def follow(service: ConfirmService) -> None:
    """Hear soon of what other processes on the same database write, while somebody waits for it, until
    cancelled. What nobody waits for is heard of with the next tick."""
    seen: int | None = None
    while True:
        try:
            now = service.database.other_writes()
            if now != seen:
                service.log.catch_up(service.timeline)
                seen = now
        except StoreError as error:
            _logger.warning("what other processes write is heard of later: %s", error.message)
        await service.hub.pause(in_step(_GLANCE_S), _GLANCE_ALONE_S)


def _note_policy(tx: Tx, before: str, after: str) -> None:
    tx.record("policy_changed", principal="system:policy", data={"was": before, "now": after})
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('policy_version', ?)", (after,))


def _forget_old_keys(tx: Tx) -> None:
    tx.connection.execute("DELETE FROM idempotency WHERE at < ?", (tx.now_s - _KEEP_KEYS_S,))
