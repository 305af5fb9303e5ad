"""Where learned changes are handed in: judged, entered in the ledger, put into files; staged for reviews.

One desk per profile. A change goes through the gate, becomes one row in one transaction, and only then the
files follow (`journal.py`). A review's changes are staged and come into force together, in the transaction
that completes its job (`settle`). It does not know the tools, nor who asks for reviews.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.errors import NotFound
from whet.contract.origin import Origin
from whet.memory import forget, notes, overlay, prompt_part, purge, shelf, undo
from whet.memory.claim import LOCAL, Claim, GateVerdict
from whet.memory.forget import ForgetStep
from whet.memory.journal import Journal
from whet.memory.library import Library, SkillInfo
from whet.memory.prompt_part import PromptItem, PromptPart
from whet.memory.purge import Purged
from whet.memory.requests import MemoryRequest, NeedsYes, Refused, SkillRequest, Target, WriteOutcome
from whet.memory.settling import Settling
from whet.memory.wording import told
from whet.memory.writes import Judge, NoteWrites, SkillWrites
from whet.store import learned, ledger
from whet.store.database import StateDatabase
from whet.store.learned import Use
from whet.store.ledger import LedgerRow
from whet.store.purge import erase

if TYPE_CHECKING:
    from whet.memory.intake import SkillIntake

T = TypeVar("T")


class NotesState(msgspec.Struct, frozen=True):
    """A notes file as sessions read it: its text, how full it is, and what is wrong with it on disk."""

    target: Target
    path: str
    text: str
    entries: int
    used: str
    trouble: str = ""


class ClaimGate:
    """Judges what is handed in: by the gate, or by `instead` where that is set. The results of `local_tools`
    are evidence. A part of its own, so that a desk that nobody uses any more is freed at once."""

    def __init__(self, database: StateDatabase) -> None:
        self.local_tools: Collection[str] = LOCAL
        self.instead: Judge | None = None
        self._database = database

    def __call__(self, claim: Claim, origin: Origin) -> GateVerdict:
        """Give the verdict. Raises Refused."""
        if self.instead is not None:
            return self.instead(claim, origin)
        if not claim.text:
            return GateVerdict("user")
        # The gate is found at the first write: it costs more to import than all else here together.
        if origin.write_origin in ("user", "import"):
            pkgutil.resolve_name("whet.memory.gate:check_text")(claim)
            return GateVerdict("user")
        judge: Callable[..., GateVerdict] = pkgutil.resolve_name("whet.memory.gate:judge_stored")
        foreground = origin.write_origin == "foreground"
        return judge(
            self._database, origin.evidence_session_id, self.local_tools, claim, foreground=foreground
        )


class LearningService:
    """One profile's learning. Its methods may be called from any task; files are touched on a thread."""

    def __init__(
        self,
        database: StateDatabase,
        clock: Clock,
        folder: Path,
        settings: tuple[MemorySettings, ReviewSettings],
        profile: str = "",
    ) -> None:
        self.database = database
        self.clock = clock
        self.folder = folder
        self.profile = profile
        self.limits, self.review = settings
        self.journal = Journal(database, clock, folder, profile)
        self.library = Library(folder / "skills")
        self.listeners: list[Callable[[LedgerRow], None]] = []
        self.judging = ClaimGate(database)
        self._settling = Settling(profile, self.limits, self.review)
        self._note_writes = NoteWrites(self.journal, self.limits, self.judging)
        self._skill_writes = SkillWrites(self.journal, self.library, self.judging)

    def for_person(self, name: str, folder: Path) -> LearningService:
        """Give the desk of another person: notes and skills of their own, nothing of anybody else's."""
        desk = LearningService(self.database, self.clock, folder, (self.limits, self.review), profile=name)
        desk.judging.local_tools = self.judging.local_tools
        return desk

    async def memory(self, request: MemoryRequest, origin: Origin) -> WriteOutcome:
        """Make one change to the notes: durable, and in its file or waiting for it, on return.

        Repeated with the same session and call id it gives the stored outcome. Never raises for what the
        model can mend; StoreError passes.
        """
        return await self._change(lambda: self._note_writes.write(request, origin), origin)

    async def skill(self, request: SkillRequest, origin: Origin) -> WriteOutcome:
        """Make one change to a skill, as `memory` does to the notes."""
        return await self._change(lambda: self._skill_writes.write(request, origin), origin)

    async def skills_list(self, query: str = "") -> str:
        """Give the skills' names and descriptions, or those that fit the words of `query`."""
        return await asyncio.to_thread(lambda: shelf.listed(self.library.all(), query))

    async def skills(self) -> list[SkillInfo]:
        """Give every skill, sorted by name; one that can't be used says why."""
        return await asyncio.to_thread(self.library.all)

    async def skill_view(self, name: str, file_path: str, origin: Origin, how: str = "view") -> WriteOutcome:
        """Give a skill's text, or one of its files, with its hash; the load leaves a receipt."""
        return await asyncio.to_thread(self._guarded, lambda: self._view(name, file_path, origin, how))

    def settle(self, connection: apsw.Connection, task_id: str) -> list[LedgerRow]:
        """Bring a review's staged rows into force, inside the caller's transaction; gives all of them.

        Each becomes active, quarantined, inbox, or refused with the reason where what it builds on has
        changed. Files follow with `apply`.
        """
        return self._settling.settle(connection, task_id)

    def discard(self, connection: apsw.Connection, task_id: str) -> None:
        """Drop the staged rows of a review that was given up, inside the caller's transaction."""
        for row in ledger.of_task(connection, task_id, ("staged",)):
            ledger.set_state(connection, row.id, "rejected", reason="its review was given up")

    async def undo(self, row_id: int, origin: Origin) -> LedgerRow:
        """Take a change back, files included, and give the row that did. Raises NotFound, CannotUndo."""
        return await self._decide(row_id, lambda db, row: undo.undo(db, row, origin, self._now()))

    async def accept(self, row_id: int) -> LedgerRow:
        """Bring a waiting change into force. Raises NotFound, CannotUndo."""
        return await self._decide(row_id, lambda db, row: undo.accept(db, row, self._settling))

    async def reject(self, row_id: int, reason: str = "rejected by the person") -> LedgerRow:
        """Drop a waiting change. Raises NotFound, CannotUndo."""
        return await self._decide(row_id, lambda db, row: undo.reject(db, row, reason))

    async def notes(self) -> list[NotesState]:
        """Give both notes files, edits by hand noticed first."""
        return await asyncio.to_thread(self._notes)

    async def change(self, row_id: int) -> LedgerRow:
        """Give a change. Raises NotFound."""
        return await self.database.read(lambda db: ledger.get(db, row_id, self.profile))

    async def install(self, intake: SkillIntake, source: str) -> LedgerRow:
        """Enter a foreign skill: in force where nothing was found in it, else quarantined until accepted.

        Raises Refused where there is a skill of that name.
        """

        enter: Callable[..., LedgerRow] = pkgutil.resolve_name("whet.memory.intake:enter")

        def run() -> LedgerRow:
            self.journal.settle([intake.name])
            row = self.database.write_now(
                lambda db: enter(db, intake, source, profile=self.profile, now=self._now())
            )
            self.journal.settle()
            return row

        return await asyncio.to_thread(run)

    async def pin(self, name: str, pinned: bool) -> None:
        """Keep a skill as it is (or no longer): nobody but the person changes it. Raises NotFound."""

        def work(connection: apsw.Connection) -> None:
            mark = learned.mark(connection, self.profile, name)
            learned.set_mark(connection, self.profile, msgspec.structs.replace(mark, pinned=pinned))

        info = self.library.find(name)
        if info is None or info.source != "home":
            raise NotFound(f"there is no skill {name} of yours", hint="whet skills list")
        await self.database.write(work)

    async def forget(self, session_id: str, origin: Origin, *, dry_run: bool) -> list[ForgetStep]:
        """Take back all that rests on a session, or say what that would be. Gives the steps, in order."""

        def run() -> list[ForgetStep]:
            self.journal.settle()
            if dry_run:
                return self._read(lambda db: forget.plan(db, self.profile, session_id))
            done = self.database.write_now(
                lambda db: forget.carry_out(db, self.profile, session_id, origin, self._now())
            )
            self.journal.settle()
            return done

        steps = await asyncio.to_thread(run)
        for step in steps:
            if step.back is not None:
                self._tell(step.back)
        return steps

    async def purge(self, session_id: str) -> Purged:
        """Take the words of what was forgotten out of the ledger and off the disk, for good; after `forget`.

        Raises StoreBusy where another process keeps the database in use: asked again, it is done.
        """

        def run() -> Purged:
            self.journal.settle()
            done = self.database.write_now(lambda db: purge.carry_out(db, self.profile, session_id))
            erase(self.database)
            return done

        return await asyncio.to_thread(run)

    async def _decide(
        self, row_id: int, decide: Callable[[apsw.Connection, LedgerRow], LedgerRow]
    ) -> LedgerRow:
        def work(connection: apsw.Connection) -> LedgerRow:
            return decide(connection, ledger.get(connection, row_id, self.profile))

        def run() -> LedgerRow:
            self.journal.settle()
            row = self.database.write_now(work)
            self.journal.settle()
            return row

        row = await asyncio.to_thread(run)
        self._tell(row)
        return row

    async def apply(self, rows: Sequence[LedgerRow] = ()) -> None:
        """Write the files that don't hold yet what the ledger says; tell listeners of `rows` in force."""
        await asyncio.to_thread(self.journal.settle)
        for row in rows:
            self._tell(row)

    async def prompt_part(self, offered: Collection[str], without: Collection[PromptItem] = ()) -> PromptPart:
        """Give what a new session reads of memory and skills but for `without`; `offered` names its tools."""
        return await asyncio.to_thread(self._prompt_part, offered, without)

    def _prompt_part(self, offered: Collection[str], without: Collection[PromptItem]) -> PromptPart:
        self.journal.settle()
        texts: dict[Target, str] = {t: self.journal.text(path) for t, path in notes.FILES.items()}
        uses = self._read(lambda db: learned.use_counts(db, self.profile))
        said = prompt_part.notes_part(texts, without)
        index = prompt_part.index_part(
            self.library.all(), uses, self.limits.skill_index_chars, offered, without
        )
        text = "\n\n".join(filter(None, (said.text, index.text)))
        return PromptPart(text, (*said.items, *index.items))

    def _view(self, name: str, file_path: str, origin: Origin, how: str) -> WriteOutcome:
        self.journal.settle([name])
        if origin.task_id and self._read(lambda db: overlay.is_staged(db, origin.task_id, name)):
            files = self._read(lambda db: overlay.skill_files(db, self.profile, name, origin.task_id))
            load = shelf.shown(name, files, file_path, "not in force yet")
            return WriteOutcome(True, "staged", load.text, hash=load.hash)
        load = shelf.load(self.library, name, file_path)
        use = Use(origin.session_id, origin.turn_id, origin.tool_call_id, name, load.file, load.hash, how)
        now = self._now()
        self.database.write_now(lambda db: learned.add_use(db, self.profile, use, now))
        return WriteOutcome(True, "active", load.text, summary=f"Skill '{name}' loaded", hash=load.hash)

    def _notes(self) -> list[NotesState]:
        self.journal.settle()
        return [self._notes_state(target, path) for target, path in notes.FILES.items()]

    def _notes_state(self, target: Target, path: str) -> NotesState:
        text = self.journal.text(path)
        limit = self.limits.memory_chars if target == "memory" else self.limits.user_chars
        trouble = self.journal.troubles.get(path, "")
        return NotesState(
            target, str(self.folder / path), text, len(notes.entries(text)), notes.used(text, limit), trouble
        )

    async def _change(self, write: Callable[[], LedgerRow], origin: Origin) -> WriteOutcome:
        def work() -> WriteOutcome:
            if (made := self._made_before(origin)) is not None:
                return told(made, self._notes_used(made, origin))
            if origin.write_origin == "review" and self.review.writes == "off":
                raise Refused("Reviews keep nothing: review.writes is off", hint="End the review.")
            row = write()
            if row.state == "active":
                self.journal.settle()
                self._tell(row)
            return told(row, self._notes_used(row, origin), self.journal.troubles)

        return await asyncio.to_thread(self._guarded, work)

    def _guarded(self, work: Callable[[], WriteOutcome]) -> WriteOutcome:
        try:
            return work()
        except Refused as error:
            text = f"{error.message.rstrip('.')}. {error.hint}".strip()
            return WriteOutcome(False, "refused", text)
        except NeedsYes as error:
            return WriteOutcome(False, "needs_yes", error.message)

    def _made_before(self, origin: Origin) -> LedgerRow | None:
        if not origin.tool_call_id:
            return None
        return self.database.read_now(lambda db: ledger.by_call(db, origin.session_id, origin.tool_call_id))

    def _notes_used(self, row: LedgerRow, origin: Origin) -> str:
        if row.kind != "memory":
            return ""
        target: Target = "user" if row.item == "user" else "memory"
        limit = self.limits.memory_chars if target == "memory" else self.limits.user_chars
        text = self._read(lambda db: overlay.note_text(db, self.profile, target, origin.task_id))
        return notes.used(text, limit)

    def _now(self) -> str:
        return iso(self.clock.now())

    def _tell(self, row: LedgerRow) -> None:
        if row.state == "active":
            for listener in self.listeners:
                listener(row)

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        return self.database.read_now(work)
