"""Build one session: its row, its context engine, its model link, its tools, and the observers of its turns.

`app/conversations/sessions.py` chooses the contents of a new session.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.session import (
    Inbox,
    InboxEntry,
    LateObserver,
    Session,
    TurnLimits,
    TurnObserver,
    shell_folder,
)
from whet.app.contexts import EngineObserver
from whet.app.conversations.session_parts import (
    LateGate,
    SessionExtras,
    SessionStart,
    StoredPrefix,
)
from whet.app.learning.services import RecollectionObserver
from whet.app.model_links.models import SwitchableLink
from whet.clock import local_time
from whet.config.paths import choose_workspace
from whet.config.permission_settings import FIRST_CHECK_S, SERVER_START_S
from whet.context.engine_runner import EngineRunner, no_scope
from whet.context.host import EngineHost
from whet.context.prompt import FindRule, add_instructions, allow_every_file, volatile_note
from whet.contract.origin import Origin
from whet.contract.protocols import Gate, ModelLink, Person
from whet.contract.tags import BUILT_IN, tags_of
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet.store import sessions
from whet.store.sessions import NewSession, SessionRow
from whet.store.transcript import Transcript
from whet.warm.openings import OFF, SessionOpening, WarmLabelObserver, WarmStartObserver, add_examples

if TYPE_CHECKING:
    from whet.app.helpers.runs import HelperRuns
    from whet.app.plugins.sessions import HookedParts
    from whet.app.services import Services
    from whet.approval.gate import PolicyGate
    from whet.config.schema import Settings
    from whet.late import LatePart

EditCheck = Callable[[ToolContext, ToolOutput], Awaitable[ToolOutput]]
_CODE_ENDINGS = (".py", ".pyi", ".go", ".mod", ".rs", ".toml", ".ts", ".tsx", ".js", ".json", ".c", ".cpp")


def zone_of(person: Person) -> str:
    """Return a person's time zone, or an empty string for the owner's."""
    return str(getattr(person, "time_zone", ""))


def make_rule_finder(services: Services, workspace: Path) -> FindRule:
    """Return a function that finds the deny rule against reading a file."""
    deny = services.settings.approval.deny
    if not deny:
        return allow_every_file
    from whet.sandbox.path_rules import read_path_rules  # noqa: PLC0415 - few have such rules

    return partial(read_path_rules(deny).find, workspace=workspace, writes=False)


def list_code_tools(services: Services, workspace: Path) -> dict[str, Tool]:
    """Return the tools that ask language servers, or an empty dict if the workspace has no code or no server
    is installed."""
    settings, configured = services.settings, services.settings.lsp.servers
    if not settings.lsp.enabled or "code" not in settings.tools.toolsets:
        return {}
    if not configured and not _may_have_code(workspace):
        return {}
    from whet.lsp.kinds import find_servers  # noqa: PLC0415 - only where there may be code
    from whet.sandbox.engine_cache import read_status  # noqa: PLC0415 - as above

    servers = find_servers(Path(os.path.realpath(workspace)), configured)
    if not servers or read_status(settings.sandbox.mode, services.home.main_root):
        return {}
    tools = services.code.get().tools(workspace, servers)
    return {tool.name: tool for tool in tools if tool.name not in settings.tools.disabled}


def check_edits(tools: Mapping[str, Tool], check: EditCheck, settings: Settings) -> Mapping[str, Tool]:
    """Return the tools, with `check` called after each edit of a file: it may add to the edit's result."""
    if not settings.lsp.enabled or "code" not in settings.tools.toolsets:
        return tools

    def add_check(tool: Tool) -> Tool:
        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            return await check(context, await tool.run(context, arguments))

        limit_s = (tool.timeout_s or 0.0) + SERVER_START_S + FIRST_CHECK_S + settings.lsp.check_s
        return msgspec.structs.replace(tool, run=run, timeout_s=limit_s)

    edits = {name for name, tool in tools.items() if "edits" in tool.tags and tool.toolset == "file"}
    return {name: add_check(tool) if name in edits else tool for name, tool in tools.items()}


async def _check_edit(services: Services, context: ToolContext, output: ToolOutput) -> ToolOutput:
    """Return the result of an edit with the errors that it caused, if a language server checks its files."""
    from whet.lsp.kinds import list_kinds  # noqa: PLC0415 - with the first edit
    from whet.sandbox.engine_cache import read_status  # noqa: PLC0415 - as above

    endings = {os.path.splitext(change.absolute_path)[1] for change in output.changes}
    is_code = any(endings & kind.languages.keys() for kind in list_kinds(services.settings.lsp.servers))
    if not is_code or read_status(services.settings.sandbox.mode, services.home.main_root):
        return output
    return await services.code.get().check_edit(context, output)


def _may_have_code(workspace: Path) -> bool:
    """Return whether a folder is a repository or contains a source file."""
    try:
        names = os.listdir(workspace)
    except OSError:
        return False
    return ".git" in names or any(name.endswith(_CODE_ENDINGS) for name in names)


def _add_instructions(
    services: Services, tools: Mapping[str, Tool], workspace: Path, log: Transcript, runner: EngineRunner
) -> dict[str, Tool]:
    """Return the tools, which add a folder's instructions at their first look, unless a rule denies it."""

    async def is_new(path: Path, text: str) -> bool:
        from whet.app.conversations.instruction_changes import is_new_to_person  # noqa: PLC0415 - few have any

        return await is_new_to_person(services.database, workspace, path, text)

    find_rule, notify = make_rule_finder(services, workspace), partial(runner.add_notice, must_show=True)
    return add_instructions(tools, workspace, lambda: log.messages, find_rule, notify, is_new)


def _make_skills_note(services: Services, profile: str, tools: Mapping[str, Tool]) -> Callable[[str], str]:
    """Return the function that notes which skills of a profile a message names."""

    def note(text: str) -> str:
        if "$" not in text and "/" not in text:
            return ""
        if not any("loads-skills" in tags_of(name) for name in tools):
            return ""
        from whet.memory.named_skills import note_named_skills  # noqa: PLC0415 - few messages name one

        return note_named_skills(services.learning.service_of(profile).library, text)

    return note


def _plan_note(gate: LatePart[PolicyGate], session_id: str) -> str:
    if gate.created is None or not gate.created.is_planning(session_id):
        return ""
    from whet.app.planning import NOTE  # noqa: PLC0415 - few sessions plan

    return NOTE


def _make_marking_observer(services: Services) -> TurnObserver:
    from whet.app.learning.answer_marks import MarkingObserver, MarkingParts  # noqa: PLC0415 - only where it was asked for

    def cap_link(link: ModelLink, session_id: str) -> ModelLink:
        wallet = services.models.wallet
        return link if wallet is None else wallet.cap_link(link, session_id, "judge")

    return MarkingObserver(
        MarkingParts(
            services.database,
            services.clock,
            LateGate(services.gate),
            services.models.connect_judge,
            cap_link,
        )
    )


def _make_review_observer(services: Services) -> TurnObserver:
    from whet.review.triggers import ReviewObserver  # noqa: PLC0415 - the first request comes before it

    return ReviewObserver(services.settings.review, services.clock, services.models.runtime)


def _make_recording_observer(services: Services) -> TurnObserver:
    from whet.rewind.recordings import RecordingObserver  # noqa: PLC0415 - as above

    return RecordingObserver(services.recordings.get())


def _open_link(services: Services, stored: StoredPrefix) -> SwitchableLink:
    session_id = stored.log.session.id
    link = services.models.provider.open(stored.prompt, stored.specs, session_id)
    link = add_examples(link, stored.prime) if stored.prime else link
    return SwitchableLink(link, session_id, lambda: services.models.wallet)


class SessionBuilder:
    """Builds sessions from the services of one process. The results of `helpers` arrive in their inboxes."""

    def __init__(self, services: Services, helpers: LatePart[HelperRuns]) -> None:
        self._services = services
        self._helpers = helpers

    async def create(
        self, start: SessionStart, extras: SessionExtras, *, leaving: Session | None = None
    ) -> Session:
        """Create a session: its row and prefix are durable on return, and the prefix never changes."""
        services, left_id = self._services, leaving.id if leaving else ""
        if (plugins := services.plugins) is not None and start.kind == "chat":
            extras = msgspec.structs.replace(extras, session_id=extras.session_id or services.clock.new_id())
            workspace = str(start.whose.workspace or services.workspace)
            settings = services.models.settings
            start = await plugins.add_prompts(start, extras.session_id, workspace, left_id, settings)
        runner = await self.start_engine(leaving, foreground=start.kind == "chat", is_new=True)
        engine_tools = await services.contexts.tools(runner, services.tools.by_name)
        specs = [tool.spec for tool in (*start.tools, *engine_tools) if "deferred" not in tool.tags]
        log = await Transcript.create(services.database, self._row(start, specs, extras), services.clock)
        profile = await services.database.look(lambda db: sessions.profile_of(db, log.session.id))
        return await self.build(
            StoredPrefix(log, start.prompt, specs, profile), runner, extras, leaving=leaving, start=start
        )

    async def start_engine(
        self, leaving: Session | None, *, foreground: bool, is_new: bool = False
    ) -> EngineRunner:
        """Start a context engine for a session. The engine of `leaving`, the session that it follows, is
        closed first, because it may hold resources that the new one needs; if the session `is_new`, that
        engine is reset. A shared engine is reused."""
        contexts = self._services.contexts
        if leaving is not None:
            old_host = contexts.host(leaving.context)
            if old_host.runner.origin == "shared" and not old_host.runner.lane.stuck:
                return old_host.runner
            await old_host.aclose(is_reset=is_new)
        return await contexts.start_engine(self._services.models.provider.info, foreground=foreground)

    async def build(
        self,
        stored: StoredPrefix,
        runner: EngineRunner,
        extras: SessionExtras,
        *,
        leaving: Session | None = None,
        start: SessionStart | None = None,
    ) -> Session:
        """Build a session from a stored one, with the same prefix and the tools that exist now. `start` is
        set if the session was just created."""
        services, row, profile = self._services, stored.log.session, stored.profile
        person = extras.person or services.person
        workspace, lines = choose_workspace(row.workspace, services.workspace)
        tools = await self._tools(stored.specs, runner, workspace)
        if profile:
            services.learning.bind(row.id, Origin("foreground", platform=row.source), profile)
        link = _open_link(services, stored)
        self._add_notices(stored.specs, runner)
        prefix = (stored.prompt, msgspec.json.encode(stored.specs).decode(), stored.prime)
        old_host = services.contexts.host(leaving.context) if leaving else None
        host = await self._begin(stored, runner, link, prefix, old_host)
        for line in (*lines, *(start.notices if start is not None else ())):
            host.runner.add_notice(line, must_show=True)
        if host.runner is not runner:
            tools = await self._tools(stored.specs, host.runner, workspace)
        gate, hooks = LateGate(services.gate), None
        if services.plugins is not None:
            old_id = leaving.id if leaving else ""
            hooks = await services.plugins.sessions.enter(
                host, gate, tools, previous_id=old_id, model=lambda: link.info.model, person=person
            )
            gate, tools, link.around = hooks.gate, hooks.tools, hooks.around
        tools = _add_instructions(services, tools, workspace, stored.log, host.runner)
        gate, tools, shell = await self._add_shell_hooks(gate, tools, workspace, row.id, runner)
        if profile and services.database.is_team:
            gate = _make_guest_gate(self._services, gate)
        limits, warm = self._limits(start, extras), self._warm_start(stored, link, start)

        def note() -> str:
            now = local_time(services.clock.now(), zone_of(person))
            state = volatile_note(now, workspace, limits.steps, shell_folder(stored.log))
            return "\n".join(filter(None, (state, extras.note, _plan_note(services.gate, row.id))))

        return Session(
            log=stored.log,
            link=link,
            context=host,
            tools={**tools, **{tool.name: tool for tool in extras.tools}},
            gate=gate,
            person=person,
            limits=limits,
            clock=services.clock,
            workspace=workspace,
            note=note,
            text_note=_make_skills_note(services, profile, tools),
            observers=(*self._observers(row, warm, hooks, profile), *shell, *extras.observers),
            buffers=extras.buffers,
            inbox=Inbox(lambda: self._next_helper_result(row.id)),
        )

    def _next_helper_result(self, session_id: str) -> InboxEntry | None:
        helpers = self._helpers.created
        return None if helpers is None else helpers.next_result(session_id)

    async def _add_shell_hooks(
        self, gate: Gate, tools: Mapping[str, Tool], workspace: Path, session_id: str, runner: EngineRunner
    ) -> tuple[Gate, Mapping[str, Tool], Sequence[TurnObserver]]:
        """Add the owner's shell hooks, and a repository's if they were accepted."""
        own, services = self._services.settings.hooks.commands, self._services
        if not own and not (workspace / ".whet" / "hooks.json").is_file():
            return gate, tools, ()
        from whet.hooks.shell import add_hooks, load_session_hooks  # noqa: PLC0415 - few have hooks

        note = partial(runner.add_notice, must_show=True)
        parts = (services.home, own, services.confinement, workspace, session_id, note)
        hooks = await asyncio.to_thread(load_session_hooks, *parts)  # it hashes up to 200 MB
        if hooks is None:
            return gate, tools, ()
        if idle := hooks.find_idle({*BUILT_IN, *services.tools.by_name, *tools}):
            hint = "commands are terminal, edits write_file|patch"
            note(f"hooks: {', '.join(idle)} names no tool, so it never runs ({hint})")
        return add_hooks(hooks, gate, tools)

    async def _begin(
        self,
        stored: StoredPrefix,
        runner: EngineRunner,
        link: SwitchableLink,
        prefix: Sequence[str],
        old_host: EngineHost | None,
    ) -> EngineHost:
        """Begin a session with its engine. If the engine fails, start another one once."""
        services = self._services
        scope = services.plugins.loaded.scope if services.plugins else no_scope
        host = services.contexts.open_host(stored.log, runner, lambda: link.info, prefix, scope=scope)
        if await host.begin(old_host) or runner.origin == "shared":
            return host
        other = await self.start_engine(None, foreground=stored.log.session.kind == "chat")
        other.take_notices(runner)
        await runner.close(shutdown=runner.origin == "fresh")
        host = services.contexts.open_host(stored.log, other, lambda: link.info, prefix, scope=scope)
        await host.begin(old_host)
        return host

    def _observers(
        self, session: SessionRow, warm: WarmStartObserver | None, hooks: HookedParts | None, profile: str
    ) -> list[TurnObserver]:
        """Return the observers of a session's turns, in order. The warm start is first, because it depends on
        the message before others add to it. The engine is notified about a turn's end before people, plugins
        and memories."""
        services = self._services
        observers: list[TurnObserver] = [] if warm is None else [warm]
        if services.settings.memory.brought_along:
            observers.append(
                RecollectionObserver(
                    services.learning.reader_of(profile), services.settings.memory.brought_along
                )
            )
        observers.append(LateObserver(lambda: _make_review_observer(services)))
        observers.append(EngineObserver(services.contexts))
        if (plugins := services.plugins) is not None and hooks is not None:
            is_owners_chat = not (profile or session.private) and session.kind == "chat"
            memories = plugins.memories if is_owners_chat else None
            candidates = (plugins.bell, hooks.observer, memories)
            observers += [observer for observer in candidates if observer is not None]
        observers.append(LateObserver(lambda: WarmLabelObserver(services.warm_starts, session.tool_calls)))
        if services.settings.rewind.record:
            observers.append(LateObserver(lambda: _make_recording_observer(services), only_tests=True))
        if services.settings.judge.answers:
            observers.insert(0, _make_marking_observer(services))
        if services.tracing is not None:
            observers.append(services.tracing)
        return observers

    def _warm_start(
        self, stored: StoredPrefix, link: SwitchableLink, start: SessionStart | None
    ) -> WarmStartObserver | None:
        if start is None or start.warm.name == OFF:
            return None
        models, session_id = self._services.models, stored.log.session.id
        opening = SessionOpening(
            lambda prompt: models.provider_of(session_id).open(prompt, stored.specs, session_id),
            link.switch,
            stored.prompt,
            stored.specs,
            self._services.contexts.add_prefix_tokens,
        )
        return WarmStartObserver(self._services.warm_starts, start.warm, opening)

    def _limits(self, start: SessionStart | None, extras: SessionExtras) -> TurnLimits:
        agent = self._services.settings.agent
        steps = (start.steps if start is not None else 0) or agent.max_steps
        return TurnLimits(steps, extras.turn_s or agent.turn_timeout_s, agent.answer_cap_chars)

    async def _tools(
        self, specs: Sequence[ToolSpec], runner: EngineRunner, workspace: Path
    ) -> Mapping[str, Tool]:
        """Return the tools of a stored list that exist now, including the engine's and the workspace's."""
        services = self._services
        program_tools = {**services.tools.by_name, **list_code_tools(services, workspace)}
        engine_tools = {tool.name: tool for tool in await services.contexts.tools(runner, program_tools)}
        by_name = {**engine_tools, **program_tools}
        tools = {spec.name: tool for spec in specs if (tool := by_name.get(spec.name))}
        if any(tool.stands_for is not None for tool in tools.values()):
            tools |= {name: tool for name, tool in program_tools.items() if "deferred" in tool.tags}
        if missing := [name for name in engine_tools if name not in tools]:
            runner.note(
                f"{runner.name}: its tools ({', '.join(missing)}) come with a new session, not this one"
            )
        return check_edits(tools, partial(_check_edit, services), services.settings)

    def _add_notices(self, specs: Sequence[ToolSpec], runner: EngineRunner) -> None:
        """Pass failures of plugins and changes of MCP servers to the session's notices."""
        if self._services.plugins is not None:
            for line in self._services.plugins.loaded.take_news():
                runner.add_notice(line, must_show=True)  # the failed plugin may have been a safeguard
        if self._services.mcp is not None:
            self._services.mcp.attach_sink(specs, runner)

    def _row(self, start: SessionStart, specs: Sequence[ToolSpec], extras: SessionExtras) -> NewSession:
        services = self._services
        info = services.models.provider.info
        return NewSession(
            id=extras.session_id or services.clock.new_id(),
            conversation_id=start.conversation_id,
            parent_session_id=start.parent_id,
            kind=start.kind,
            source=start.whose.source or services.source,
            provider=info.provider,
            model=info.model,
            workspace=str(start.whose.workspace or services.workspace),
            private=start.private or services.settings.store.private,
            title=start.title,
            system_prompt=start.prompt,
            tools_json=msgspec.json.encode(specs).decode(),
            profile=start.whose.profile,
            model_chosen=start.model_chosen,
        )


def _make_guest_gate(services: Services, gate: Gate) -> Gate:
    from whet.app.conversations.guest_gate import GuestGate  # noqa: PLC0415 - only a team has guests on its workers

    return GuestGate(gate, lambda: services.confinement.get().command_status())
