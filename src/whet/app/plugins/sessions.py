"""Plugins in a program that runs sessions: their parts, and their hooks around calls, turns and sessions.

Imported only if plugins are loaded.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.run_call import refuse_further
from whet.agent.session import Session, TurnObserver
from whet.app.plugins import parts
from whet.app.plugins.answer_check import PreVerify
from whet.app.plugins.dispatch import IncomingHooks
from whet.app.plugins.memories import ChangeNotifier, MemoryObserver, notify_skill_changes, offer_skills
from whet.app.plugins.notify import NotifiedPerson, NotifierGroup
from whet.config.schema import ModelSettings, NotifySettings
from whet.context.host import EngineHost
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ToolError
from whet.contract.events import Compaction, TurnEnd
from whet.contract.messages import Message, ToolCall, to_dict
from whet.contract.protocols import Gate, GateCall, ModelLink, NobodyPresent, Person, StreamItem
from whet.contract.tools import Tool, ToolContext
from whet.lanes import call_in_loop
from whet.memory.service import LearningService
from whet.plugins import model_calls, tool_hooks
from whet.plugins.dispatch import Post
from whet.plugins.hermes import SessionAccess
from whet.plugins.sections import render_sections
from whet.plugins.shims import tool_error
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.app.conversations.session_parts import SessionStart
    from whet.plugins.hooks import Hooks
    from whet.plugins.load import LoadedPlugins

Scope = Callable[[], AbstractContextManager[object]]
_NO_TURN: dict[str, Any] = {"turn_id": "", "completed": False, "interrupted": False, "failed": False}


class HookedParts(msgspec.Struct, frozen=True):
    """A session's gate, tools and model requests with the plugins' hooks around them, and an observer."""

    gate: Gate
    tools: Mapping[str, Tool]
    observer: TurnObserver
    around: Callable[[ModelLink, Sequence[Message]], AsyncIterator[StreamItem]] | None = None


class HookObserver(TurnObserver):
    """Calls pre_llm_call before a person's message is stored and post_llm_call after a turn."""

    def __init__(
        self,
        hooks: Hooks,
        facts: Mapping[str, str],
        model: Callable[[], str],
        take_failures: Callable[[], Sequence[str]],
    ) -> None:
        """`take_failures` returns the plugins' failures that were not shown to a person yet."""
        self._hooks = hooks
        self._facts = facts
        self._model = model
        self._take_failures = take_failures
        self._user_text = ""
        self.turn_id: str = ""
        self.session: Session | None = None
        self.last_end: dict[str, Any] = {}

    async def before(self, session: Session, message: Message) -> Message:
        """Add the hooks' context to a message."""
        self._user_text, self.turn_id, self.session = message.text, turn_id_of(session.log), session
        if not self._hooks.has("pre_llm_call"):
            return message
        text = await self._hooks.context(
            **self._about(session, turn_id_of(session.log)),
            user_message=message.text,
            conversation_history=_history(session),
            is_first_turn=not session.log.messages,
            parent_session_id=session.log.session.parent_session_id or "",
            sender_id="",
        )
        note = "\n\n".join(filter(None, (message.note, text)))
        return msgspec.structs.replace(message, note=note) if text else message

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Pass the model's answer to the hooks, or notify them that the turn was stopped."""
        facts = self._about(session, end.turn_id)
        self.last_end = {
            "turn_id": end.turn_id,
            "completed": end.reason == "answered",
            "interrupted": end.reason == "cancelled",
            "failed": end.reason in ("failed", "refused", "crashed"),
            "turn_exit_reason": end.reason,
            "duration_ms": round(end.duration_s * 1000),
            "model": facts["model"],
        }
        if self._hooks.has("post_llm_call"):
            await self._hooks.call_all(
                "post_llm_call",
                **{**facts, **self.last_end},
                text=end.text,
                user_message=self._user_text,
                assistant_response=end.text,
                conversation_history=_history(session),
            )
        if end.reason == "cancelled":
            stopped = {"session_key": end.session_id, "reason": "interrupted", "invalidation_reason": ""}
            await self._hooks.call_all("agent_loop_stopped", **facts, **stopped)

    def take_notices(self) -> Sequence[str]:
        """Return the plugins' failures that were not shown yet."""
        return self._take_failures()

    def _about(self, session: Session, turn_id: str) -> dict[str, Any]:
        return {**self._facts, "task_id": session.id, "turn_id": turn_id, "model": self._model()}


class _OpenSession(msgspec.Struct, frozen=True):
    observer: HookObserver
    log: Transcript


async def _run_tool(session: Session, name: str, arguments: dict[str, Any]) -> str:
    """Run a session's tool through its gate and return the result, or the error as text. The model does not
    see the call."""
    tool = session.tools.get(name)
    if tool is None:
        return tool_error(f"there is no tool named {name}")
    call = ToolCall(f"plugin-{session.clock.new_id()}", name, json.dumps(arguments))
    context = ToolContext(
        session.id,
        turn_id_of(session.log),
        call.id,
        session.workspace,
        output=lambda text: None,
        ask=session.person.clarify,
    )
    try:
        content = tool.content() if tool.content is not None else ""
        folder = str(session.workspace)
        question = GateCall(session.id, call, tool, arguments, folder, call.id, content=content)
        decision = await session.gate.decide(question, lambda event: None)
        if decision.verdict != "allow":
            return tool_error(decision.reason or "denied")
        question.refuse_changed_tool()
        refusal = partial(refuse_further, session.gate, question)
        context = msgspec.structs.replace(context, refusal=refusal)
        output = await tool.run(context, dict(decision.arguments or arguments))
    except ToolError as error:
        return tool_error(error.message)
    return tool_error(output.text) if output.is_error else output.text


class PluginSessions:
    """Notifies plugins about sessions, and wraps their hooks around them."""

    def __init__(self, plugins: LoadedPlugins, platform: str) -> None:
        self._plugins = plugins
        self.platform: str = platform
        self._open: dict[str, tuple[Hooks, HookObserver]] = {}
        self._logs: dict[str, Transcript] = {}
        self._tasks: dict[str, str] = {}
        self._served: dict[str, _OpenSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        plugins.names.session = SessionAccess(self._dispatch, self._inject)

    async def enter(
        self,
        host: EngineHost,
        gate: Gate,
        tools: Mapping[str, Tool],
        *,
        previous_id: str = "",
        model: Callable[[], str],
        person: Person,
    ) -> HookedParts:
        """Wrap the plugins' hooks around the session of `host`, and notify them about its start. Returns the
        wrapped parts.

        `previous_id` is the session that it follows in a chat, `model` returns the name of its model, and
        `person` is asked by its gate.
        """
        row = host.log.session
        scope: Scope = lambda: self._plugins.scope(row.id, row.conversation_id)  # noqa: E731 handed on
        hooks = self._plugins.hooks.bound_to(host.runner.engine).within(scope)
        facts = {"session_id": row.id, "conversation_id": row.conversation_id, "platform": self.platform}
        plugin_tools = {tool.name for tool in self._plugins.tools}
        scoped_tools = [
            tool_hooks.run_in_scope(tool, scope) if name in plugin_tools else tool
            for name, tool in tools.items()
        ]

        async def notify_compaction(compaction: Compaction) -> None:
            await hooks.call_all("on_compaction", **facts, **msgspec.structs.asdict(compaction))

        host.on_compacted = notify_compaction
        is_main = row.kind == "chat" and not row.private
        if self._plugins.memories and is_main:
            await self.begin_memories(row.id, row.workspace, previous_id)
            self._logs[row.id] = host.log
            host.before_compaction = self._plugins.memories.before_compaction
        if previous_id:
            await self.leave(previous_id, reason="reset")
            await hooks.call_all(
                "on_session_reset", **facts, old_session_id=previous_id, new_session_id=row.id, reason="reset"
            )
        # A person reads only chats, so failures in other sessions are shown in the next chat.
        take_failures = self._plugins.take_news if row.kind == "chat" else tuple[str, ...]
        observer = HookObserver(hooks, facts, model, take_failures)
        self._open[row.id] = (hooks, observer)
        await hooks.call_all("on_session_start", **facts, model=model())
        self._loop = asyncio.get_running_loop()
        self._served[row.id] = _OpenSession(observer, host.log)
        calls = model_calls.ModelCallHooks(hooks, facts, lambda: turn_id_of(host.log))
        return HookedParts(
            tool_hooks.HookedGate(
                gate, hooks, self._plugins.take_news, missing=self._missing_plugins_reason(person)
            ),
            dict(zip(tools, tool_hooks.add_hooks(scoped_tools, hooks), strict=True)),
            observer,
            self._wrap_requests(hooks, calls, PreVerify(hooks, facts, lambda: observer.session)),
        )

    def _wrap_requests(
        self, hooks: Hooks, calls: model_calls.ModelCallHooks, pre_verify: PreVerify
    ) -> Callable[[ModelLink, Sequence[Message]], AsyncIterator[StreamItem]] | None:
        """Return the wrapper around each request to the model, or None if no plugin needs one."""
        if not hooks.has("pre_verify"):
            return calls.stream if hooks.has(*model_calls.NAMES) else None
        return lambda link, messages: pre_verify.stream(calls.stream(link, messages))

    async def notify_command(self, command: str, typed: str, arguments: str, session_id: str) -> None:
        """Notify the hooks that a slash command is about to run; `typed` is the name as typed."""
        facts = {"session_key": session_id, "session_id": session_id, "platform": self.platform}
        facts |= {"surface": "gateway" if self.platform == "gateway" else "cli", "command": command}
        await self._plugins.hooks.call_all("pre_command", **facts, alias_used=typed, args_raw=arguments)

    async def begin_memories(self, session_id: str, workspace: str, previous_id: str) -> None:
        """Begin a person's session in the memories; a second call does nothing."""
        memories = self._plugins.memories
        if (previous_log := self._logs.pop(previous_id, None)) is not None:
            await memories.notify_session_end(_rows(previous_log))
        facts = {
            "hermes_home": os.environ.get("HERMES_HOME", ""),
            "platform": self.platform,
            "agent_context": "primary",
            "agent_identity": "default",
            "agent_workspace": workspace,
            "parent_session_id": previous_id,
        }
        await memories.enter(session_id, facts, previous_id=previous_id)

    def _dispatch(self, session_id: str, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool of a session through its gate, for plugin code on its own thread."""
        served, loop = self._served.get(session_id), self._loop
        session = served.observer.session if served else None
        if session is None or loop is None or threading.current_thread() is threading.main_thread():
            return tool_error("no turn of that session is under way, or the call came from an async function")
        return asyncio.run_coroutine_threadsafe(_run_tool(session, name, arguments), loop).result()

    def _inject(self, session_id: str, text: str) -> bool:
        """Put text into a session's inbox, from any thread."""
        served, loop = self._served.get(session_id), self._loop
        session = served.observer.session if served else None
        if session is None or loop is None:
            return False
        return call_in_loop(loop, session.inbox.put, session.user_message(wrap_in_tag("plugin", text)))

    def _missing_plugins_reason(self, person: Person) -> str:
        """Return why no call may run, or "": if no person is present, a plugin that failed to load may have
        been the one that guards calls."""
        while isinstance(person, NotifiedPerson):
            person = person.person
        broken = self._plugins.load_failures
        if type(person) is not NobodyPresent or not broken:
            return ""
        details = "; ".join(f"{name}: {reason}" for name, reason in broken.items())
        return f"an enabled plugin is not loaded and nobody is present to decide without it ({details})"

    async def leave(self, session_id: str, reason: str = "exit") -> None:
        """Notify plugins that a session has ended; a second call does nothing."""
        self._served.pop(session_id, None)
        hooks, observer = self._open.pop(session_id, (None, None))
        if hooks is None or observer is None:
            return
        log = self._logs.pop(session_id, None)
        if log is not None and self._plugins.memories:
            await self._plugins.memories.notify_session_end(_rows(log))
        facts = {"session_id": session_id, "task_id": session_id, "platform": self.platform}
        await hooks.call_all("on_session_end", **facts, **(observer.last_end or _NO_TURN), reason=reason)
        await hooks.call_all("on_session_finalize", **facts, reason=reason)

    async def before_child(self, parent_id: str, child_id: str, task: str) -> None:
        """Notify the parent's hooks that a delegated task begins."""
        self._tasks[child_id] = task
        await self._notify_parent(
            parent_id,
            "subagent_start",
            parent_session_id=parent_id,
            child_session_id=child_id,
            child_subagent_id=child_id,
            child_role="helper",
            child_goal=task,
        )

    async def after_child(self, parent_id: str, child_id: str, end: TurnEnd | None) -> None:
        """Notify the parent's hooks that a delegated task has ended. `end` is None if the task was cancelled
        or crashed."""
        await self.leave(child_id)
        task = self._tasks.pop(child_id, "")
        if self._plugins.memories and parent_id in self._logs:
            await self._plugins.memories.notify_delegation(task, end.text if end else "", child_id)
        await self._notify_parent(
            parent_id,
            "subagent_stop",
            parent_session_id=parent_id,
            child_session_id=child_id,
            child_role="helper",
            child_status=end.reason if end else "cancelled",
            child_summary=end.text if end else "",
            duration_ms=round(end.duration_s * 1000) if end else 0,
        )

    async def aclose(self) -> None:
        """Report the end of every session that is still open."""
        for session_id in [*self._open]:
            await self.leave(session_id)

    async def _notify_parent(self, session_id: str, name: str, **facts: Any) -> None:
        hooks, observer = self._open.get(session_id, (None, None))
        if hooks is not None and observer is not None:
            turn = {"parent_turn_id": observer.turn_id}
            await hooks.call_all(name, **turn, **facts, platform=self.platform)


def turn_id_of(log: Transcript) -> str:
    """Return the id of the open turn, else the id that the next turn will have."""
    if log.live.open_turn is not None:
        return log.live.open_turn.id
    return log.writer.next_turn_id()


def _history(session: Session) -> list[dict[str, Any]]:
    return _rows(session.log)


def _rows(log: Transcript) -> list[dict[str, Any]]:
    return [to_dict(row) for row in log.messages]


class PluginParts(msgspec.Struct, frozen=True):
    """The parts that plugins bring to one process. Close it with `aclose`, and `loaded` after that."""

    loaded: LoadedPlugins
    sessions: PluginSessions
    bell: NotifierGroup | None
    memories: MemoryObserver | None
    skills: ChangeNotifier | None
    notify: NotifySettings

    @classmethod
    def load(cls, needs: parts.PluginNeeds, learning: LearningService, source: str) -> PluginParts | None:
        """Load the enabled plugins, offer their skills to sessions, and notify their memories about changes
        of the learning service. Returns None if no plugin is enabled."""
        loaded = parts.load(needs)
        if loaded is None:
            return None
        offer_skills(loaded, learning)
        return cls(
            loaded,
            PluginSessions(loaded, source),
            parts.make_notifier_group(loaded, needs.settings.notify),
            MemoryObserver(loaded.memories, learning) if loaded.memories else None,
            notify_skill_changes(loaded.hooks, learning),
            needs.settings.notify,
        )

    async def add_prompts(
        self, start: SessionStart, session_id: str, workspace: str, previous_id: str, model: ModelSettings
    ) -> SessionStart:
        """Add the plugins' texts to the prompt of a new session. Begin the session in the memories, unless it
        is private."""
        blocks: list[str] = []
        if self.loaded.memories and not start.private:
            await self.sessions.begin_memories(session_id, workspace, previous_id)
            blocks.append(await self.loaded.memories.prompt_block())
        if self.loaded.sections:
            facts = {"session_id": session_id, "model": model.model, "provider": model.provider}
            facts |= {"platform": self.sessions.platform, "profile_name": "default", "cwd": workspace}
            blocks.append(await render_sections(self.loaded.sections, facts, self.loaded.problems.append))
        return msgspec.structs.replace(start, prompt="\n\n".join(filter(None, (start.prompt, *blocks))))

    def incoming_hooks(
        self, channels: Iterable[str], post: Post, session_of: Callable[[str, str], str]
    ) -> IncomingHooks:
        """Return the hooks for incoming platform messages."""
        return IncomingHooks(self.loaded.hooks, channels, post, session_of)

    def with_notifications(self, person: Person) -> Person:
        """Return a person whose pending questions are sent to the notifiers, if there are any."""
        return person if self.bell is None else NotifiedPerson(person, self.bell, self.notify)

    async def aclose(self) -> None:
        """Wait for pending notifications and report the end of every session."""
        if self.bell is not None:
            await self.bell.aclose()
        await self.sessions.aclose()
        if self.skills is not None:
            await self.skills.wait_for_pending(None)
        if self.memories is not None:
            await self.memories.aclose()
