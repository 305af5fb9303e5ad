"""Rewind a session to a point (its files, its conversation, or both) and undo a rewind.

The intent is stored first; then the files are restored with a journal of their own; then the conversation,
together with the end of the intent. After a kill, an unfinished rewind is completed, or dropped if nothing
was done, before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from whet.clock import iso
from whet.contract.errors import NotFound
from whet.rewind import database
from whet.rewind.database import Record
from whet.rewind.differences import FileDiff, list_differences
from whet.rewind.ownership import (
    EditedPaths,
    add_folders,
    find_overlapping_steps,
    find_own_paths,
    step_key,
)
from whet.rewind.planning import Conflict, Scope
from whet.rewind.recorder import Unrecorded, Workspace
from whet.rewind.recordings import Recordings
from whet.rewind.taking_back import RewindResult, finish_interrupted, plan_rewind, take_back
from whet.sqlite.database import Work
from whet.store import facts, rewinds
from whet.store.rewinds import Parts, RewindRow
from whet.store.transcript import Transcript

T = TypeVar("T")
_POINT = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?")
_NOTHING = RewindResult((), (), {})


class Point(msgspec.Struct, frozen=True):
    """A point to rewind to: before a turn, or before a step of it (0: the turn)."""

    turn: int
    step: int = 0

    def __str__(self) -> str:
        return f"{self.turn}.{self.step}" if self.step else str(self.turn)


class StepChanges(msgspec.Struct, frozen=True):
    """A recorded step or rewind, and the number of paths that it changed."""

    turn: int
    step: int
    kind: database.RecordKind
    at_ms: int
    paths: int


class Outcome(msgspec.Struct, frozen=True):
    """The result of a rewind, or of its preview.

    `conversation`: the conversation was rewound, too; `undone_text` is the first user message that it lost.
    `finished`: an interrupted rewind was completed first.
    """

    files: RewindResult
    conversation: bool
    undone_text: str
    finished: bool = False

    @property
    def forceable_conflicts(self) -> list[Conflict]:
        """Conflicts that can be forced: paths with changes of another writer. The person decides."""
        return [conflict for conflict in self.files.conflicts if conflict.can_force]


def parse_point(text: str) -> Point | None:
    """Parse TURN or TURN.STEP; None for anything else."""
    match = _POINT.fullmatch(text)
    return Point(int(match[1]), int(match[2] or 0)) if match else None


def parse_target(text: str) -> tuple[str, Point | None]:
    """Split SESSION[:TURN[.STEP]]; a title may contain a colon."""
    name, colon, point_text = text.rpartition(":")
    point = parse_point(point_text) if colon else None
    return (name, point) if point is not None else (text, None)


class Rewinding:
    """The rewinds of one open session."""

    def __init__(self, recordings: Recordings, log: Transcript, fallback: Path) -> None:
        """`fallback` is the workspace for a session that names none."""
        self._recordings = recordings
        self._log = log
        self._db = log.writer.db
        folder = Path(log.session.workspace) if log.session.workspace else fallback
        self._workspace: Workspace = recordings.workspace_of(folder)

    async def steps(self) -> list[StepChanges]:
        """Return the recorded steps of the session, oldest first."""
        others, edited = await self._read_edited(await self._family())

        def work(connection: apsw.Connection) -> list[StepChanges]:
            return [
                StepChanges(
                    record.turn,
                    record.step,
                    record.kind,
                    record.at_ms,
                    len(find_own_paths(connection, record, others, edited)),
                )
                for record in database.list_records(connection, self._log.session.id)
            ]

        return await self._read(work, [])

    async def left_out(self) -> list[Unrecorded]:
        """Return the paths that the last scan of the workspace skipped."""
        if not self._workspace.exists:
            return []
        return await self._recordings.pool.run(self._workspace.left_out)

    async def diff(self, turn: int = 0) -> list[FileDiff]:
        """Return the file changes of a turn, or what the whole session (0) changed and did not take back."""
        others, edited = await self._read_edited(await self._family())

        def work(connection: apsw.Connection) -> list[FileDiff]:
            records = database.list_records(connection, self._log.session.id)
            steps = [record for record in records if record.kind == "step" and record.turn == turn]
            chosen = steps if turn else records
            return list_differences(connection, chosen, others, edited)

        return await self._read(work, [])

    async def last_changed_turn(self) -> int:
        """Return the last turn that changed files, or 0."""
        turns = [step.turn for step in await self.steps() if step.kind == "step" and step.paths]
        return turns[-1] if turns else 0

    async def preview(
        self, point: Point | None, parts: Parts, *, force: bool, files: Collection[str] = ()
    ) -> Outcome:
        """Return the outcome that a rewind to `point` would have; None means undoing the last rewind. `files`
        are the names of the files to restore, empty for all. Raises NotFound."""
        row = await self._build_row(point, parts)
        undone = await self._rewind_to_undo(row)
        result = _NOTHING
        first = await self._first_record(row)
        if first and row.parts != "conversation":
            scope = await self._scope(files, force=force)
            result = await self._recordings.pool.run(
                plan_rewind, self._workspace, first, self._log.session.id, scope
            )
        result = await self._add_unrecorded(result, row, files)
        conversation = row.parts != "files" and (undone is None or bool(undone.before))
        return Outcome(result, conversation, "")

    async def rewind(
        self, point: Point | None, parts: Parts, *, force: bool, files: Collection[str] = ()
    ) -> Outcome:
        """Rewind to before `point`; None means undoing the last rewind. Without `force`, conflicts are left
        unchanged. `files` are the names of the files to restore, empty for all.

        Raises NotFound, StoreBusy while a turn runs, StoreError.
        """
        finished = await self.recover()
        row = await self._build_row(point, parts)
        session_id = self._log.session.id
        await self._db.read(lambda db: self._log.writer.refuse_if_held(db))
        await self._db.write(lambda db: rewinds.begin_rewind(db, session_id, row))
        result = _NOTHING
        if row.parts != "conversation" and (first := await self._first_record(row)):
            new = Record(0, session_id, row.turn, row.step, "rewind", 0, 0, 0, row.id)
            scope = await self._scope(files, force=force)
            result = await self._recordings.pool.run(take_back, self._workspace, first, new, scope)
        result = await self._add_unrecorded(result, row, files)
        conversation, undone_text = await self._end_rewind(row)
        return Outcome(result, conversation, undone_text, finished)

    async def recover(self) -> bool:
        """Complete a rewind that a kill interrupted. Returns whether there was one."""
        finished = False
        if self._workspace.exists:
            finished = await self._recordings.pool.run(finish_interrupted, self._workspace) is not None
        session_id = self._log.session.id
        for row in await self._db.read(lambda db: rewinds.list_rewinds(db, session_id)):
            if row.state == "begun":
                if await self._record_of(row.id) is None:
                    await self._db.write(lambda db, id_=row.id: rewinds.delete_rewind(db, id_))
                else:
                    await self._end_rewind(row)
                    finished = True
        return finished

    async def _end_rewind(self, row: RewindRow) -> tuple[bool, str]:
        """Rewind the conversation, if that is part of it, together with the end of the rewind.

        A rewind that changed nothing is deleted, so that it does not hide the one before it from undo.
        """
        undone = await self._rewind_to_undo(row)
        record = await self._record_of(row.id)
        changed_files = record is not None and record.before != record.after
        if row.parts != "files" and undone is None:
            return True, await rewinds.rewind_conversation(
                self._log, row.id, row.turn, row.step, changed_files=changed_files
            )
        if row.parts != "files" and undone is not None and undone.before:
            await rewinds.undo_rewind(self._log, row.id, undone, changed_files=changed_files)
            return True, ""
        end = rewinds.mark_done if changed_files else rewinds.delete_rewind
        await self._db.write(lambda db: end(db, row.id))
        return False, ""

    async def _build_row(self, point: Point | None, parts: Parts) -> RewindRow:
        """Return the row of a new rewind to `point`, or of undoing the last rewind. Raises NotFound."""
        clock, session_id = self._log.writer.clock, self._log.session.id
        new = RewindRow(clock.new_id(), iso(clock.now()), 0, 0, "begun", "", parts)
        if point is None:
            done = await self._db.read(lambda db: rewinds.list_rewinds(db, session_id))
            undone = {row.undoes for row in done if row.state == "done"}
            last = next(
                (r for r in reversed(done) if r.state == "done" and not r.undoes and r.id not in undone), None
            )
            if last is None:
                raise NotFound(
                    "nothing in this session is taken back now", hint="whet rewind SESSION lists the points"
                )
            return msgspec.structs.replace(new, turn=last.turn, step=last.step, undoes=last.id)
        if not await self._db.read(lambda db: rewinds.has_point(db, session_id, point.turn, point.step)):
            raise NotFound(
                f"there is no point {point} in this session", hint="without a point, rewind lists them"
            )
        return msgspec.structs.replace(new, turn=point.turn, step=point.step)

    async def _rewind_to_undo(self, row: RewindRow) -> RewindRow | None:
        if not row.undoes:
            return None
        session_id = self._log.session.id
        done = await self._db.read(lambda db: rewinds.list_rewinds(db, session_id))
        return next((other for other in done if other.id == row.undoes), None)

    async def _first_record(self, row: RewindRow) -> int:
        """Return the id of the first record that a rewind undoes, or 0."""
        if row.undoes:
            record = await self._record_of(row.undoes)
            return record.id if record else 0
        return next(
            (
                record.id
                for record in await self._records()
                if record.kind == "step" and (record.turn, record.step) >= (row.turn, row.step)
            ),
            0,
        )

    async def _add_unrecorded(
        self, result: RewindResult, row: RewindRow, files: Collection[str]
    ) -> RewindResult:
        """Name the files of steps whose record is gone: it grew too old, or a power cut lost it."""
        if row.undoes or row.parts == "conversation":
            return result
        session_id = self._log.session.id
        changed = await self._db.read(lambda db: facts.list_changed_files(db, session_id, row.turn, row.step))
        recorded = {(record.turn, record.step) for record in await self._records() if record.kind == "step"}
        lost = {
            path: Conflict(path, f"step {turn}.{step} changed it, and has no record", can_force=False)
            for turn, step, path in changed
            if (turn, step) not in recorded and (not files or path in files)
        }
        return msgspec.structs.replace(result, conflicts=(*result.conflicts, *lost.values()))

    async def _record_of(self, rewind_id: str) -> Record | None:
        return next((record for record in await self._records() if record.rewind == rewind_id), None)

    async def _records(self) -> Sequence[Record]:
        return await self._read(lambda db: database.list_records(db, self._log.session.id), [])

    async def _scope(self, files: Collection[str], *, force: bool) -> Scope:
        family = await self._family()
        _, edited = await self._read_edited(family)
        return Scope(family, force, files, edited)

    async def _read_edited(self, family: Collection[str]) -> tuple[list[Record], EditedPaths]:
        """Return the steps outside of the family that overlap with steps of the session, and what tools
        edited in all of these."""
        session_id = self._log.session.id
        own, others = await self._read(lambda db: find_overlapping_steps(db, session_id, family), ([], []))
        keys = {step_key(record) for record in (*own, *others)}
        if not keys:
            return [], {}
        names = await self._db.read(lambda db: {key: facts.list_edited_files(db, *key) for key in keys})
        return others, {key: add_folders(files) for key, files in names.items() if files}

    async def _family(self) -> set[str]:
        """Return the ids of the session and of its helpers' sessions."""
        session_id = self._log.session.id
        return await self._db.read(lambda db: rewinds.list_family(db, session_id))

    async def _read(self, work: Work[T], default: T) -> T:
        """Read from the recordings, or return `default` if the workspace has none."""
        if not self._workspace.exists:
            return default
        return await self._recordings.pool.run(lambda: self._workspace.file.read_now(work))
