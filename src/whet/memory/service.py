"""The learning service: judge learned changes, enter them in the ledger, and write the files.

There is one service per profile. `submit` has a change judged (`changes.py`, `gate.py`) and enters it as one
ledger row in one transaction; the files are written afterwards (`reader.py`, `journal.py`, `disk.py`). A
review's changes are staged, and decided together (`settle`) in the transaction that completes its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import apsw

from whet.contract.origin import Origin
from whet.memory import notes, settling, undo
from whet.memory.changes import Changes
from whet.memory.library import Library
from whet.memory.reader import MemoryReader
from whet.memory.requests import (
    MemoryRequest,
    NeedsYes,
    Refused,
    SkillRequest,
    WriteOutcome,
    describe_outcome,
    target_of,
)
from whet.memory.skill_store import SkillStore
from whet.memory.undo import ForgetStep, Purged
from whet.store import ledger
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow
from whet.store.purge import erase


class LearningService:
    """Accepts, undoes and erases the changes of one profile, which `reader` reads. Methods may be called from
    any task; files are accessed on a thread.

    Each row that becomes active is passed to all `listeners`.
    """

    def __init__(self, reader: MemoryReader) -> None:
        self.reader = reader
        self.database: StateDatabase = reader.database
        self.library: Library = reader.library
        self.profile: str = reader.profile
        self.skills: SkillStore = SkillStore(reader)
        self.changes: Changes = Changes(reader)
        self.listeners: list[Callable[[LedgerRow], None]] = []

    def for_person(self, name: str, folder: Path) -> LearningService:
        """Return the learning service of another person, with separate notes and skills."""
        reader = self.reader
        learning = LearningService(
            MemoryReader(reader.database, reader.clock, folder, (reader.limits, reader.review), profile=name)
        )
        learning.changes.trusted_tools = self.changes.trusted_tools
        return learning

    async def submit(self, request: MemoryRequest | SkillRequest, origin: Origin) -> WriteOutcome:
        """Make one change to the notes or a skill. On return it is durable, and its file is written or
        queued.

        A repeated call with the same session and call id returns the stored outcome. If the change is
        refused, the outcome says why, for the model to correct. Raises StoreError.
        """
        try:
            return await asyncio.to_thread(self._enter, request, origin)
        except Refused as error:
            await asyncio.to_thread(self.changes.keep_refusal, request, origin, error)
            return error.outcome
        except NeedsYes as error:
            return WriteOutcome(False, "needs_yes", error.message)

    def settle(
        self, connection: apsw.Connection, task_id: str, doubts: Mapping[int, str] | None = None
    ) -> list[LedgerRow]:
        """Decide on a review's staged rows inside the caller's transaction, and return all rows of the
        review.

        A row becomes active, quarantined or refused, or goes to the inbox. It goes to the inbox instead of
        becoming active if `doubts` has a reason for it, and is refused if it can't be applied to the current
        state. Call `apply` to write the files.
        """
        return settling.settle(connection, self.reader, task_id, doubts or {})

    def discard(self, connection: apsw.Connection, task_id: str) -> None:
        """Drop the staged rows of an abandoned review, inside the caller's transaction."""
        for row in ledger.list_task_rows(connection, task_id, ("staged",)):
            ledger.set_state(connection, row.id, "rejected", reason="its review was abandoned")

    async def apply(self, rows: Sequence[LedgerRow] = ()) -> None:
        """Update the files that are older than the ledger, and notify listeners about the active `rows`."""
        await asyncio.to_thread(self.reader.sync_files)
        self._notify(rows)

    async def get_change(self, row_id: int) -> LedgerRow:
        """Return the ledger row of a change. Raises NotFound."""
        return await self.database.read(lambda db: ledger.get(db, row_id, self.profile))

    async def describe_whole(self, row: LedgerRow) -> str:
        """Return all text that would be written or removed if the change was accepted."""
        from whet.memory.whole_change import describe_whole  # noqa: PLC0415 - only when a person decides

        new = {change.path: change.after for change in row.changes if change.after}
        files = await self.database.read(lambda db: settling.read_texts(db, new))
        return describe_whole(row, files)

    async def undo(self, row_id: int, origin: Origin) -> LedgerRow:
        """Undo a change, including its files, and return the row that undoes it. Raises NotFound,
        CannotUndo."""
        return await self._decide(row_id, lambda db, row: undo.undo(db, row, origin, self.reader.now()))

    async def accept(self, row_id: int) -> LedgerRow:
        """Make a waiting change active. Raises NotFound, CannotUndo."""
        return (await self.accept_all([row_id]))[0]

    async def accept_all(self, row_ids: Sequence[int]) -> list[LedgerRow]:
        """Make waiting changes active in this order. If one fails, none is. Raises NotFound, CannotUndo."""

        def work(connection: apsw.Connection) -> list[LedgerRow]:
            return [
                undo.accept(connection, ledger.get(connection, row_id, self.profile), self.reader)
                for row_id in row_ids
            ]

        rows = await asyncio.to_thread(self.reader.change, work)
        self._notify(rows)
        return rows

    async def reject(self, row_id: int, reason: str = "rejected by the person") -> LedgerRow:
        """Drop a waiting change. Raises NotFound, CannotUndo."""
        return await self._decide(row_id, lambda db, row: undo.reject(db, row, reason))

    async def forget(self, session_id: str, origin: Origin, *, dry_run: bool) -> list[ForgetStep]:
        """Undo every change that was learned from a session, the newest first, and return the steps. If a
        change can't be undone, its step says why. With `dry_run`, only return the steps."""
        if dry_run:
            await asyncio.to_thread(self.reader.sync_files)
            return await self.database.read(lambda db: undo.plan_forgetting(db, self.profile, session_id))

        def work(connection: apsw.Connection) -> list[ForgetStep]:
            return undo.forget(connection, self.profile, session_id, origin, self.reader.now())

        steps = await asyncio.to_thread(self.reader.change, work)
        self._notify([step.back for step in steps if step.back is not None])
        return steps

    async def purge(self, session_id: str) -> Purged:
        """Erase the text of a forgotten session from the ledger and the disk. Call it after `forget`.

        Raises StoreBusy if another process is using the database; it is safe to call again.
        """
        await asyncio.to_thread(self.reader.sync_files)
        purged = await self.database.write(lambda db: undo.purge_words(db, self.profile, session_id))
        await asyncio.to_thread(erase, self.database)
        return purged

    async def _decide(
        self, row_id: int, decide: Callable[[apsw.Connection, LedgerRow], LedgerRow]
    ) -> LedgerRow:
        row = await asyncio.to_thread(
            self.reader.change, lambda db: decide(db, ledger.get(db, row_id, self.profile))
        )
        self._notify([row])
        return row

    def _enter(self, request: MemoryRequest | SkillRequest, origin: Origin) -> WriteOutcome:
        call_key = (origin.session_id, origin.tool_call_id)
        earlier = self.database.read_now(lambda db: ledger.find_by_call(db, *call_key))
        if earlier is not None and earlier.state == "refused" and not earlier.changes:
            return WriteOutcome(False, "refused", earlier.reason)
        if earlier is not None:
            return describe_outcome(earlier, self._describe_space(earlier, origin))
        if origin.write_origin == "review" and self.reader.review.writes == "off":
            raise Refused("Reviews may not save changes: review.writes is off", hint="End the review.")
        row = self.changes.enter(request, origin)
        if row.state == "active":
            self.reader.sync_files()
            self._notify([row])
        return describe_outcome(row, self._describe_space(row, origin), self.reader.problems)

    def _describe_space(self, row: LedgerRow, origin: Origin) -> str:
        if row.kind != "memory":
            return ""
        target = target_of(row.item)
        text = self.database.read_now(
            lambda db: settling.read_note_text(db, self.profile, target, origin.task_id)
        )
        return notes.describe_use(text, self.reader.max_chars(target))

    def _notify(self, rows: Sequence[LedgerRow]) -> None:
        for row in rows:
            if row.state == "active":
                for listener in self.listeners:
                    listener(row)
