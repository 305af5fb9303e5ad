"""The composition root: settings become a running program.

The only module that knows every part by name. An `App` holds what one process shares (store, provider,
gate, background processes); a `Session` is one conversation on it. Reading order for a newcomer:
`cli/chat.py`, this file, `agent/loop.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from whet.agent.session import Limits, Session
from whet.app import confirmed, plugged
from whet.app.children import Children
from whet.app.contexts import Contexts
from whet.app.learning import Learning
from whet.app.memories import Told, offer_skills
from whet.app.notify import Bell, NotifiedPerson
from whet.app.outcomes import Outcomes
from whet.app.plugged import PluginNeeds
from whet.app.plugin_sessions import PluginSessions
from whet.app.practice import PracticeHost
from whet.app.remote_tools import open_servers, remote_names, with_remote
from whet.app.reviews import Needs, Reviews, runtime_of
from whet.app.schedule_watch import ScheduleWatch
from whet.app.standing import Standing
from whet.app.summaries import Summariser
from whet.app.warm_tool import WarmActs
from whet.app.warmth import OFF, Opening, Wanted, Warmth
from whet.app.whose import OWNERS, OWNERS_TOOLS, Whose
from whet.approval.gate import PolicyGate
from whet.clock import Clock, SystemClock
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.context.compressor import Compressor, CompressorSettings
from whet.context.prompt import system_prompt, volatile_note
from whet.context.seat import Seat, no_scope
from whet.contract.context_engine import EngineOffer
from whet.contract.errors import NotFound, WhetError
from whet.contract.protocols import ContextStatus, Person, Provider
from whet.contract.tools import Tool, ToolSpec
from whet.lanes import ToolPool
from whet.providers.catalog import SERVERS
from whet.providers.connect import connect, learn_windows
from whet.store import sessions
from whet.store.database import Database
from whet.store.sessions import NewSession, SessionKind
from whet.store.trail import arguments_of
from whet.store.transcript import SessionLog
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


class _NewParts(msgspec.Struct, frozen=True):
    """What a session is begun with."""

    prompt: str
    tools: Sequence[Tool]
    title: str = ""
    parent_id: str = ""
    kind: SessionKind = "chat"
    private: bool = False
    conversation_id: str = ""
    warm: Wanted = Wanted()
    whose: Whose = Whose()


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
        self.person: Person = NotifiedPerson(person, lambda: self._bell, settings.notify)
        self.clock: Clock = SystemClock()
        self.source = source
        self._secrets = secrets
        self._others: dict[str, Provider] = {}
        self._bell: Bell | None = None
        self.database = Database.open(home.database, self.clock)
        self.warmth = Warmth(home, settings.warm, self.database, self.clock)
        self._practice = PracticeHost()
        self.processes = Processes()
        self.pool = ToolPool()
        self.todo_lists = TodoLists()
        standing = Standing(self.database, self.clock)
        self.gate = PolicyGate(settings.approval, self.person, standing, home.root)
        self.learning = Learning(self.database, self.clock, home, settings)
        self.outcomes = Outcomes(self.learning, self.database, settings.memory.holdout_share)
        self.reviews = Reviews(
            Needs(
                home,
                settings,
                secrets,
                self.database,
                self.clock,
                self.learning,
                standing,
                self.pool,
                self._practice.reach,
                self._plugged_provider,
            )
        )
        self.schedules = ScheduleWatch(home, self.database, self.clock, settings.schedules)
        self._confirmations = confirmed.attach(self.gate, settings.confirm, secrets, home, self.clock)
        built_in = self._built_in()
        needs = PluginNeeds(home, settings, workspace, built_in.by_name, self._connect)
        self.plugins = plugged.load(needs)
        self._plugged = PluginSessions(self.plugins, self.source) if self.plugins else None
        try:
            self.provider = self._connect(settings.model)
            self._summary_provider = self._connect_for_summaries()
        except WhetError:
            self._let_go()
            raise
        self.mcp = open_servers(home, settings, secrets, self.clock)
        self.tools = self._registry(built_in)
        self.learning.trust(self.tools.by_name.values())
        self._told_memories = self._join_memories()
        self.contexts = Contexts(home, settings, [self._compressor(), *self._plugged_engines()])
        self.contexts.broken.update(self.plugins.broken if self.plugins else {})

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
        app._bell = plugged.bell(app.plugins, settings.notify)
        app.learning.platform = source
        server = SERVERS.get(settings.model.provider)
        if server is not None and server.local and settings.model.provider != "practice":
            await learn_windows(app.provider)
        return app

    async def new_session(
        self,
        *,
        private: bool = False,
        title: str = "",
        leaving: Session | None = None,
        warm: str = "",
        whose: Whose = OWNERS,
    ) -> Session:
        """Begin a conversation: its system prompt and tools are written now and stay.

        After `leaving` it goes on in the same conversation (/new) and takes its context engine over. `warm`:
        a template's name, auto or off; empty for what the settings say. Its first message decides then.
        Templates are mined from the owner's sessions, so another person's starts with one only by name.
        """
        if self.mcp is not None and self.mcp.is_stale:
            self._take_remote()
        left_out = OWNERS_TOOLS if whose.profile else ()
        tools = {name: tool for name, tool in self.tools.by_name.items() if name not in left_out}
        start = await self.outcomes.start(tools, whose.profile)
        workspace = whose.workspace or self.workspace
        prompt = system_prompt(
            workspace,
            self.settings.tools.toolsets,
            instructions=self.settings.agent.instructions,
            learned=start.part.text,
        )
        conversation_id = leaving.log.session.conversation_id if leaving else ""
        wanted = await self.warmth.wanted(warm or ("off" if whose.profile else ""), str(workspace))
        parts = _NewParts(
            prompt,
            list(tools.values()),
            private=private,
            title=title,
            conversation_id=conversation_id,
            warm=wanted,
            whose=whose,
        )
        session = await self._create(parts, leaving=leaving)
        await self.outcomes.record(session.id, start)
        return session

    async def open_session(self, session_id: str, *, leaving: Session | None = None) -> Session:
        """Open a stored conversation; its prefix goes out with the same bytes as before.

        It takes the context engine of `leaving` over.
        """
        log = await SessionLog.open(self.database, session_id, self.clock)
        seat = await self._seat(leaving, foreground=True)
        prompt, tools_json = await self.database.read(lambda db: sessions.prefix(db, session_id))
        if not prompt and not tools_json:  # it was made by another program
            prompt, tools_json = await self._freeze(session_id, seat)
        specs = read_specs(tools_json.encode())
        done = await self.database.read(lambda db: arguments_of(db, session_id, "todo"))
        self.todo_lists.restore(session_id, done)
        return await self._session(log, prompt, specs, seat=seat, leaving=leaving)

    async def _freeze(self, session_id: str, seat: Seat) -> tuple[str, str]:
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
        log = await SessionLog.open(self.database, session_id, self.clock)
        prefix = await self.database.read(
            lambda db: (*sessions.prefix(db, session_id), sessions.prime_of(db, session_id))
        )
        return await self.contexts.peek(log, self.provider.info, prefix)

    async def switch_model(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer from the next request on; the prefix stays."""
        wanted = msgspec.structs.replace(self.settings.model, model=model)
        provider = self._connect(wanted)
        await self.provider.aclose()
        self.provider = provider
        self.settings = msgspec.structs.replace(self.settings, model=wanted)
        prompt, tools_json = await self.database.read(lambda db: sessions.prefix(db, session.id))
        specs = read_specs(tools_json.encode())
        link = provider.open(prompt, specs, session.id)
        session.link, _ = await self.warmth.reopened(session.id, link)
        await session.context.status()  # the engine learns of it now, not at the next request

    async def answer_with(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer this one session from the next request on."""
        provider = self._others.get(model)
        if provider is None:
            wanted = msgspec.structs.replace(self.settings.model, model=model)
            provider = self._others[model] = self._connect(wanted)
        prompt, tools_json = await self.database.read(lambda db: sessions.prefix(db, session.id))
        link = provider.open(prompt, read_specs(tools_json.encode()), session.id)
        session.link, _ = await self.warmth.reopened(session.id, link)
        await session.context.status()

    async def let_go(self, session: Session) -> None:
        """End a session with engine and plugins and keep nothing of it in memory; it can be opened again."""
        await self.contexts.release(session.context)
        if self._plugged is not None:
            await self._plugged.leave(session.id)
        for gone in (session.id, *self.gate.forget_children(session.id)):
            self.learning.release(gone)
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
        for provider in (self.provider, *self._others.values()):
            await provider.aclose()
        if self._summary_provider is not None:
            await self._summary_provider.aclose()
        self._let_go()

    def _let_go(self) -> None:
        if self.plugins is not None:
            self.plugins.close()
        self._practice.close()
        self.database.close()

    def _connect_for_summaries(self) -> Provider | None:
        model, wanted = self.settings.model, self.settings.context.summary_model
        if not wanted:
            return None
        return self._connect(
            msgspec.structs.replace(model, model=wanted, window_tokens=0, max_output_tokens=0)
        )

    def _connect(self, model: ModelSettings) -> Provider:
        reached, fallback = self._practice.reach(model), self.settings.fallback
        return connect(reached, fallback, self._secrets, others=self._plugged_provider)

    def _plugged_provider(self, model: ModelSettings) -> Provider | None:
        return plugged.provider(self.plugins, model, self._secrets)

    def _compressor(self) -> EngineOffer:
        own, other = Summariser(lambda: self.provider), self._summary_provider
        limits = CompressorSettings(
            max_output_tokens=self.provider.info.max_output_tokens,
            summary_window_tokens=other.info.window_tokens if other else 0,
            can_recall="recall" in self.tools.by_name,
        )
        summarise, again = (Summariser(lambda: other), own) if other else (own, None)
        return EngineOffer(
            "compressor",
            "Keeps the beginning and the end, summarises the middle; recall brings any of it back.",
            fresh=lambda: Compressor(summarise, self.clock, limits, summarise_again=again),
        )

    async def _open_child(self, parent_id: str, title: str) -> Session:
        left_out = {"clarify", "delegate_task", "memory", "skill_manage", "warm_session"}
        tools = [tool for tool in self.tools.by_name.values() if tool.name not in left_out]
        row, profile = await self.database.read(
            lambda db: (sessions.get(db, parent_id), sessions.profile_of(db, parent_id))
        )
        workspace = Path(row.workspace) if row.workspace else self.workspace
        whose = Whose(profile, row.source, workspace)
        prompt = system_prompt(workspace, self.settings.tools.toolsets, child=True)
        parts = _NewParts(prompt, tools, title=title, parent_id=parent_id, kind="child", whose=whose)
        child = await self._create(parts, steps=self.settings.agent.delegate_max_steps)
        self.gate.adopt(child.id, parent_id)
        return child

    async def _create(self, parts: _NewParts, *, steps: int = 0, leaving: Session | None = None) -> Session:
        info = self.provider.info
        seat = await self._seat(leaving, foreground=parts.kind == "chat")
        own = await self.contexts.tools(seat, self.tools.by_name)
        specs = [tool.spec for tool in (*parts.tools, *own)]
        new = NewSession(
            id=self.clock.new_id(),
            conversation_id=parts.conversation_id,
            parent_session_id=parts.parent_id,
            kind=parts.kind,
            source=parts.whose.source or self.source,
            provider=info.provider,
            model=info.model,
            workspace=str(parts.whose.workspace or self.workspace),
            private=parts.private or self.settings.store.private,
            title=parts.title,
            system_prompt=parts.prompt,
            tools_json=msgspec.json.encode(specs).decode(),
            profile=parts.whose.profile,
        )
        log = await SessionLog.create(self.database, new, self.clock)
        session = await self._session(log, parts.prompt, specs, steps=steps, seat=seat, leaving=leaving)
        if parts.warm.name != OFF:
            opening = Opening(
                lambda prompt: self.provider.open(prompt, specs, log.session.id),
                parts.prompt,
                specs,
                lambda tokens: self.contexts.lengthen(session.context, tokens),
            )
            self.warmth.arrange(session, parts.warm, opening)
        return session

    async def _seat(self, leaving: Session | None, *, foreground: bool) -> Seat:
        if leaving is not None:
            return self.contexts.host(leaving.context).seat
        return await self.contexts.seat(self.provider.info, foreground=foreground)

    async def _session(
        self,
        log: SessionLog,
        prompt: str,
        specs: Sequence[ToolSpec],
        *,
        steps: int = 0,
        seat: Seat | None = None,
        leaving: Session | None = None,
    ) -> Session:
        seat = seat or await self._seat(leaving, foreground=True)
        own = {tool.name: tool for tool in await self.contexts.tools(seat, self.tools.by_name)}
        known = {**own, **self.tools.by_name}
        tools = {spec.name: tool for spec in specs if (tool := known.get(spec.name))}
        if missing := [name for name in own if name not in tools]:
            seat.note(f"{seat.name}: its tools ({', '.join(missing)}) come with a new session, not this one")
        profile = await self.database.read(lambda db: sessions.profile_of(db, log.session.id))
        if profile:
            self.learning.bind_person(log.session.id, profile, log.session.source)
        limits = Limits(steps or self.settings.agent.max_steps, self.settings.agent.turn_timeout_s)
        stored = Path(log.session.workspace)
        workspace = stored if log.session.workspace and stored.is_dir() else self.workspace
        link = self.provider.open(prompt, specs, log.session.id)
        link, primed = await self.warmth.reopened(log.session.id, link)
        for line in self.plugins.take_news() if self.plugins else ():
            seat.note(line)
        if self.mcp is not None:
            self.mcp.enter(specs, seat)
        prefix = (prompt, msgspec.json.encode(specs).decode(), primed)
        scope = self.plugins.scope if self.plugins else no_scope
        host = self.contexts.put(log, seat, lambda: session.link.info, prefix, scope=scope)
        session = Session(
            log=log,
            link=link,
            context=host,
            tools=tools,
            gate=self.gate,
            person=self.person,
            limits=limits,
            clock=self.clock,
            workspace=workspace,
            note=lambda: volatile_note(self.clock.now(), workspace, limits.steps),
            after_turn=self._bell.after(host.turn_ended) if self._bell else host.turn_ended,
        )
        session.jobs_at_end = self.reviews.watch(
            session, lambda: runtime_of(self.provider, session.model, self.settings)
        )
        await host.begin(self.contexts.host(leaving.context) if leaving else None)
        if self._plugged is not None:
            await self._plugged.enter(session, host, leaving.id if leaving else "")
        if self._told_memories is not None and not profile:
            self._told_memories.enter(session)
        self.warmth.watch(session)
        return session

    def _join_memories(self) -> Told | None:
        """Have plugins' memories and skills take part; None where no plugin brings a memory."""
        if self.plugins is None:
            return None
        offer_skills(self.plugins, self.learning.desk)
        return Told(self.plugins.memories, self.learning.desk) if self.plugins.memories else None

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
                *warm_tools(WarmActs(self.warmth)),
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
