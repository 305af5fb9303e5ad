"""One session put together: its row, its engine's host, its model link, and who takes part in its turns.

What a session starts with is decided in `app/build.py`. It does not know where the shared parts come from,
nor what a turn does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.agent.session import Session, TurnLimits
from whet.app.contexts import Contexts
from whet.app.learning import LearningServices
from whet.app.memories import MemoryObserver
from whet.app.models import Models
from whet.app.notify import NotifierGroup
from whet.app.plugin_sessions import PluginSessions
from whet.app.reviews import ReviewRunner
from whet.app.warmth import OFF, Opening, WarmStarts, WarmWish
from whet.app.whose import Principal
from whet.clock import Clock
from whet.config.schema import Settings
from whet.context.host import EngineHost
from whet.context.prompt import volatile_note
from whet.context.seat import EngineRunner, no_scope
from whet.contract.protocols import Gate, Person
from whet.contract.tools import Tool, ToolSpec
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession, SessionKind
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.mcp.servers import Servers
    from whet.plugins.load import LoadedPlugins


class SessionStart(msgspec.Struct, frozen=True):
    """What a new session starts with. `steps` 0 stands for what the settings allow a turn."""

    prompt: str
    tools: Sequence[Tool]
    title: str = ""
    parent_id: str = ""
    kind: SessionKind = "chat"
    private: bool = False
    conversation_id: str = ""
    warm: WarmWish = WarmWish()
    whose: Principal = Principal()
    steps: int = 0


class StoredPrefix(msgspec.Struct, frozen=True):
    """A session as it is in the store: its log, and the prefix that every request of it begins with."""

    log: Transcript
    prompt: str
    specs: Sequence[ToolSpec]


class SharedParts(msgspec.Struct, frozen=True):
    """What the sessions of one process have in common. `tools` gives those that are there now; None stands
    for what only some homes have: plugins, notifiers, plugins' memories, MCP servers."""

    settings: Settings
    source: str
    workspace: Path
    database: StateDatabase
    clock: Clock
    person: Person
    gate: Gate
    models: Models
    tools: Callable[[], Mapping[str, Tool]]
    contexts: Contexts
    learning: LearningServices
    reviews: ReviewRunner
    warmth: WarmStarts
    plugins: LoadedPlugins | None
    hooks: PluginSessions | None
    bell: NotifierGroup | None
    memories: MemoryObserver | None
    servers: Servers | None


class SessionBuilder:
    """Makes sessions on the shared parts of one process."""

    def __init__(self, shared: SharedParts) -> None:
        self._shared = shared

    async def create(self, start: SessionStart, *, leaving: Session | None = None) -> Session:
        """Begin a session: its row and prefix are durable on return, and its prefix stays."""
        shared = self._shared
        seat = await self.seat(leaving, foreground=start.kind == "chat")
        own = await shared.contexts.tools(seat, shared.tools())
        specs = [tool.spec for tool in (*start.tools, *own)]
        log = await Transcript.create(shared.database, self._row(start, specs), shared.clock)
        stored = StoredPrefix(log, start.prompt, specs)
        session = await self.build(stored, seat, leaving=leaving, steps=start.steps)
        if start.warm.name != OFF:
            opening = Opening(
                lambda prompt: shared.models.answering(log.session.id).open(prompt, specs, log.session.id),
                start.prompt,
                specs,
                lambda tokens: shared.contexts.lengthen(session.context, tokens),
            )
            shared.warmth.arrange(session, start.warm, opening)
        return session

    async def seat(self, leaving: Session | None, *, foreground: bool) -> EngineRunner:
        """Give a session its context engine: that of the session it follows, else one of its own."""
        contexts = self._shared.contexts
        if leaving is not None:
            return contexts.host(leaving.context).seat
        return await contexts.seat(self._shared.models.provider.info, foreground=foreground)

    async def build(
        self, stored: StoredPrefix, seat: EngineRunner, *, leaving: Session | None = None, steps: int = 0
    ) -> Session:
        """Make a stored session one that takes turns: the same prefix, with the tools that are there now."""
        shared, row = self._shared, stored.log.session
        tools = await self._tools(stored.specs, seat)
        profile = shared.database.read_now(lambda db: sessions.profile_of(db, row.id))
        if profile:
            shared.learning.bind_person(row.id, profile, row.source)
        agent, folder = shared.settings.agent, Path(row.workspace)
        limits = TurnLimits(steps or agent.max_steps, agent.turn_timeout_s)
        workspace = folder if row.workspace and folder.is_dir() else shared.workspace
        link = shared.models.provider.open(stored.prompt, stored.specs, row.id)
        link, primed = await shared.warmth.reopened(row.id, link)
        self._note_news(stored.specs, seat)
        prefix = (stored.prompt, msgspec.json.encode(stored.specs).decode(), primed)
        scope = shared.plugins.scope if shared.plugins else no_scope
        host = shared.contexts.put(stored.log, seat, lambda: session.link.info, prefix, scope=scope)
        session = Session(
            log=stored.log,
            link=link,
            context=host,
            tools=tools,
            gate=shared.gate,
            person=shared.person,
            limits=limits,
            clock=shared.clock,
            workspace=workspace,
            note=lambda: volatile_note(shared.clock.now(), workspace, limits.steps),
            after_turn=shared.bell.after(host.turn_ended) if shared.bell else host.turn_ended,
        )
        await self._join(session, host, leaving, profile)
        return session

    async def _join(self, session: Session, host: EngineHost, leaving: Session | None, profile: str) -> None:
        """Let all who take part in turns in: reviews, the engine, plugins, memories, warm starts' judge."""
        shared = self._shared
        session.jobs_at_end = shared.reviews.watch(session, lambda: shared.models.runtime(session.model))
        await host.begin(shared.contexts.host(leaving.context) if leaving else None)
        if shared.hooks is not None:
            await shared.hooks.enter(session, host, leaving.id if leaving else "")
        if shared.memories is not None and not profile:
            shared.memories.enter(session)
        shared.warmth.watch(session)

    async def _tools(self, specs: Sequence[ToolSpec], seat: EngineRunner) -> dict[str, Tool]:
        """Give the tools of a stored list that are there now, the engine's own among them."""
        there = self._shared.tools()
        own = {tool.name: tool for tool in await self._shared.contexts.tools(seat, there)}
        known = {**own, **there}
        tools = {spec.name: tool for spec in specs if (tool := known.get(spec.name))}
        if missing := [name for name in own if name not in tools]:
            seat.note(f"{seat.name}: its tools ({', '.join(missing)}) come with a new session, not this one")
        return tools

    def _note_news(self, specs: Sequence[ToolSpec], seat: EngineRunner) -> None:
        for line in self._shared.plugins.take_news() if self._shared.plugins else ():
            seat.note(line)
        if self._shared.servers is not None:
            self._shared.servers.enter(specs, seat)

    def _row(self, start: SessionStart, specs: Sequence[ToolSpec]) -> NewSession:
        shared = self._shared
        info = shared.models.provider.info
        return NewSession(
            id=shared.clock.new_id(),
            conversation_id=start.conversation_id,
            parent_session_id=start.parent_id,
            kind=start.kind,
            source=start.whose.source or shared.source,
            provider=info.provider,
            model=info.model,
            workspace=str(start.whose.workspace or shared.workspace),
            private=start.private or shared.settings.store.private,
            title=start.title,
            system_prompt=start.prompt,
            tools_json=msgspec.json.encode(specs).decode(),
            profile=start.whose.profile,
        )
