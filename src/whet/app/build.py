"""The composition root: build a running program from its settings.

This is the only module that knows every part by name. An `App` holds the resources that one process shares
(store, provider, gate, background processes); a `Session` is one conversation on it. Parts that a plain
turn does not need are imported and created on first use. Reading order for a newcomer: `cli/chat.py`, this
file, `agent/loop.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from whet.agent.session import Session
from whet.app import parts
from whet.app.contexts import Contexts
from whet.app.learning import LearningServices
from whet.app.models import Dialer, Models
from whet.app.recording import Recordings
from whet.app.session_parts import NO_EXTRAS, OWNERS, Principal, SessionExtras, SessionStart
from whet.app.sessions import SessionOpener
from whet.app.warm_starts import WarmStarts
from whet.approval.gate import PolicyGate
from whet.clock import Clock, SystemClock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import WhetError
from whet.contract.protocols import Person
from whet.lanes import ToolPool
from whet.store.database import StateDatabase, open_store
from whet.store.grants import GrantRepository
from whet.tools.todo import TodoLists
from whet.tools.toolsets.session import RECALL
from whet.tools.toolsets.terminal import SharedProcesses

if TYPE_CHECKING:
    from whet.app.helper_runs import HelperRuns
    from whet.app.plugin_sessions import PluginParts
    from whet.app.reviews import ReviewRunner
    from whet.app.schedule_watch import ScheduleWatch
    from whet.app.tracing import Tracing
    from whet.approval.confined import JailGate
    from whet.mcp.servers import Servers
    from whet.plugins.load import LoadedPlugins
    from whet.sandbox.confinement import Confinement
    from whet.tools.registry import Registry


class App:
    """The resources of one process, and the sessions opened on them. Close it with `aclose`."""

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
        self.source = source
        self.clock: Clock = SystemClock()
        self.database: StateDatabase = open_store(home, self.clock)
        self.tracing: Tracing | None = parts.open_tracing(settings, source, self.database)
        self.warmth: WarmStarts = WarmStarts(home, settings.warm, self.database, self.clock)
        self._dialer = Dialer(settings, secrets, patience_s=parts.patience_s(settings, source, person))
        self.processes: SharedProcesses = SharedProcesses(confine=lambda: self.confinement)
        self.pool: ToolPool = ToolPool()
        self.todo_lists: TodoLists = TodoLists()
        self.recordings: Recordings = Recordings(home, settings.rewind, self.clock, self.pool)
        self.learning: LearningServices = LearningServices(self.database, self.clock, home, settings)
        self.learning.platform = source
        built_in = parts.built_in(self, secrets)
        self.plugin_parts: PluginParts | None = parts.load_plugins(self, built_in, self._dialer)
        self.person: Person = person if self.plugin_parts is None else self.plugin_parts.heard_by(person)
        self._grants = GrantRepository(self.database, self.clock)
        self.gate: PolicyGate = PolicyGate(settings.approval, self.person, self._grants, home.root)
        self.gate.jails = lambda: self._jails
        self.gate.own_ports = parts.own_ports(settings)
        self.gate.sealed = parts.sealed_service(settings, home)
        self._confirmations = parts.attach_confirmations(self.gate, settings, secrets, home, self.clock)
        try:
            parts.learn_prices(home, self.clock)
            self.models: Models = Models(settings, self._dialer)
        except WhetError:
            self._let_go()
            raise
        if parts.has_caps(settings.wallet):
            self.open_wallet()
        self.mcp: Servers | None = parts.open_servers(self, secrets)
        self.tools: Registry = parts.chosen(built_in, settings, self.plugins)
        self.learning.trust(self.tools.by_name.values())
        engines = [engine.offer for engine in self.plugins.engines.values()] if self.plugins else []
        compressor = self.models.compressor(self.clock, can_recall=RECALL in self.tools.by_name)
        self.contexts: Contexts = Contexts(home, settings, [compressor, *engines])
        self.contexts.broken.update(self.plugins.broken if self.plugins else {})
        self.sessions: SessionOpener = SessionOpener(self)

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
        """Open the store, connect the provider and collect the tools. Ask local servers for their context
        window."""
        home.ensure()
        app = cls(home, settings, secrets, person, workspace, source)
        if app.mcp is not None:
            await app.mcp.learn()
            app._take_remote()
        await app.models.learn_windows()
        return app

    async def new_session(
        self,
        *,
        private: bool = False,
        title: str = "",
        leaving: Session | None = None,
        warm: str = "",
        whose: Principal = OWNERS,
        extras: SessionExtras = NO_EXTRAS,
    ) -> Session:
        """Start a conversation. Its system prompt and tools are written now and do not change later.

        With `leaving`, it continues the same conversation (/new) and takes over that session's context
        engine. `warm` is a template's name, "auto" or "off"; if empty, the settings decide when the first
        message arrives. Templates are mined from the owner's sessions, so sessions of other people never
        use one. `extras` are parts that the caller adds. Raises WhetError.
        """
        if self.mcp is not None and self.mcp.is_stale:
            self._take_remote()
        start = SessionStart(private=private, title=title, whose=whose)
        return await self.sessions.begin(start, extras, leaving, warm)

    async def open_session(
        self, session_id: str, *, leaving: Session | None = None, extras: SessionExtras = NO_EXTRAS
    ) -> Session:
        """Open a stored conversation; its prefix is sent with the same bytes as before.

        It takes over the context engine of `leaving`. `extras` are parts that the caller adds.
        """
        return await self.sessions.open(session_id, extras, leaving)

    async def switch_model(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer from the next request on; "" means the configured
        model. The prefix does not change."""
        await self.models.switch(model)
        self.settings: Settings = msgspec.structs.replace(self.settings, model=self.models.settings)
        await self.sessions.answer_by(self.models.provider, session)

    async def let_go(self, session: Session) -> None:
        """Close a session with its engine and plugins and drop it from memory; it can be opened again."""
        await self.contexts.release(session.context)
        if self.plugin_parts is not None:
            await self.plugin_parts.sessions.leave(session.id)
        for session_id in (session.id, *self.gate.forget_children(session.id)):
            self.learning.release(session_id)
        await self.models.leave(session.id)
        session.log.close()

    async def aclose(self) -> None:
        """Close the sessions with their engines, stop background processes, close connections and store."""
        for name in ("helpers", "schedules", "reviews"):
            if name in self.__dict__:  # created on first use
                await getattr(self, name).aclose()
        await self.contexts.aclose()
        if self.plugin_parts is not None:
            await self.plugin_parts.aclose()
        if self._confirmations is not None:
            await self._confirmations.aclose()
        if self.mcp is not None:
            await self.mcp.aclose()
        self.processes.close()
        if "confinement" in self.__dict__:
            self.confinement.close()
        self.pool.close()
        self.recordings.close()
        await self.models.aclose()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        self._let_go()

    @cached_property
    def confinement(self) -> Confinement:
        """The sandboxes that commands run in, created with the first command."""
        from whet.app.confining import confine  # noqa: PLC0415 - 15 ms, and most turns run no command

        return confine(self.home, self.settings.sandbox)

    @cached_property
    def _jails(self) -> JailGate:
        from whet.approval.confined import JailGate  # noqa: PLC0415 - as above

        return JailGate(lambda: self.confinement)

    def open_wallet(self) -> None:
        """Check every model call of this process against the spending caps from now on."""
        from whet.app.wallet import Wallet  # noqa: PLC0415 - only where something is capped

        self.models.wallet = Wallet(self.database, self.clock, self.settings.wallet)

    def _let_go(self) -> None:
        if self.plugins is not None:
            self.plugins.close()
        self._dialer.close()
        self.database.close()

    @property
    def plugins(self) -> LoadedPlugins | None:
        """The contents of the enabled plugins; None if no plugin is enabled."""
        return None if self.plugin_parts is None else self.plugin_parts.loaded

    @cached_property
    def reviews(self) -> ReviewRunner:
        """The reviews of this process."""
        from whet.app.reviews import ReviewParts, ReviewRunner  # noqa: PLC0415 - the first answer comes before them

        shared = (self.database, self.clock, self.learning, self._grants, self.pool, self._dialer)
        return ReviewRunner(ReviewParts(self.home, self.settings, *shared))

    @cached_property
    def helpers(self) -> HelperRuns:
        """The helpers that sessions have started."""
        from whet.app.helper_runs import HelperRuns  # noqa: PLC0415 - few sessions have helpers

        return HelperRuns(self)

    @cached_property
    def schedules(self) -> ScheduleWatch:
        """Checks whether a schedule is due while the program runs, once it was started."""
        from whet.app.schedule_watch import ScheduleWatch  # noqa: PLC0415 - a one-shot does not look

        return ScheduleWatch(self.home, self.database, self.clock, self.settings.schedules)

    def _take_remote(self) -> None:
        if self.mcp is not None:
            self.tools = parts.with_remote(self.tools, self.mcp)
            self.learning.trust(self.tools.by_name.values())
