"""Plugins in a program that runs sessions: what they bring to it, and their hooks around a session's calls
and turns, its beginning and its end.

Imported only where plugins are loaded. It does not know what any hook does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.app import plugged
from whet.app.memories import MemoryObserver, offer_skills
from whet.app.notify import NotifiedPerson, NotifierGroup
from whet.app.plugged import PluginNeeds
from whet.config.schema import NotifySettings
from whet.context.host import EngineHost
from whet.contract.events import Compaction, TurnEnd
from whet.contract.messages import Message, to_dict
from whet.contract.protocols import Gate, Person
from whet.contract.tools import Tool
from whet.memory.desk import LearningService
from whet.plugins import around

if TYPE_CHECKING:
    from whet.plugins.hooks import Hooks
    from whet.plugins.load import LoadedPlugins

Scope = Callable[[], AbstractContextManager[object]]


class HookedParts(msgspec.Struct, frozen=True):
    """What a session is made with so that the plugins' hooks take part in it."""

    gate: Gate
    tools: Mapping[str, Tool]
    observer: TurnObserver


class HookObserver(TurnObserver):
    """Calls pre_llm_call before a person's message is stored and post_llm_call after a turn."""

    def __init__(self, hooks: Hooks, facts: Mapping[str, str]) -> None:
        self._hooks = hooks
        self._facts = facts

    async def before(self, session: Session, message: Message) -> Message:
        """Add what the hooks give to a message."""
        if not self._hooks.has("pre_llm_call"):
            return message
        text = await self._hooks.context(
            **self._facts, user_message=message.text, conversation_history=_history(session)
        )
        note = "\n\n".join(filter(None, (message.note, text)))
        return msgspec.structs.replace(message, note=note) if text else message

    async def ended(self, session: Session, end: TurnEnd) -> None:
        """Tell the hooks what the model said."""
        if self._hooks.has("post_llm_call"):
            await self._hooks.tell(
                "post_llm_call", **self._facts, text=end.text, conversation_history=_history(session)
            )


class PluginSessions:
    """The sessions that plugins were told of; each end is told once."""

    def __init__(self, plugins: LoadedPlugins, platform: str) -> None:
        self._plugins = plugins
        self._platform = platform
        self._open: dict[str, Hooks] = {}

    async def enter(
        self, host: EngineHost, gate: Gate, tools: Mapping[str, Tool], *, left: str = "", model: str
    ) -> HookedParts:
        """Let the plugins' hooks take part in the session of `host`, which `model` answers; give what it is
        to be made with. `left` is the session that it follows in a chat."""
        row = host.log.session
        scope: Scope = lambda: self._plugins.scope(row.id, row.conversation_id)  # noqa: E731 handed on
        hooks = self._plugins.hooks.bound_to(host.seat.engine).within(scope)
        facts = {"session_id": row.id, "conversation_id": row.conversation_id, "platform": self._platform}
        own = {tool.name for tool in self._plugins.tools}
        within = [around.scoped(tool, scope) if name in own else tool for name, tool in tools.items()]

        async def compacted(done: Compaction) -> None:
            await hooks.tell("on_compaction", **facts, **msgspec.structs.asdict(done))

        host.compacted = compacted
        if left:
            await self.leave(left)
            await hooks.tell("on_session_reset", **facts, old_session_id=left)
        self._open[row.id] = hooks
        await hooks.tell("on_session_start", **facts, model=model)
        return HookedParts(
            around.HookedGate(gate, hooks, self._plugins.take_news),
            dict(zip(tools, around.hooked_tools(within, hooks), strict=True)),
            HookObserver(hooks, facts),
        )

    async def leave(self, session_id: str) -> None:
        """Tell that a session was left; a second time does nothing."""
        hooks = self._open.pop(session_id, None)
        if hooks is not None:
            await hooks.tell("on_session_end", session_id=session_id, platform=self._platform)

    async def child_began(self, parent_id: str, child_id: str, task: str) -> None:
        """Tell the parent's hooks that a delegated task begins."""
        await self._tell(
            parent_id,
            "subagent_start",
            parent_session_id=parent_id,
            child_session_id=child_id,
            child_goal=task,
        )

    async def child_ended(self, parent_id: str, child_id: str, end: TurnEnd | None) -> None:
        """Tell of the end of a delegated task; None where it was cancelled or broke."""
        await self.leave(child_id)
        await self._tell(
            parent_id,
            "subagent_stop",
            parent_session_id=parent_id,
            child_session_id=child_id,
            child_status=end.reason if end else "cancelled",
            child_summary=end.text if end else "",
            duration_ms=round(end.duration_s * 1000) if end else 0,
        )

    async def aclose(self) -> None:
        """Tell the end of every session that is still open."""
        for session_id in [*self._open]:
            await self.leave(session_id)

    async def _tell(self, session_id: str, name: str, **facts: Any) -> None:
        hooks = self._open.get(session_id)
        if hooks is not None:
            await hooks.tell(name, **facts, platform=self._platform)


def _history(session: Session) -> list[dict[str, Any]]:
    return [to_dict(row) for row in session.log.messages]


class PluginParts(msgspec.Struct, frozen=True):
    """What plugins bring to one process. Close it with `aclose`, and what was loaded after that."""

    loaded: LoadedPlugins
    sessions: PluginSessions
    bell: NotifierGroup | None
    memories: MemoryObserver | None
    notify: NotifySettings

    @classmethod
    def load(cls, needs: PluginNeeds, desk: LearningService, source: str) -> PluginParts | None:
        """Load what the settings enable; the plugins' skills are on offer at `desk`, their memories are told
        of its changes."""
        loaded = plugged.load(needs)
        if loaded is None:
            return None
        offer_skills(loaded, desk)
        return cls(
            loaded,
            PluginSessions(loaded, source),
            plugged.bell(loaded, needs.settings.notify),
            MemoryObserver(loaded.memories, desk) if loaded.memories else None,
            needs.settings.notify,
        )

    def heard_by(self, person: Person) -> Person:
        """Give a person whose waiting questions the notifiers tell of, where there are any."""
        return person if self.bell is None else NotifiedPerson(person, self.bell, self.notify)

    async def aclose(self) -> None:
        """Let what is being told arrive, and tell the end of every session."""
        if self.bell is not None:
            await self.bell.aclose()
        if self.memories is not None:
            await self.memories.aclose()
        await self.sessions.aclose()
