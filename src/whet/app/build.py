"""The composition root: settings become a running program.

The only module that knows every part by name. An `App` holds what one process shares (store, provider,
gate, background processes); a `Session` is one conversation on it. Reading order for a newcomer:
`cli/chat.py`, this file, `agent/loop.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from whet.agent.session import Session
from whet.app import confirmed, plugged
from whet.app.children import Children
from whet.app.contexts import Contexts
from whet.app.learning import LearningServices
from whet.app.memories import MemoryObserver, offer_skills
from whet.app.models import Models
from whet.app.notify import NotifiedPerson, NotifierGroup
from whet.app.outcomes import Outcomes
from whet.app.plugged import PluginNeeds
from whet.app.plugin_sessions import PluginSessions
from whet.app.practice import PracticeHost
from whet.app.remote_tools import open_servers, remote_names, with_remote
from whet.app.reviews import ReviewParts, ReviewRunner
from whet.app.schedule_watch import ScheduleWatch
from whet.app.session_builder import SessionBuilder, SessionStart, SharedParts, StoredPrefix
from whet.app.standing import GrantRepository
from whet.app.warm_tool import WarmToolHandler
from whet.app.warmth import OFF, WarmStarts
from whet.app.whose import OWNERS, OWNERS_TOOLS, Principal
from whet.approval.gate import PolicyGate
from whet.clock import Clock, SystemClock
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.context.prompt import system_prompt
from whet.context.seat import EngineRunner
from whet.contract.context_engine import EngineOffer
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.contract.protocols import ContextStatus, Person, Provider
from whet.lanes import ToolPool
from whet.providers.catalog import SERVERS
from whet.providers.connect import connect, learn_windows
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.trail import arguments_of
from whet.store.transcript import Transcript
from whet.tools.ask import ask_tools
from whet.tools.delegate import delegate_tools
from whet.tools.files import file_tools
from whet.tools.process import Processes
from whet.tools.recall import recall_tools
from whet.tools.registry import Registry, read_specs
from whet.tools.sessions import session_tools
from whet.tools.shell import ShellLimits, shell_tools
from whet.tools.todo import TodoLists, todo_tools
from whet.tools.warm import warm_tools
from whet.tools.web import WebLimits, web_tools


class App:
    """One process's resources, and the sessions opened on them. Close it with `aclose`."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        secrets: Mapping[str, str],
        person: Person,
        workspace: Path,
        source: str,
    ) -> None:
        self.home = home
        self.settings = settings
        self.workspace = workspace
        self._bell: NotifierGroup | None = None
        self.person: Person = NotifiedPerson(person, lambda: self._bell, settings.notify)
        self.clock: Clock = SystemClock()
        self.source = source
        self._secrets = secrets
        self.database = StateDatabase.open(home.database, self.clock)
        self.warmth = WarmStarts(home, settings.warm, self.database, self.clock)
        self._practice = PracticeHost()
        self.processes = Processes()
        self.pool = ToolPool()
        self.todo_lists = TodoLists()
        standing = GrantRepository(self.database, self.clock)
        self.gate = PolicyGate(settings.approval, self.person, standing, home.root)
        self.learning = LearningServices(self.database, self.clock, home, settings)
        self.outcomes = Outcomes(self.learning, self.database, settings.memory.holdout_share)
        self.reviews = ReviewRunner(self._needs_of_reviews(standing))
        self.schedules = ScheduleWatch(home, self.database, self.clock, settings.schedules)
        self._confirmations = confirmed.attach(self.gate, settings.confirm, secrets, home, self.clock)
        built_in = self._built_in()
        needs = PluginNeeds(home, settings, workspace, built_in.by_name, self._connect)
        self.plugins = plugged.load(needs)
        self._bell = plugged.bell(self.plugins, settings.notify)
        self._plugged = PluginSessions(self.plugins, self.source) if self.plugins else None
        try:
            self.models = Models(settings, self._connect)
        except WhetError:
            self._let_go()
            raise
        self.mcp = open_servers(home, settings, secrets, self.clock)
        self.tools = self._registry(built_in)
        self.learning.trust(self.tools.by_name.values())
        self._told_memories = self._join_memories()
        compressor = self.models.compressor(self.clock, can_recall="recall" in self.tools.by_name)
        self.contexts = Contexts(home, settings, [compressor, *self._plugged_engines()])
        self.contexts.broken.update(self.plugins.broken if self.plugins else {})
        self._builder = SessionBuilder(self._shared())

    @classmethod
    async def start(
        cls,
        home: Home,
        settings: Settings,
        secrets: Mapping[str, str],
        person: Person,
        workspace: Path,
        *,
        source: str = "cli",
    ) -> Self:
        """Open the store, connect the provider, gather the tools. Asks local servers for their window."""
        home.ensure()
        app = cls(home, settings, secrets, person, workspace, source)
        if app.mcp is not None:
            await app.mcp.learn()
            app._take_remote()
        app.learning.platform = source
        server = SERVERS.get(settings.model.provider)
        if server is not None and server.local and settings.model.provider != "practice":
            await learn_windows(app.models.provider)
        return app

    async def new_session(
        self,
        *,
        private: bool = False,
        title: str = "",
        leaving: Session | None = None,
        warm: str = "",
        whose: Principal = OWNERS,
    ) -> Session:
        """Begin a conversation: its system prompt and tools are written now and stay.

        After `leaving` it goes on in the same conversation (/new) and takes its context engine over. `warm`:
        a template's name, auto or off; empty for what the settings say. Its first message decides then.
        Templates are mined from the owner's sessions, so another person's starts with none. Raises WhetError.
        """
        if self.mcp is not None and self.mcp.is_stale:
            self._take_remote()
        if whose.profile and warm not in ("", OFF):
            raise ConfigError("warm starts are made of the owner's sessions; this one is not the owner's")
        left_out = OWNERS_TOOLS if whose.profile else ()
        tools = {name: tool for name, tool in self.tools.by_name.items() if name not in left_out}
        tools |= {tool.name: tool for tool in whose.tools}
        start = await self.outcomes.start(tools, whose.profile)
        workspace = whose.workspace or self.workspace
        prompt = system_prompt(
            workspace,
            self.settings.tools.toolsets,
            instructions=self.settings.agent.instructions,
            learned=start.part.text,
        )
        conversation_id = leaving.log.session.conversation_id if leaving else ""
        wanted = await self.warmth.wanted(OFF if whose.profile else warm, str(workspace))
        new = SessionStart(
            prompt,
            list(tools.values()),
            private=private,
            title=title,
            conversation_id=conversation_id,
            warm=wanted,
            whose=whose,
        )
        session = await self._builder.create(new, leaving=leaving)
        await self.outcomes.record(session.id, start)
        return session

    async def open_session(self, session_id: str, *, leaving: Session | None = None) -> Session:
        """Open a stored conversation; its prefix goes out with the same bytes as before.

        It takes the context engine of `leaving` over.
        """
        log = await Transcript.open(self.database, session_id, self.clock)
        seat = await self._builder.seat(leaving, foreground=True)
        prompt, tools_json, done = await self.database.read(
            lambda db: (*sessions.prefix(db, session_id), arguments_of(db, session_id, "todo"))
        )
        if not prompt and not tools_json:  # it was made by another program
            prompt, tools_json = await self._freeze(session_id, seat)
        self.todo_lists.restore(session_id, done)
        stored = StoredPrefix(log, prompt, read_specs(tools_json.encode()))
        return await self._builder.build(stored, seat, leaving=leaving)

    async def _freeze(self, session_id: str, seat: EngineRunner) -> tuple[str, str]:
        own = await self.contexts.tools(seat, self.tools.by_name)
        specs = [tool.spec for tool in (*self.tools.by_name.values(), *own)]
        toolsets = self.settings.tools.toolsets
        prompt = system_prompt(self.workspace, toolsets, instructions=self.settings.agent.instructions)
        tools_json = msgspec.json.encode(specs).decode()
        await self.database.write(lambda db: sessions.freeze_prefix(db, session_id, prompt, tools_json))
        return prompt, tools_json

    async def continue_session(self) -> Session:
        """Open the latest conversation of this workspace."""
        latest = await self.database.read(
            lambda db: sessions.latest(db, source=self.source, workspace=str(self.workspace))
        )
        if latest is None:
            raise NotFound(f"no session in {self.workspace} to continue", hint="whet sessions list")
        return await self.open_session(latest.id)

    async def context_status(self, session_id: str) -> ContextStatus:
        """Say how full a stored conversation's window is, without opening it for its engine."""
        log = await Transcript.open(self.database, session_id, self.clock)
        prefix = await self.database.read(
            lambda db: (*sessions.prefix(db, session_id), sessions.prime_of(db, session_id))
        )
        return await self.contexts.peek(log, self.models.provider.info, prefix)

    async def switch_model(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer from the next request on, "" for the configured one;
        the prefix stays."""
        await self.models.switch(model)
        self.settings = msgspec.structs.replace(self.settings, model=self.models.settings)
        await self._answer_by(self.models.provider, session)

    async def answer_with(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer this one session from the next request on, while it
        is open; "" for the one that answers the others."""
        await self._answer_by(await self.models.choose(session.id, model), session)

    async def _answer_by(self, provider: Provider, session: Session) -> None:
        prompt, tools_json = await self.database.read(lambda db: sessions.prefix(db, session.id))
        link = provider.open(prompt, read_specs(tools_json.encode()), session.id)
        session.link, _ = await self.warmth.reopened(session.id, link)
        await session.context.status()  # the engine learns of it now, not at the next request

    async def let_go(self, session: Session) -> None:
        """End a session with engine and plugins and keep nothing of it in memory; it can be opened again."""
        await self.contexts.release(session.context)
        if self._plugged is not None:
            await self._plugged.leave(session.id)
        for gone in (session.id, *self.gate.forget_children(session.id)):
            self.learning.release(gone)
        await self.models.leave(session.id)
        session.leave()
        session.log.close()

    async def aclose(self) -> None:
        """End the sessions with their engines, stop background processes, close connections and store."""
        await self.schedules.aclose()
        await self.reviews.aclose()
        await self.contexts.aclose()
        if self._bell is not None:
            await self._bell.aclose()
        if self._told_memories is not None:
            await self._told_memories.aclose()
        if self._plugged is not None:
            await self._plugged.aclose()
        if self._confirmations is not None:
            await self._confirmations.aclose()
        if self.mcp is not None:
            await self.mcp.aclose()
        self.processes.close()
        self.pool.close()
        await self.models.aclose()
        self._let_go()

    def _let_go(self) -> None:
        if self.plugins is not None:
            self.plugins.close()
        self._practice.close()
        self.database.close()

    def _connect(self, model: ModelSettings) -> Provider:
        reached, fallback = self._practice.reach(model), self.settings.fallback
        return connect(reached, fallback, self._secrets, others=self._plugged_provider)

    def _plugged_provider(self, model: ModelSettings) -> Provider | None:
        return plugged.provider(self.plugins, model, self._secrets)

    async def _open_child(self, parent_id: str, title: str) -> Session:
        left_out = {"clarify", "delegate_task", "memory", "skill_manage", "warm_session"}
        tools = [tool for tool in self.tools.by_name.values() if tool.name not in left_out]
        row, profile = await self.database.read(
            lambda db: (sessions.get(db, parent_id), sessions.profile_of(db, parent_id))
        )
        workspace = Path(row.workspace) if row.workspace else self.workspace
        whose = Principal(profile, row.source, workspace)
        prompt = system_prompt(workspace, self.settings.tools.toolsets, child=True)
        steps = self.settings.agent.delegate_max_steps
        new = SessionStart(
            prompt, tools, title=title, parent_id=parent_id, kind="child", whose=whose, steps=steps
        )
        child = await self._builder.create(new)
        self.gate.adopt(child.id, parent_id)
        return child

    def _needs_of_reviews(self, standing: GrantRepository) -> ReviewParts:
        return ReviewParts(
            home=self.home,
            settings=self.settings,
            secrets=self._secrets,
            database=self.database,
            clock=self.clock,
            learning=self.learning,
            grants=standing,
            pool=self.pool,
            reach=self._practice.reach,
            others=self._plugged_provider,
        )

    def _shared(self) -> SharedParts:
        return SharedParts(
            settings=self.settings,
            source=self.source,
            workspace=self.workspace,
            database=self.database,
            clock=self.clock,
            person=self.person,
            gate=self.gate,
            models=self.models,
            tools=lambda: self.tools.by_name,
            contexts=self.contexts,
            learning=self.learning,
            reviews=self.reviews,
            warmth=self.warmth,
            plugins=self.plugins,
            hooks=self._plugged,
            bell=self._bell,
            memories=self._told_memories,
            servers=self.mcp,
        )

    def _join_memories(self) -> MemoryObserver | None:
        """Have plugins' memories and skills take part; None where no plugin brings a memory."""
        if self.plugins is None:
            return None
        offer_skills(self.plugins, self.learning.desk)
        return MemoryObserver(self.plugins.memories, self.learning.desk) if self.plugins.memories else None

    def _plugged_engines(self) -> list[EngineOffer]:
        return [engine.offer for engine in self.plugins.engines.values()] if self.plugins else []

    def _built_in(self) -> Registry:
        settings = self.settings.tools
        limits = ShellLimits(settings.terminal_timeout_s, settings.output_cap_chars)
        children = Children(self._open_child, lambda: self._plugged)
        registry = Registry(
            (
                *file_tools(self.pool),
                *shell_tools(self.processes, limits),
                *web_tools(self.pool, WebLimits(allow_private=settings.web_allow_private)),
                *todo_tools(self.todo_lists),
                *ask_tools(),
                *self.learning.tools(),
                *warm_tools(WarmToolHandler(self.warmth)),
                *session_tools(self.database),
                *recall_tools(self.database),
                *delegate_tools(children, parallel=self.settings.agent.delegate_parallel),
            )
        )
        return registry

    def _registry(self, registry: Registry) -> Registry:
        settings = self.settings.tools
        added = self.plugins.toolsets if self.plugins else []
        for tool in self.plugins.tools if self.plugins else ():
            registry.add(tool)
        remote = remote_names(self.settings)
        disabled = [name for name in settings.disabled if name not in remote]
        return registry.select([*settings.toolsets, *added], disabled)

    def _take_remote(self) -> None:
        if self.mcp is not None:
            self.tools = with_remote(self.tools, self.mcp)
            self.learning.trust(self.tools.by_name.values())
