"""The composition root: settings become a running program.

The only module that knows every part by name. An `App` holds what one process shares (store, provider,
gate, background processes); a `Session` is one conversation on it. Reading order for a newcomer:
`cli/chat.py`, this file, `agent/loop.py`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from whet.agent.session import Limits, Session
from whet.app import plugged
from whet.app.children import Children
from whet.app.contexts import Contexts
from whet.app.learning import Learning
from whet.app.memories import Told, offer_skills
from whet.app.outcomes import Outcomes
from whet.app.plugged import PluginNeeds
from whet.app.practice import PracticeHost
from whet.app.reviews import Needs, Reviews, runtime_of
from whet.app.standing import Standing
from whet.app.summaries import Summariser
from whet.approval.gate import PolicyGate, Service
from whet.approval.high_risk import HighRisk
from whet.clock import Clock, SystemClock
from whet.config.paths import Home
from whet.config.schema import ConfirmSettings, ModelSettings, Settings
from whet.context.compressor import Compressor, CompressorSettings
from whet.context.prompt import system_prompt, volatile_note
from whet.context.seat import Seat
from whet.contract.context_engine import EngineOffer
from whet.contract.errors import NotFound
from whet.contract.events import TurnEnd
from whet.contract.messages import Message, to_dict
from whet.contract.protocols import ContextStatus, Person, Provider
from whet.contract.tools import Tool, ToolSpec
from whet.lanes import ToolPool
from whet.providers.catalog import SERVERS
from whet.providers.connect import connect, learn_windows
from whet.store import sessions
from whet.store.database import Database
from whet.store.sessions import NewSession, SessionKind
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
from whet.tools.web import WebLimits, web_tools

if TYPE_CHECKING:
    from whet.app.confirming import Confirmations
    from whet.plugins.hooks import Hooks


class _NewParts(msgspec.Struct, frozen=True):
    """What a session is begun with."""

    prompt: str
    tools: Sequence[Tool]
    title: str = ""
    parent_id: str = ""
    kind: SessionKind = "chat"
    private: bool = False
    conversation_id: str = ""


class App:
    """One process's resources, and the sessions opened on them. Close it with `aclose`."""

    def __init__(
        self, home: Home, settings: Settings, secrets: Mapping[str, str], person: Person, workspace: Path
    ) -> None:
        self.home = home
        self.settings = settings
        self.workspace = workspace
        self.person = person
        self.clock: Clock = SystemClock()
        self.source = "cli"
        self._secrets = secrets
        self._told: list[str] = []
        self.database = Database.open(home.database, self.clock)
        self._practice = PracticeHost()
        self.provider = self._connect(settings.model)
        self.processes = Processes()
        self.pool = ToolPool()
        self.todo_lists = TodoLists()
        standing = Standing(self.database, self.clock)
        self.gate = PolicyGate(settings.approval, person, standing, home.root)
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
            )
        )
        self._confirmations = self._confirm_at(settings.confirm) if settings.confirm.url else None
        built_in = self._built_in()
        needs = PluginNeeds(home, settings, workspace, built_in.by_name, self._connect)
        self.plugins = plugged.load(needs)
        self.tools = self._registry(built_in)
        self.learning.trust(self.tools.by_name.values())
        self._told_memories = self._join_memories()
        self.contexts = Contexts(home, settings, [self._compressor(), *self._plugged_engines()])

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
        app = cls(home, settings, secrets, person, workspace)
        app.source = app.learning.platform = source
        server = SERVERS.get(settings.model.provider)
        if server is not None and server.local and settings.model.provider != "practice":
            await learn_windows(app.provider)
        return app

    async def new_session(
        self, *, private: bool = False, title: str = "", leaving: Session | None = None
    ) -> Session:
        """Begin a conversation: its system prompt and tools are written now and stay.

        After `leaving` it goes on in the same conversation (/new) and takes its context engine over.
        """
        tools = list(self.tools.by_name.values())
        start = await self.outcomes.start(self.tools.by_name)
        prompt = system_prompt(
            self.workspace,
            self.settings.tools.toolsets,
            instructions=self.settings.agent.instructions,
            learned=start.part.text,
        )
        conversation_id = leaving.log.session.conversation_id if leaving else ""
        parts = _NewParts(prompt, tools, private=private, title=title, conversation_id=conversation_id)
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
        done = [
            call.arguments for message in log.messages for call in message.tool_calls if call.name == "todo"
        ]
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
        prefix = await self.database.read(lambda db: sessions.prefix(db, session_id))
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
        session.link = provider.open(prompt, specs, session.id)
        await session.context.status()  # the engine learns of it now, not at the next request

    async def aclose(self) -> None:
        """End the sessions with their engines, stop background processes, close connections and store."""
        await self.reviews.aclose()
        await self.contexts.aclose()
        if self._told_memories is not None:
            await self._told_memories.aclose()
        if self.plugins is not None:
            for host_session in self._told:
                await self.plugins.hooks.tell("on_session_end", session_id=host_session)
            self.plugins.close()
        if self._confirmations is not None:
            await self._confirmations.aclose()
        self.processes.close()
        self.pool.close()
        await self.provider.aclose()
        self._practice.close()
        self.database.close()

    def _confirm_at(self, settings: ConfirmSettings) -> Confirmations:
        # A home without a service, which is most of them, need not pay for its client.
        confirming = pkgutil.resolve_name("whet.app.confirming")
        confirmer: Confirmations = confirming.Confirmations(settings, self._secrets, self.home, self.clock)
        high_risk = HighRisk(settings.actions, defaults=settings.default_actions)
        self.gate.service = Service(high_risk, confirmer)
        return confirmer

    def _connect(self, model: ModelSettings) -> Provider:
        return connect(self._practice.reach(model), self.settings.fallback, self._secrets)

    def _compressor(self) -> EngineOffer:
        summarise = Summariser(lambda: self.provider)
        limits = CompressorSettings(
            max_output_tokens=self.provider.info.max_output_tokens,
            can_recall="recall" in self.tools.by_name,
        )
        return EngineOffer(
            "compressor",
            "Keeps the beginning and the end, summarises the middle; recall brings any of it back.",
            fresh=lambda: Compressor(summarise, self.clock, limits),
        )

    async def _open_child(self, parent_id: str, title: str) -> Session:
        left_out = {"clarify", "delegate_task", "memory", "skill_manage"}
        tools = [tool for tool in self.tools.by_name.values() if tool.name not in left_out]
        prompt = system_prompt(self.workspace, self.settings.tools.toolsets, child=True)
        parts = _NewParts(prompt, tools, title=title, parent_id=parent_id, kind="child")
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
            source=self.source,
            provider=info.provider,
            model=info.model,
            workspace=str(self.workspace),
            private=parts.private or self.settings.store.private,
            title=parts.title,
            system_prompt=parts.prompt,
            tools_json=msgspec.json.encode(specs).decode(),
        )
        log = await SessionLog.create(self.database, new, self.clock)
        return await self._session(log, parts.prompt, specs, steps=steps, seat=seat, leaving=leaving)

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
        limits = Limits(steps or self.settings.agent.max_steps, self.settings.agent.turn_timeout_s)
        stored = Path(log.session.workspace)
        workspace = stored if log.session.workspace and stored.is_dir() else self.workspace
        link = self.provider.open(prompt, specs, log.session.id)
        for line in self.plugins.take_news() if self.plugins else ():
            seat.note(line)
        prefix = (prompt, msgspec.json.encode(specs).decode())
        host = self.contexts.put(log, seat, lambda: session.link.info, prefix)
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
        )
        session.jobs_at_end = self.reviews.watch(
            session, lambda: runtime_of(self.provider, session.model, self.settings)
        )
        await host.begin(self.contexts.host(leaving.context) if leaving else None)
        if self.plugins is not None:
            await self._plug_in(session, self.plugins.hooks.bound_to(seat.engine))
        return session

    def _join_memories(self) -> Told | None:
        """Have plugins' memories and skills take part; None where no plugin brings a memory."""
        if self.plugins is None:
            return None
        offer_skills(self.plugins, self.learning)
        return Told(self.plugins.memories, self.learning) if self.plugins.memories else None

    def _plugged_engines(self) -> list[EngineOffer]:
        return [engine.offer for engine in self.plugins.engines.values()] if self.plugins else []

    async def _plug_in(self, session: Session, hooks: Hooks) -> None:
        """Let the plugins' hooks take part in a session."""
        facts = {
            "session_id": session.id,
            "conversation_id": session.log.session.conversation_id,
            "platform": self.source,
        }
        around = pkgutil.resolve_name("whet.plugins.around")
        take_news = self.plugins.take_news if self.plugins else list
        session.gate = around.HookedGate(session.gate, hooks, take_news)
        named = zip(session.tools, around.hooked_tools(session.tools.values(), hooks), strict=True)
        session.tools = dict(named)

        private = session.log.session.private
        memories = self.plugins.memories if self.plugins is not None and not private else None

        async def before(message: Message) -> Message:
            history = [to_dict(row) for row in session.log.messages] if hooks.has("pre_llm_call") else []
            text = await hooks.context(**facts, user_message=message.text, conversation_history=history)
            known = await memories.prefetch(message.text, session.id) if memories else ""
            note = "\n\n".join(filter(None, (message.note, text, known)))
            return msgspec.structs.replace(message, note=note) if text or known else message

        async def after(end: TurnEnd) -> None:
            if hooks.has("post_llm_call"):
                history = [to_dict(row) for row in session.log.messages]
                await hooks.tell("post_llm_call", **facts, text=end.text, conversation_history=history)
            if memories and (said := session.log.last_words()):
                await memories.sync_turn(said, end.text, session.id)

        session.before_turn, session.after_turn = before, after
        self._told.append(session.id)
        await hooks.tell("on_session_start", **facts, model=session.model.model)

    def _built_in(self) -> Registry:
        settings = self.settings.tools
        limits = ShellLimits(settings.terminal_timeout_s, settings.output_cap_chars)
        children = Children(self._open_child)
        registry = Registry(
            (
                *file_tools(self.pool),
                *shell_tools(self.processes, limits),
                *web_tools(self.pool, WebLimits(allow_private=settings.web_allow_private)),
                *todo_tools(self.todo_lists),
                *ask_tools(),
                *self.learning.tools(),
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
        return registry.select([*settings.toolsets, *added], settings.disabled)
