"""Create, open and close the sessions of one process, and those of their helpers.

This module chooses the contents of a new session; `app/conversations/session_builder.py` builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import apsw
import msgspec

from whet.agent.session import Session
from whet.app.conversations.session_builder import SessionBuilder, list_code_tools, make_rule_finder
from whet.app.conversations.session_models import SessionModels
from whet.app.conversations.session_parts import (
    NO_EXTRAS,
    OWNERS,
    NewSessionOptions,
    Principal,
    SessionExtras,
    SessionStart,
    StoredPrefix,
)
from whet.app.learning.services import Outcomes
from whet.app.parts import add_remote_tools
from whet.context.prompt import (
    changed_notice,
    cut_notice,
    list_instruction_sections,
    outside_notice,
    protected_notice,
    system_prompt,
)
from whet.contract.errors import ConfigError, NotFound
from whet.contract.protocols import ContextStatus
from whet.contract.tags import BUILT_IN
from whet.sqlite.lane import ScopedWrite
from whet.store import sessions
from whet.store.learned import forget_next, read_next
from whet.store.live import LiveState, load
from whet.store.transcript import Transcript
from whet.tools.registry import read_specs
from whet.tools.toolsets.planning import TASK_LIST
from whet.warm.openings import AUTO, OFF, WarmWish

if TYPE_CHECKING:
    from whet.app.helpers.runs import HelperRuns
    from whet.app.services import Services
    from whet.contract.tools import Buffers
    from whet.late import LatePart
    from whet.store.helper_rows import HelperRow
    from whet.store.trail import OpeningState


_MAX_RECENT = 500


class SessionOpener:
    """Opens and closes the sessions of one process. `helpers` are the helpers that these have started."""

    def __init__(self, services: Services, helpers: LatePart[HelperRuns]) -> None:
        self.services = services
        self.helpers = helpers
        self._builder = SessionBuilder(services, helpers)
        self.helper_listeners: list[Callable[[HelperRow], None]] = []
        """Called for each background helper that has ended."""
        self.instructions: str = services.settings.agent.instructions
        """The instructions in the prompts of new sessions."""
        share = services.settings.memory.holdout_share
        self.outcomes: Outcomes = Outcomes(services.learning, services.database, share)

    @cached_property
    def models(self) -> SessionModels:
        """The models of the sessions."""
        return SessionModels(self.services)

    async def new_session(self, **options: Unpack[NewSessionOptions]) -> Session:
        """Start a conversation of a person. Its system prompt and tools are written now and do not change
        later. Raises WhetError."""
        services, principal = self.services, options.get("whose", OWNERS)
        warm, leaving = options.get("warm", ""), options.get("leaving")
        if services.mcp is not None and services.mcp.is_stale:
            self.take_remote_tools()
        if principal.profile and warm not in ("", OFF):
            raise ConfigError("warm starts are made of the owner's sessions; this one is not the owner's")
        left_out = {"owner"} if principal.profile else set[str]()
        tools = {name: tool for name, tool in services.tools.by_name.items() if not tool.tags & left_out}
        tools |= {tool.name: tool for tool in principal.tools}
        workspace = principal.workspace or services.workspace
        tools |= list_code_tools(services, workspace)
        find_rule = make_rule_finder(services, workspace)
        last_prompt = ""
        if instructions := list_instruction_sections(workspace, find_rule):
            last_prompt = await services.database.read(lambda db: _read_last_prompt(db, str(workspace)))
        learned = await self.outcomes.start(tools.values(), principal.profile, str(workspace))
        start = SessionStart(
            prompt=self._prompt(workspace, learned.part.text),
            tools=list(tools.values()),
            title=options.get("title", ""),
            private=options.get("private", False),
            conversation_id=leaving.log.session.conversation_id if leaving else "",
            warm=await self._choose_start(OFF if principal.profile else warm, str(workspace)),
            whose=principal,
            notices=[
                line
                for line in (
                    changed_notice(instructions, last_prompt),
                    cut_notice(workspace, find_rule),
                    protected_notice(workspace, find_rule),
                    outside_notice(workspace, find_rule),
                    learned.part.limit_notice,
                    *_list_idle_rules(services, tools),
                )
                if line
            ],
            model_chosen=options.get("model_chosen", False),
        )
        session = await self._builder.create(start, options.get("extras", NO_EXTRAS), leaving=leaving)
        await self.outcomes.record(session.id, learned)
        if leaving is not None and not start.model_chosen:
            await self.models.inherit(session, leaving.log.session)
        return session

    async def _choose_start(self, requested: str, workspace: str) -> WarmWish:
        """Return the warm start of a new session: the requested one, else the one that was chosen for the
        next session of the workspace, else the setting. Raises NotFound or ConfigError if the requested
        template can't be read."""
        services = self.services
        if requested:
            if requested not in (OFF, AUTO):
                from whet.warm.template import load  # noqa: PLC0415 - a cold session does without

                load(services.home, requested)
            return WarmWish(requested, "auto" if requested == AUTO else "name")
        next_name = services.database.read_now(lambda db: read_next(db, workspace))
        if next_name:
            await services.database.write(lambda db: forget_next(db, workspace))
            return WarmWish(next_name, "next")
        return WarmWish(services.settings.warm.default, "default")

    def take_remote_tools(self) -> None:
        """Offer the tools that the MCP servers list now to new sessions."""
        services = self.services
        if services.mcp is not None:
            services.tools.offer(add_remote_tools(services.tools.registry, services.mcp))

    async def open_session(
        self,
        session_id: str,
        *,
        leaving: Session | None = None,
        extras: SessionExtras = NO_EXTRAS,
        model_chosen: bool = False,
    ) -> Session:
        """Open a stored conversation, with the bytes of its prefix unchanged, and resume its background
        helpers.

        It takes over the context engine of `leaving`. `extras` are parts that the caller adds. The model that
        was chosen for the session answers. With `model_chosen`, a person chose the process's model now.
        Raises NotFound.
        """
        from whet.store.trail import select_opening_state  # noqa: PLC0415 - a new session has no task list

        services = self.services

        def read(db: apsw.Connection) -> tuple[LiveState, OpeningState]:
            read_state = select_opening_state(db, session_id, TASK_LIST)
            return load(db, session_id), read_state()

        live, state = await services.database.read(read)
        log = Transcript(services.database, services.clock, live)
        runner = await self._builder.start_engine(leaving, foreground=True)
        prompt, tools_json = state.prompt, state.tools_json
        if not prompt and not tools_json:  # it was created by another program
            program_tools = services.tools.by_name
            engine_tools = await services.contexts.tools(runner, program_tools)
            specs = [
                tool.spec for tool in (*program_tools.values(), *engine_tools) if "deferred" not in tool.tags
            ]
            prompt, tools_json = self._prompt(services.workspace), msgspec.json.encode(specs).decode()
            await services.database.write(
                ScopedWrite(session_id, lambda db: sessions.freeze_prefix(db, session_id, prompt, tools_json))
            )
        services.todo_lists.restore(session_id, state.arguments)
        if state.is_planning:
            services.gate.get().plans.set(session_id, True)
        specs = read_specs(tools_json.encode())
        stored = StoredPrefix(log, prompt, specs, state.profile, state.prime)
        session = await self._builder.build(stored, runner, extras, leaving=leaving)
        if state.has_helpers:
            await self.helpers.get().restore(session_id)
        await (self.models.store(session) if model_chosen else self.models.restore(session))
        return session

    async def close_session(self, session: Session) -> None:
        """Close a session with its engine and plugins and drop it from memory; it can be opened again."""
        services = self.services
        await services.contexts.release(session.context)
        if services.plugins is not None:
            await services.plugins.sessions.leave(session.id)
        gate, confinement = services.gate.created, services.confinement.created
        for session_id in (session.id, *(gate.forget_children(session.id) if gate is not None else ())):
            services.learning.release(session_id)
            if confinement is not None:
                confinement.folders.release(session_id)
        if services.code.created is not None:
            await services.code.created.release(session.id)
        await services.models.release(session.id)
        session.log.close()

    async def latest(self) -> str:
        """Return the id of the latest conversation of this workspace. Raises NotFound."""
        source, workspace = self.services.source, str(self.services.workspace)
        row = await self.services.database.read(
            lambda db: sessions.find_latest(db, source=source, workspace=workspace)
        )
        if row is None:
            raise NotFound(f"no session in {workspace} to continue", hint=await self._hint_moved())
        return row.id

    async def _hint_moved(self) -> str:
        """Return a hint that names the latest conversation of a missing folder, if this workspace may be that
        folder after a move."""
        workspace = self.services.workspace
        recent = await self.services.database.read(
            lambda db: sessions.list_sessions(db, _MAX_RECENT, source=self.services.source)
        )
        for row in recent:
            path = Path(row.workspace)
            may_be_same = path.parent == workspace.parent or path.name == workspace.name
            if row.workspace and may_be_same and not path.exists():
                return f"whet chat --session {row.id} goes on with that of {path}, which is no longer there"
        return "whet sessions list"

    async def open_helper(
        self, row: HelperRow, folder: Path | None, buffers: Buffers | None, *, exists: bool
    ) -> Session:
        """Create a helper's session, or open it if it `exists`. `folder` is the helper's own working tree.

        Its tools are its parent's, without those with excluded tags; with the scope "read" only those that
        change nothing. Raises ConfigError if the working tree no longer exists.
        """
        from whet.app.helpers.turns import EXCLUDED_TAGS, HelperObserver, title_of  # noqa: PLC0415 - few have helpers

        services, agent_settings = self.services, self.services.settings.agent
        extras = SessionExtras(row.session, buffers=buffers, observers=(HelperObserver(services.clock),))
        steps = min(row.wish.steps or agent_settings.delegate_max_steps, agent_settings.max_steps)
        if exists:
            child = await self.open_session(row.session, extras=extras)
            limits = msgspec.structs.replace(child.limits, steps=steps)
            child = msgspec.structs.replace(child, limits=limits)
        else:
            parent, profile = await services.database.read(
                lambda db: (sessions.get(db, row.parent), sessions.profile_of(db, row.parent))
            )
            workspace = folder or (Path(parent.workspace) if parent.workspace else services.workspace)
            program_tools = {**services.tools.by_name, **list_code_tools(services, workspace)}
            tools = [tool for tool in program_tools.values() if not tool.tags & EXCLUDED_TAGS]
            if row.wish.scope == "read":
                tools = [tool for tool in tools if tool.effects <= {"read"} or "looks" in tool.tags]
            start = SessionStart(
                system_prompt(
                    workspace,
                    services.settings.tools.toolsets,
                    child=True,
                    find_rule=make_rule_finder(services, workspace),
                ),
                tools,
                title=title_of(row.wish.task),
                parent_id=row.parent,
                kind="child",
                whose=Principal(profile, parent.source, workspace),
                steps=steps,
            )
            child = await self._builder.create(start, extras)
        if folder is not None and child.workspace != folder:
            raise ConfigError(f"the helper's working tree {folder} is gone")
        return child

    async def context_status(self, session_id: str) -> ContextStatus:
        """Return how full a stored conversation's window is, without opening the conversation."""
        services = self.services
        log = await Transcript.open(services.database, session_id, services.clock)
        prefix = await services.database.read(
            lambda db: (*sessions.read_prefix(db, session_id), sessions.read_prime(db, session_id))
        )
        return await services.contexts.read_status(log, services.models.provider.info, prefix)

    def _prompt(self, workspace: Path, learned: str = "") -> str:
        toolsets = self.services.settings.tools.toolsets
        find_rule = make_rule_finder(self.services, workspace)
        return system_prompt(
            workspace, toolsets, instructions=self.instructions, learned=learned, find_rule=find_rule
        )


def _read_last_prompt(db: apsw.Connection, workspace: str) -> str:
    """Return the system prompt of the latest chat in a folder, or an empty string."""
    latest = sessions.find_latest(db, workspace=workspace)
    return sessions.read_prefix(db, latest.id)[0] if latest is not None else ""


def _list_idle_rules(services: Services, tools: Collection[str]) -> Iterator[str]:
    """Yield a line for the person if some deny rules name no existing tool."""
    if rules := services.settings.approval.deny:
        from whet.approval.patterns import DENY_HINT, find_unknown  # noqa: PLC0415 - few have such rules

        if unknown := find_unknown(rules, {*BUILT_IN, *services.tools.by_name, *tools}):
            yield f"approval.deny: {', '.join(unknown)} names no tool, so it holds nothing ({DENY_HINT})"
