"""The sessions of one process: start, reopen, start helpers, read their context status.

This module chooses the contents of a new session; `app/session_builder.py` builds it. The parts are looked
up in the program (`app/build.py`) at each use, because its settings and tools change while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.agent.session import Session
from whet.app.learning import Outcomes
from whet.app.models import SwitchableLink
from whet.app.session_builder import SessionBuilder
from whet.app.session_parts import Principal, SessionExtras, SessionStart, StoredPrefix
from whet.app.warm_starts import OFF
from whet.context.prompt import system_prompt
from whet.contract.errors import ConfigError, NotFound
from whet.contract.protocols import ContextStatus, Provider
from whet.store import sessions
from whet.store.trail import arguments_of
from whet.store.transcript import Transcript
from whet.tools.declared import TASK_LIST
from whet.tools.registry import read_specs

if TYPE_CHECKING:
    from whet.app.build import App
    from whet.contract.tools import Buffers
    from whet.store.helper_rows import HelperRow


class SessionOpener:
    """Opens sessions with the parts of one program."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._builder = SessionBuilder(app)
        self.helper_listeners: list[Callable[[HelperRow], None]] = []
        """Called for each background helper that has ended."""
        self.outcomes: Outcomes = Outcomes(app.learning, app.database, app.settings.memory.holdout_share)

    async def begin(
        self, start: SessionStart, extras: SessionExtras, leaving: Session | None, warm: str
    ) -> Session:
        """Start a conversation of a person. `start` comes without prompt, tools and warm start; they are
        chosen here. Raises WhetError."""
        app, principal = self._app, start.whose
        if principal.profile and warm not in ("", OFF):
            raise ConfigError("warm starts are made of the owner's sessions; this one is not the owner's")
        left_out = {"owner"} if principal.profile else set[str]()
        tools = {name: tool for name, tool in app.tools.by_name.items() if not tool.tags & left_out}
        tools |= {tool.name: tool for tool in principal.tools}
        learned = await self.outcomes.start(tools, principal.profile)
        workspace = principal.workspace or app.workspace
        new = msgspec.structs.replace(
            start,
            prompt=self._prompt(workspace, learned.part.text),
            tools=list(tools.values()),
            conversation_id=leaving.log.session.conversation_id if leaving else "",
            warm=await app.warmth.wanted(OFF if principal.profile else warm, str(workspace)),
        )
        session = await self._builder.create(new, extras, leaving=leaving)
        await self.outcomes.record(session.id, learned)
        return session

    async def answer_with(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer only this session from the next request on, while it
        is open; "" means the model of the other sessions."""
        await self.answer_by(await self._app.models.choose(session.id, model), session)

    async def answer_by(self, provider: Provider, session: Session) -> None:
        """Let the model of `provider` answer a session from the next request on; the prefix stays."""
        app = self._app
        prompt, tools_json = await app.database.read(lambda db: sessions.prefix(db, session.id))
        link = provider.open(prompt, read_specs(tools_json.encode()), session.id)
        assert isinstance(session.link, SwitchableLink)  # every session of an App has one
        session.link.switch((await app.warmth.reopened(session.id, link))[0])
        await session.context.status()  # inform the engine now, not at the next request

    async def open(self, session_id: str, extras: SessionExtras, leaving: Session | None) -> Session:
        """Open a stored conversation; its background helpers are resumed."""
        app = self._app
        log = await Transcript.open(app.database, session_id, app.clock)
        runner = await self._builder.seat(leaving, foreground=True)
        prompt, tools_json, done, has_helpers, plans = await app.database.read(
            lambda db: (
                *sessions.prefix(db, session_id),
                arguments_of(db, session_id, TASK_LIST),
                sessions.has_helpers(db, session_id),
                sessions.is_planning(db, session_id),
            )
        )
        if not prompt and not tools_json:  # it was created by another program
            program_tools = app.tools.by_name
            engine_tools = await app.contexts.tools(runner, program_tools)
            specs = [
                tool.spec for tool in (*program_tools.values(), *engine_tools) if "deferred" not in tool.tags
            ]
            prompt, tools_json = self._prompt(app.workspace), msgspec.json.encode(specs).decode()
            await app.database.write(lambda db: sessions.freeze_prefix(db, session_id, prompt, tools_json))
        app.todo_lists.restore(session_id, done)
        if plans:
            app.gate.plans.set(session_id, True)
        stored = StoredPrefix(log, prompt, read_specs(tools_json.encode()))
        session = await self._builder.build(stored, runner, extras, leaving=leaving)
        if has_helpers:
            await app.helpers.restore(session_id)
        return session

    async def latest(self) -> str:
        """Return the id of the latest conversation of this workspace. Raises NotFound."""
        source, workspace = self._app.source, str(self._app.workspace)
        row = await self._app.database.read(
            lambda db: sessions.latest(db, source=source, workspace=workspace)
        )
        if row is None:
            raise NotFound(f"no session in {workspace} to continue", hint="whet sessions list")
        return row.id

    async def helper(
        self, row: HelperRow, folder: Path | None, buffers: Buffers | None, *, is_there: bool
    ) -> Session:
        """Start a helper's session, or open it again. `folder` is the helper's own working tree.

        Its tools are its parent's, except the excluded tags; with the scope "read" only those that look.
        Raises ConfigError if the working tree no longer exists.
        """
        from whet.app.helper_turns import LEFT_OUT, HelperObserver, title_of  # noqa: PLC0415 - few have helpers

        app, agent_settings = self._app, self._app.settings.agent
        extras = SessionExtras(row.session, buffers=buffers, observers=(HelperObserver(app.clock),))
        steps = min(row.wish.steps or agent_settings.delegate_max_steps, agent_settings.max_steps)
        if is_there:
            child = await self.open(row.session, extras, None)
            limits = msgspec.structs.replace(child.limits, steps=steps)
            child = msgspec.structs.replace(child, limits=limits)
        else:
            parent, profile = await app.database.read(
                lambda db: (sessions.get(db, row.parent), sessions.profile_of(db, row.parent))
            )
            workspace = folder or (Path(parent.workspace) if parent.workspace else app.workspace)
            tools = [tool for tool in app.tools.by_name.values() if not tool.tags & LEFT_OUT]
            if row.wish.scope == "read":
                tools = [tool for tool in tools if tool.effects <= {"read"} or "looks" in tool.tags]
            new = SessionStart(
                system_prompt(workspace, app.settings.tools.toolsets, child=True),
                tools,
                title=title_of(row.wish.task),
                parent_id=row.parent,
                kind="child",
                whose=Principal(profile, parent.source, workspace),
                steps=steps,
            )
            child = await self._builder.create(new, extras)
        if folder is not None and child.workspace != folder:
            raise ConfigError(f"the helper's working tree {folder} is gone")
        return child

    async def context_status(self, session_id: str) -> ContextStatus:
        """Return how full a stored conversation's window is, without opening it for its engine."""
        app = self._app
        log = await Transcript.open(app.database, session_id, app.clock)
        prefix = await app.database.read(
            lambda db: (*sessions.prefix(db, session_id), sessions.prime_of(db, session_id))
        )
        return await app.contexts.peek(log, app.models.provider.info, prefix)

    def _prompt(self, workspace: Path, learned: str = "") -> str:
        settings = self._app.settings
        toolsets, instructions = settings.tools.toolsets, settings.agent.instructions
        return system_prompt(workspace, toolsets, instructions=instructions, learned=learned)
