"""The composition root: build a running program from its settings.

This is the only module that knows every part by name. It creates the parts that one process shares
(`Services`) and the `SessionOpener` on them, and closes them in reverse order. Parts that a plain turn does
not need are imported and created on first use. Reading order for a newcomer: `cli/chat.py`, this file,
`agent/loop.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

import msgspec

from whet.agent.session import Session
from whet.app import parts
from whet.app.contexts import Contexts
from whet.app.conversations.session_parts import NO_EXTRAS, NewSessionOptions, SessionExtras
from whet.app.conversations.sessions import SessionOpener
from whet.app.learning.services import LearningServices
from whet.app.model_links.models import MEMORY_FILE, Dialer, Models
from whet.app.parts import LaunchArguments
from whet.app.services import BaseParts, Services
from whet.clock import Clock, SystemClock, use_zone
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import StoreError
from whet.contract.events import ReviewFinished
from whet.contract.protocols import Person
from whet.lanes import ToolPool
from whet.late import LatePart
from whet.store import jobs
from whet.store.database import StateDatabase, open_store
from whet.tools.registry import OfferedTools
from whet.tools.todo import TodoLists
from whet.tools.toolsets.session import RECALL
from whet.tools.toolsets.terminal import SharedProcesses
from whet.warm.openings import WarmStarts

if TYPE_CHECKING:
    from whet.app.confirming import Confirmations
    from whet.app.helpers.runs import HelperRuns
    from whet.app.learning.reviews import ReviewParts, ReviewRunner
    from whet.app.plugins.sessions import PluginParts
    from whet.app.schedule_watch import ScheduleWatch
    from whet.approval.confined import JailGate
    from whet.approval.gate import PolicyGate
    from whet.lsp.service import CodeService
    from whet.mcp.first_start import StartWait
    from whet.review.worker import ReviewWorker
    from whet.rewind.recordings import Recordings
    from whet.sandbox.confinement import Confinement
    from whet.store.grants import GrantRepository


class App:
    """A running program: the services of one process, and the sessions opened on them. Close it with
    `aclose`."""

    def __init__(self, services: Services, sessions: SessionOpener, closing: AsyncExitStack) -> None:
        self.services = services
        self.sessions = sessions
        self.clock: Clock = services.clock
        self.database: StateDatabase = services.database
        self.learning: LearningServices = services.learning
        self._closing = closing

    @classmethod
    async def start(  # noqa: PLR0913 - what a program decides once
        cls,
        home: Home,
        settings: Settings,
        secrets: Mapping[str, str],
        person: Person,
        workspace: Path,
        *,
        source: str = "cli",
        wait: StartWait | None = None,
    ) -> Self:
        """Open the store, connect the provider and collect the tools. Ask local servers for their context
        window. `wait` begins and ends the wait for MCP servers whose tools are not known yet."""
        home.ensure()
        use_zone(settings.agent.time_zone)
        launch = LaunchArguments(home, settings, secrets, person, workspace, source)
        async with AsyncExitStack() as stack:
            sessions = _open_parts(launch, stack)
            services = sessions.services
            if services.mcp is not None:
                await services.mcp.learn(wait)
                sessions.take_remote_tools()
            await services.models.learn_windows()
            return cls(services, sessions, stack.pop_all())

    @property
    def reviews(self) -> ReviewRunner:
        """The reviews of this process."""
        return self.services.reviews.get()

    async def leave_reviews(self, start_worker: Callable[[Home], object] | None = None) -> None:
        """Stop the reviews of this process, and start a detached worker for those that are due, or have
        `start_worker` do so. Never raises."""
        if self.services.reviews.created is not None or self._may_have_due_review():
            await self.reviews.stop_and_hand_over(start_worker)

    def _may_have_due_review(self) -> bool:
        from whet.store import reviews  # noqa: PLC0415 - the first answer comes before them

        try:
            return self.database.read_now(lambda db: jobs.is_due(db, (reviews.KIND,), self.clock))
        except StoreError:  # the runner logs it
            return True

    @property
    def helpers(self) -> HelperRuns:
        """The helpers that sessions have started."""
        return self.sessions.helpers.get()

    async def new_session(self, **options: Unpack[NewSessionOptions]) -> Session:
        """Start a conversation. Its system prompt and tools are written now and do not change later. Raises
        WhetError."""
        return await self.sessions.new_session(**options)

    async def open_session(
        self,
        session_id: str,
        *,
        leaving: Session | None = None,
        extras: SessionExtras = NO_EXTRAS,
        model_chosen: bool = False,
    ) -> Session:
        """Open a stored conversation; its prefix is sent with the same bytes as before. The model chosen for
        it answers; with `model_chosen`, a person chose the process's model now."""
        return await self.sessions.open_session(
            session_id, leaving=leaving, extras=extras, model_chosen=model_chosen
        )

    async def aclose(self) -> None:
        """Close the sessions with their engines, stop background processes, close connections and store."""
        await self._closing.aclose()


def _open_parts(launch: LaunchArguments, stack: AsyncExitStack) -> SessionOpener:
    """Create the services of a process and the opener of its sessions. `stack` closes them, also if this
    fails."""
    settings = launch.settings
    base = _create_base(launch, LatePart(lambda: _create_helpers(sessions)))
    stack.callback(base.database.close)
    tracing = parts.open_tracing(settings, launch.source, base.database)
    if tracing is not None:
        stack.push_async_callback(asyncio.to_thread, tracing.close)
    dialer = Dialer(
        settings,
        launch.secrets,
        patience_s=parts.patience_s(settings, launch.source, launch.person),
        memory=launch.home.root / MEMORY_FILE,
    )
    stack.callback(dialer.close)
    built_in = parts.make_built_in_tools(base, launch)
    plugins = parts.load_plugins(launch, built_in, base.learning, dialer, base.database)
    if plugins is not None:
        stack.callback(plugins.loaded.close)
    models = _open_models(launch, base, dialer, stack)
    mcp = parts.open_servers(launch, base)
    confirmations = parts.open_confirmations(launch, base.clock)
    grants = LatePart(lambda: _create_grants(base))
    person = launch.person if plugins is None else plugins.with_notifications(launch.person)
    tools = OfferedTools(parts.select_tools(built_in, settings, plugins), base.learning.trust)
    services = Services(
        **msgspec.structs.asdict(base),
        home=launch.home,
        settings=settings,
        workspace=launch.workspace,
        source=launch.source,
        person=person,
        gate=LatePart(lambda: _create_gate(launch, base, person, grants.get(), confirmations)),
        models=models,
        contexts=_create_contexts(launch, models, base.clock, plugins, can_recall=RECALL in tools.by_name),
        tools=tools,
        code=LatePart(lambda: _create_code_service(settings, base.confinement)),
        reviews=LatePart(lambda: _create_reviews(services, grants.get(), dialer)),
        schedules=LatePart(lambda: _create_schedules(services)),
        plugins=plugins,
        mcp=mcp,
        tracing=tracing,
    )
    approval = settings.approval
    if confirmations is not None or approval.allow or approval.ask or approval.deny:
        services.gate.get()  # report an invalid rule immediately
    sessions = SessionOpener(services, base.helpers)
    _close_with(stack, sessions, confirmations)
    return sessions


def _create_base(launch: LaunchArguments, helpers: LatePart[HelperRuns]) -> BaseParts:
    """Create the parts that need neither plugins nor a model. The store is opened last."""
    home, settings, clock = launch.home, launch.settings, SystemClock()
    confinement, pool = LatePart(lambda: _create_confinement(home, settings)), ToolPool()
    database = open_store(home, clock)
    learning = LearningServices(database, clock, home, settings, launch.source)
    learning.reader.library.look_in(launch.workspace)
    return BaseParts(
        clock=clock,
        database=database,
        learning=learning,
        recordings=LatePart(lambda: _create_recordings(launch, clock, pool, confinement)),
        warm_starts=WarmStarts(home, settings.warm, database, clock),
        pool=pool,
        processes=SharedProcesses(
            confine=confinement.get,
            find_sessions_of_person=lambda session_id, candidates: _find_sessions_of_person(
                database, session_id, candidates
            ),
        ),
        todo_lists=TodoLists(),
        confinement=confinement,
        helpers=helpers,
    )


def _open_models(launch: LaunchArguments, base: BaseParts, dialer: Dialer, stack: AsyncExitStack) -> Models:
    parts.learn_prices(launch.home, base.clock)
    models = Models(launch.settings, dialer)
    stack.push_async_callback(models.aclose)
    if parts.has_caps(launch.settings.wallet):
        models.open_wallet(base.database, base.clock)
    return models


def _create_gate(
    launch: LaunchArguments,
    base: BaseParts,
    person: Person,
    grants: GrantRepository,
    confirmations: Confirmations | None,
) -> PolicyGate:
    from whet.approval.gate import GateParts, PolicyGate  # noqa: PLC0415 - 20 modules, for the first call

    settings, jails = launch.settings, LatePart(lambda: _create_jails(base.confinement))
    gate_parts = GateParts(
        service=None if confirmations is None else confirmations.route,
        jails=jails.get,
        own_ports=parts.own_ports(settings),
        sealed=parts.find_service_boundary(settings, launch.home),
        can_restore=lambda folder: base.recordings.get().can_restore(folder),
    )
    return PolicyGate(settings.approval, person, grants, launch.home.root, gate_parts)


def _create_grants(base: BaseParts) -> GrantRepository:
    from whet.store.grants import GrantRepository  # noqa: PLC0415 - for the first call, as above

    return GrantRepository(base.database, base.clock)


async def _find_sessions_of_person(
    database: StateDatabase, session_id: str, candidates: Collection[str]
) -> frozenset[str]:
    from whet.store import api  # noqa: PLC0415 - only where processes run

    return await database.look(lambda db: api.list_sessions_of_person(db, session_id, candidates))


def _create_recordings(
    launch: LaunchArguments, clock: Clock, pool: ToolPool, confinement: LatePart[Confinement]
) -> Recordings:
    from whet.rewind.recordings import Recordings  # noqa: PLC0415 - the first request changes no file

    def guards(workspace: Path) -> bool:
        from whet.app.confining import guards_links  # noqa: PLC0415 - 8 ms, and most turns change no file

        return guards_links(confinement.get(), workspace)

    def hold(workspace: Path, record: Callable[[frozenset[str]], None]) -> frozenset[str]:
        from whet.app.confining import hold_folders  # noqa: PLC0415 - as above

        return hold_folders(confinement.get(), workspace, record)

    return Recordings(launch.home, launch.settings.rewind, clock, pool, guards, hold)


def _create_contexts(
    launch: LaunchArguments, models: Models, clock: Clock, plugins: PluginParts | None, *, can_recall: bool
) -> Contexts:
    compressor = models.compressor(clock, can_recall=can_recall)
    if plugins is None:
        return Contexts(launch.home, launch.settings, [compressor])
    engines = [engine.offer for engine in plugins.loaded.engines.values()]
    return Contexts(launch.home, launch.settings, [compressor, *engines], plugins.loaded.load_failures)


def _create_confinement(home: Home, settings: Settings) -> Confinement:
    from whet.app.confining import confine  # noqa: PLC0415 - 15 ms, and most turns run no command

    return confine(home, settings.sandbox, deny=settings.approval.deny)


def _create_jails(confinement: LatePart[Confinement]) -> JailGate:
    from whet.approval.confined import JailGate  # noqa: PLC0415 - as above

    return JailGate(confinement.get)


def _create_code_service(settings: Settings, confinement: LatePart[Confinement]) -> CodeService:
    from whet.app.code_servers import open_code_service  # noqa: PLC0415 - only for workspaces with code

    return open_code_service(settings, confinement)


def _create_helpers(sessions: SessionOpener) -> HelperRuns:
    from whet.app.helpers.runs import HelperRuns  # noqa: PLC0415 - few sessions have helpers

    return HelperRuns(sessions.services, sessions.open_helper, sessions.helper_listeners)


def _create_reviews(services: Services, grants: GrantRepository, dialer: Dialer) -> ReviewRunner:
    from whet.app.learning.reviews import ReviewParts, ReviewRunner  # noqa: PLC0415 - the first answer comes before them

    shared = (services.database, services.clock, services.learning, grants, services.pool, dialer)
    return ReviewRunner(ReviewParts(services.home, services.settings, *shared), _create_worker)


def _create_worker(review_parts: ReviewParts, report: Callable[[ReviewFinished], None]) -> ReviewWorker:
    from whet.app.learning.review_worker import make_worker  # noqa: PLC0415 - a one-shot only queues jobs

    return make_worker(review_parts, report)


def _create_schedules(services: Services) -> ScheduleWatch:
    from whet.app.schedule_watch import ScheduleWatch  # noqa: PLC0415 - a one-shot does not look

    settings = services.settings.schedules
    return ScheduleWatch(services.home, services.database, services.clock, settings)


def _close_with(stack: AsyncExitStack, sessions: SessionOpener, confirmations: Confirmations | None) -> None:
    """Let `stack` close the parts that the sessions use: first the helpers, which use all others."""
    services = sessions.services

    def close_created(part: LatePart[Confinement] | LatePart[Recordings]) -> None:
        if part.created is not None:
            part.created.close()

    async def aclose_created(
        part: LatePart[HelperRuns] | LatePart[ScheduleWatch] | LatePart[ReviewRunner] | LatePart[CodeService],
    ) -> None:
        if part.created is not None:
            await part.created.aclose()

    stack.callback(close_created, services.recordings)
    stack.callback(services.pool.close)
    stack.callback(close_created, services.confinement)
    stack.callback(services.processes.close)
    for part in (services.mcp, confirmations, services.plugins, services.contexts):
        if part is not None:
            stack.push_async_callback(part.aclose)
    for late_part in (services.code, services.reviews, services.schedules, sessions.helpers):
        stack.push_async_callback(aclose_created, late_part)
