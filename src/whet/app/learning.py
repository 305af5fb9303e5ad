"""Learning in a running program: the desk of each session, its tools, and what a new session reads of it.

A session writes to the home's own desk unless it was bound to another (a person's, in a gateway) or to the
review that it is. It does not know the gate, nor how files are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from weakref import WeakValueDictionary

import msgspec

from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.origin import Origin
from whet.contract.tools import Tool, ToolContext
from whet.memory.builtin import add_builtin
from whet.memory.claim import LOCAL
from whet.memory.desk import LearningService
from whet.memory.prompt_part import PromptItem, PromptPart
from whet.store.database import StateDatabase
from whet.tools.remember import memory_tools
from whet.tools.skills import skill_tools


class LearningServices:
    """The desks of one process."""

    def __init__(self, database: StateDatabase, clock: Clock, home: Home, settings: Settings) -> None:
        self.desk = LearningService(database, clock, home.root, (settings.memory, settings.review))
        add_builtin(self.desk.library)
        self._people = home.people
        self._desks: WeakValueDictionary[str, LearningService] = WeakValueDictionary({"": self.desk})
        self.platform = "cli"
        self._bound: dict[str, tuple[LearningService, Origin]] = {}

    def desk_of(self, profile: str) -> LearningService:
        """Give the desk of a person, "" for the owner: each has notes and skills that no other one sees.

        It stays while somebody has it: their open sessions do. What it knows is in files and the store.
        Another person's changes are told to nobody: plugins' memories are the owner's.
        """
        desk = self._desks.get(profile)
        if desk is None:
            desk = self.desk.for_person(profile, self._people / profile)
            desk.library.share(self.desk.library)
            self._desks[profile] = desk
        return desk

    def tools(self) -> list[Tool]:
        """Make the tools of memory and skills."""
        return [*memory_tools(self.of_call), *skill_tools(self.of_call)]

    def trust(self, tools: Iterable[Tool]) -> None:
        """Say which tools there are: the results of local ones not marked untrusted are evidence."""
        local = [
            tool.name
            for tool in tools
            if "untrusted" not in tool.tags and not tool.effects & {"network", "send"}
        ]
        self.desk.judging.local_tools = LOCAL.union(local)

    def bind(self, session_id: str, origin: Origin, desk: LearningService | None = None) -> None:
        """Have a session's writes count as `origin` says (a review's, with what it reviews and its job),
        and go to `desk` (the home's where None)."""
        self._bound[session_id] = (desk or self.desk, origin)

    def bind_person(self, session_id: str, profile: str, platform: str) -> None:
        """Have a person's session write to their own desk."""
        self.bind(session_id, Origin("foreground", platform=platform), self.desk_of(profile))

    def bind_review(self, session_id: str, origin: Origin, profile: str) -> None:
        """Have a review's writes go to the desk of whoever it is of."""
        self.bind(session_id, origin, self.desk_of(profile))

    def release(self, session_id: str) -> None:
        """Forget what a session was bound to."""
        self._bound.pop(session_id, None)

    def of_call(self, ctx: ToolContext, tool_name: str) -> tuple[LearningService, Origin]:
        """Give the desk and the origin of a tool call."""
        fallback = (self.desk, Origin("foreground", platform=self.platform))
        desk, origin = self._bound.get(ctx.session_id, fallback)
        return desk, msgspec.structs.replace(
            origin,
            session_id=ctx.session_id,
            turn_id=ctx.turn_id,
            tool_call_id=ctx.call_id,
            tool_name=tool_name,
        )

    async def prompt_part(
        self,
        tools: Collection[str],
        desk: LearningService | None = None,
        without: Collection[PromptItem] = (),
    ) -> PromptPart:
        """Give what a new session with these tools reads of memory and skills; nothing without the tools."""
        if not {"memory", "skill_view"} & set(tools):
            return PromptPart()
        return await (desk or self.desk).prompt_part(tools, without)
