"""Plugins in sessions: their hooks around a session's calls and turns, its beginning and its end.

Made only where plugins are loaded. It does not know what any hook does.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.session import Session
from whet.context.host import EngineHost
from whet.contract.events import Compaction, TurnEnd
from whet.contract.messages import Message, to_dict

if TYPE_CHECKING:
    from whet.plugins.hooks import Hooks
    from whet.plugins.load import LoadedPlugins

Scope = Callable[[], AbstractContextManager[object]]


class PluginSessions:
    """The sessions that plugins were told of; each end is told once."""

    def __init__(self, plugins: LoadedPlugins, platform: str) -> None:
        self._plugins = plugins
        self._platform = platform
        self._open: dict[str, Hooks] = {}

    async def enter(self, session: Session, host: EngineHost, left: str = "") -> None:
        """Let the plugins' hooks take part in a session. `left` is the session that it follows in a chat."""
        row = session.log.session
        scope: Scope = lambda: self._plugins.scope(row.id, row.conversation_id)  # noqa: E731 handed on
        hooks = self._plugins.hooks.bound_to(host.seat.engine).within(scope)
        facts = {"session_id": row.id, "conversation_id": row.conversation_id, "platform": self._platform}
        around = pkgutil.resolve_name("whet.plugins.around")
        session.gate = around.HookedGate(session.gate, hooks, self._plugins.take_news)
        own = {tool.name for tool in self._plugins.tools}
        tools = [around.scoped(tool, scope) if name in own else tool for name, tool in session.tools.items()]
        session.tools = dict(zip(session.tools, around.hooked_tools(tools, hooks), strict=True))
        _around_turns(session, hooks, facts)

        async def compacted(done: Compaction) -> None:
            await hooks.tell("on_compaction", **facts, **msgspec.structs.asdict(done))

        host.compacted = compacted
        if left:
            await self.leave(left)
            await hooks.tell("on_session_reset", **facts, old_session_id=left)
        self._open[row.id] = hooks
        await hooks.tell("on_session_start", **facts, model=session.model.model)

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


def _around_turns(session: Session, hooks: Hooks, facts: dict[str, str]) -> None:
    """Call pre_llm_call before a person's message is stored and post_llm_call after a turn."""
    ended = session.after_turn

    def history() -> list[dict[str, Any]]:
        return [to_dict(row) for row in session.log.messages]

    async def before(message: Message) -> Message:
        if not hooks.has("pre_llm_call"):
            return message
        text = await hooks.context(**facts, user_message=message.text, conversation_history=history())
        note = "\n\n".join(filter(None, (message.note, text)))
        return msgspec.structs.replace(message, note=note) if text else message

    async def after(end: TurnEnd) -> None:
        await ended(end)
        if hooks.has("post_llm_call"):
            await hooks.tell("post_llm_call", **facts, text=end.text, conversation_history=history())

    session.before_turn, session.after_turn = before, after
