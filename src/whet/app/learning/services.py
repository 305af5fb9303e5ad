"""The learning services of a running program: the tools for memory and skills, and the notes and skills that
new sessions read.

A session's changes go to the owner's service unless it was bound to another person's. The items that a
session started with are recorded, and those that the hold-out removed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.messages import Message
from whet.contract.origin import Origin
from whet.contract.tools import Tool, ToolContext
from whet.memory.reader import MemoryReader, PromptPart
from whet.store import learned
from whet.store.database import StateDatabase
from whet.tools.toolsets.memory import MemoryTools
from whet.tools.toolsets.skills import SkillTools

if TYPE_CHECKING:
    from whet.memory.notes import NoteEntry
    from whet.memory.service import LearningService


class LearningServices:
    """The learning services of one process."""

    def __init__(
        self, database: StateDatabase, clock: Clock, home: Home, settings: Settings, platform: str = "cli"
    ) -> None:
        """`platform` is the interface of sessions that were not bound."""
        self.reader: MemoryReader = MemoryReader(
            database, clock, home.root, (settings.memory, settings.review)
        )
        self.reader.library.offer_built_in()
        self._people = home.people
        self._person_services: WeakValueDictionary[str, LearningService] = WeakValueDictionary()
        self._trusted_tools: frozenset[str] = frozenset()
        self._platform = platform
        self._bound: dict[str, tuple[LearningService, Origin]] = {}

    @cached_property
    def owner_service(self) -> LearningService:
        """The owner's learning service, created on first use."""
        from whet.memory.service import LearningService  # noqa: PLC0415 - 14 modules that a session's start does not need

        service = LearningService(self.reader)
        service.changes.trusted_tools = self._trusted_tools
        return service

    def reader_of(self, profile: str) -> MemoryReader:
        """Return the reader for a person's sessions, "" for the owner's."""
        return self.service_of(profile).reader if profile else self.reader

    def service_of(self, profile: str) -> LearningService:
        """Return a person's learning service, "" for the owner's. No other person sees their notes and
        skills.

        The service is kept while it is in use; its state is in files and the store. Plugins' memories belong
        to the owner, so they are not notified about other people's changes.
        """
        if not profile:
            return self.owner_service
        service = self._person_services.get(profile)
        if service is None:
            service = self.owner_service.for_person(profile, self._people / profile)
            service.library.share(self.reader.library)
            self._person_services[profile] = service
        return service

    def tools(self) -> list[Tool]:
        """Create the tools of memory and skills."""
        return [*MemoryTools(self.service_for_call), *SkillTools(self.service_for_call)]

    def trust(self, tools: Iterable[Tool]) -> None:
        """Register the available tools. The results of local tools without the tag "untrusted" count as
        evidence."""
        self._trusted_tools = frozenset(
            tool.spec.name
            for tool in tools
            if "untrusted" not in tool.tags and not tool.effects & {"network", "send"}
        )
        if "owner_service" in self.__dict__:
            self.owner_service.changes.trusted_tools = self._trusted_tools

    def bind(self, session_id: str, origin: Origin, profile: str) -> None:
        """Send a session's writes to the service of the person `profile` ("" for the owner), recorded with
        `origin`, such as a review's with its job and the reviewed session."""
        self._bound[session_id] = (self.service_of(profile), origin)

    def release(self, session_id: str) -> None:
        """Forget a session's binding."""
        self._bound.pop(session_id, None)

    def service_for_call(self, ctx: ToolContext, tool_name: str) -> tuple[LearningService, Origin]:
        """Return the learning service and the origin of a tool call."""
        fallback = (self.owner_service, Origin("foreground", platform=self._platform))
        service, origin = self._bound.get(ctx.session_id, fallback)
        return service, msgspec.structs.replace(
            origin,
            session_id=ctx.session_id,
            turn_id=ctx.turn_id,
            tool_call_id=ctx.call_id,
            tool_name=tool_name,
        )

    async def build_prompt_part(
        self,
        tags: Collection[str],
        reader: MemoryReader | None = None,
        without: Collection[learned.ContextItem] = (),
        folder: str = "",
    ) -> PromptPart:
        """Return the part of a new session's prompt with memory and skills. `tags` are those of its tools: if
        none of them writes notes or loads skills, the part is empty."""
        if "notes" not in tags and "loads-skills" not in tags:
            return PromptPart()
        has_skills = "loads-skills" in tags
        return await (reader or self.reader).build_prompt_part(without, folder, loads_skills=has_skills)


class LearnedStart(msgspec.Struct, frozen=True):
    """The learned items of a new session: its part of the prompt, and the items that the hold-out removed.
    `is_randomised`: the hold-out was drawn."""

    part: PromptPart
    held_out: tuple[learned.ContextItem, ...] = ()
    is_randomised: bool = False


class Outcomes:
    """Draws the learned items of new sessions and records them.

    A random share of the items is held out, drawn per item and session, so that sessions with and without an
    item differ only by chance. `chance` returns numbers in [0, 1).
    """

    def __init__(
        self,
        learning: LearningServices,
        database: StateDatabase,
        holdout_share: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._learning = learning
        self._database = database
        self._share = holdout_share
        self._chance = chance

    async def start(self, tools: Iterable[Tool], profile: str = "", folder: str = "") -> LearnedStart:
        """Return the learned items for a person's new session in a folder with these tools, without the
        held-out ones."""
        reader = self._learning.reader_of(profile)
        tags = {tag for tool in tools for tag in tool.tags}
        part = await self._learning.build_prompt_part(tags, reader, folder=folder)
        if not self._share or not part.items:
            return LearnedStart(part)
        held_out = tuple(item for item in part.items if self._chance() < self._share)
        if held_out:
            part = await self._learning.build_prompt_part(tags, reader, held_out, folder)
        return LearnedStart(part, held_out, is_randomised=True)

    async def record(self, session_id: str, start: LearnedStart) -> None:
        """Store the items that a session started with; durable on return."""
        if not start.part.items and not start.held_out:
            return
        items = (start.part.items, start.held_out)
        await self._database.append(
            lambda db: learned.record_items(db, session_id, *items, randomised=start.is_randomised)
        )


class RecollectionObserver(TurnObserver):
    """Adds up to `max_notes` of the reader's notes to each message that they are about."""

    def __init__(self, reader: MemoryReader, max_notes: int) -> None:
        self._reader = reader
        self._max_notes = max_notes

    async def before(self, session: Session, message: Message) -> Message:
        """Add the notes about a message that were not added to an earlier one."""
        if not any("notes" in tool.tags for tool in session.tools.values()):
            return message
        entries = await asyncio.to_thread(self._read_entries, str(session.workspace))
        if not entries:
            return message
        from whet.app.learning.note_recall import recall_notes  # noqa: PLC0415 - only where something is learned

        shown_notes = "\n".join(row.note for row in session.log.messages)
        recalled = await asyncio.to_thread(
            recall_notes, self._reader, session.id, entries, message.text, shown_notes, self._max_notes
        )
        if not recalled:
            return message
        return msgspec.structs.replace(message, note=f"{message.note}\n{recalled}".strip())

    def _read_entries(self, folder: str) -> list[NoteEntry]:
        """Return the present notes of both files that apply in a folder."""
        texts = self._reader.read_texts()
        if not any(texts.values()):
            return []
        from whet.memory.notes import parse_entries  # noqa: PLC0415 - a new home has none

        texts["memory"] = self._reader.drop_other_folders_notes(texts["memory"], folder)
        return [entry for text in texts.values() for entry in parse_entries(text)]
