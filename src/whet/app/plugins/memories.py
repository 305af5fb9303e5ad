"""Connect plugins to learning: offer their skills to sessions, and notify their memories and hooks about
learned changes.

Plugins are notified on the event loop, also about changes that another thread made. Closing waits for pending
notifications.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.app.plugins import parts
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import WhetError
from whet.contract.events import TurnEnd
from whet.contract.messages import Message, to_dict
from whet.memory import disk, skill_format
from whet.store.ledger import LedgerRow

if TYPE_CHECKING:
    from whet.memory.service import LearningService
    from whet.plugins.hooks import Hooks
    from whet.plugins.load import LoadedPlugins
    from whet.plugins.memories import Memories

_BEFORE_TURN_S = 3.0
_SKILL_HOOK = "on_skill_lifecycle"
# The values by which memories written for Hermes Agent distinguish a review's writes from an answer's.
_HERMES_ORIGINS = {
    "review": {"write_origin": "background_review", "execution_context": "background_review"},
    "foreground": {"write_origin": "assistant_tool", "execution_context": "foreground"},
}
_HOOK_ACTIONS = {"create": "created", "delete": "deleted", "undo": "undone"}


class ChangeNotifier:
    """Notifies about each learned change that becomes active, on the event loop on which it was created."""

    def __init__(
        self, learning: LearningService, notify: Callable[[LedgerRow], Coroutine[Any, Any, None]]
    ) -> None:
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._pending: set[Future[None]] = set()
        learning.listeners.append(self._queue_notification)

    async def wait_for_pending(self, limit_s: float | None) -> None:
        """Wait until every pending notification was delivered, up to `limit_s` (None: without a limit)."""
        if pending := [asyncio.wrap_future(future) for future in list(self._pending)]:
            await asyncio.wait(pending, timeout=limit_s)

    def _queue_notification(self, row: LedgerRow) -> None:
        """Notify about a change. May be called on any thread."""
        future = asyncio.run_coroutine_threadsafe(self._notify(row), self._loop)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)


class MemoryObserver(TurnObserver):
    """Adds the recollections of external memories to each message, passes them the turn afterwards, and
    notifies them about learned changes. Create it on the event loop."""

    def __init__(self, memories: Memories, learning: LearningService) -> None:
        self._memories = memories
        self._notifier = ChangeNotifier(learning, self._notify_change)

    async def _notify_change(self, row: LedgerRow) -> None:
        target = row.item if row.kind == "memory" else f"skill:{row.item}"
        metadata = {**row.origin.metadata(), "ledger_id": str(row.id)}
        metadata |= _HERMES_ORIGINS.get(row.origin.write_origin, {})
        await self._memories.on_memory_write(row.action, target, row.after or row.before, metadata)

    async def before(self, session: Session, message: Message) -> Message:
        """Add the memories' recollections to a message."""
        # so that the memories know the changes learned a moment ago
        await self._notifier.wait_for_pending(_BEFORE_TURN_S)
        turn = session.log.live.last_turn + 1
        await self._memories.notify_turn_start(turn, message.text, model=session.model.model)
        recalled = await self._memories.prefetch(message.text, session.id)
        note = "\n\n".join(filter(None, (message.note, recalled)))
        return msgspec.structs.replace(message, note=note) if recalled else message

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Pass the turn's messages to the memories."""
        if user_text := session.log.live.last_user_text():
            rows = [to_dict(row) for row in session.log.messages]
            await self._memories.sync_turn(user_text, end.text, session.id, rows)

    async def aclose(self) -> None:
        """Wait for pending notifications, then shut the memories down."""
        await self._notifier.wait_for_pending(None)
        await self._memories.shutdown()


def notify_skill_changes(hooks: Hooks, learning: LearningService) -> ChangeNotifier | None:
    """Notify the plugins' hooks about each skill that is created, changed or removed. Returns None if there
    are no such hooks."""
    if not hooks.has(_SKILL_HOOK):
        return None

    async def notify(row: LedgerRow) -> None:
        if row.kind != "skill":
            return
        origin = row.origin
        await hooks.call_all(
            _SKILL_HOOK,
            action=_HOOK_ACTIONS.get(row.action, "patched"),
            skill_name=row.item,
            provenance="local" if origin.write_origin == "user" else "agent_created",
            session_id=origin.parent_session_id or origin.session_id,
            task_id=origin.task_id,
            use_count=None,
            reused=None,
            reuse_after_patch=None,
        )

    return ChangeNotifier(learning, notify)


@asynccontextmanager
async def connect_plugins(plugins: LoadedPlugins | None, learning: LearningService) -> AsyncGenerator[None]:
    """Connect plugins to a learning service: offer their skills and notify their memories about changes.

    At the end, wait for pending notifications and close the plugins.
    """
    observer: MemoryObserver | None = None
    skill_notifier: ChangeNotifier | None = None
    try:
        if plugins is not None:
            offer_skills(plugins, learning)
            observer = MemoryObserver(plugins.memories, learning) if plugins.memories else None
            skill_notifier = notify_skill_changes(plugins.hooks, learning)
        yield
    finally:
        if skill_notifier is not None:
            await skill_notifier.wait_for_pending(None)
        if observer is not None:
            await observer.aclose()
        if plugins is not None:
            plugins.close()


def load_home_plugins(home: Home, settings: Settings) -> LoadedPlugins | None:
    """Load the plugins that a home enables, without a model to ask. Returns None if it enables none."""
    return parts.load(parts.PluginNeeds(home, settings, Path.cwd(), (), parts.no_model))


def offer_skills(plugins: LoadedPlugins, learning: LearningService) -> None:
    """Add the plugins' skills to the library, with the plugin's description or else the skill's own."""
    for skill in plugins.skills:
        description = skill.description
        try:
            text = disk.read_text(skill.folder / "SKILL.md") or ""
            description = description or skill_format.name_and_description(text)[1]
        except WhetError:
            continue  # the library reports the problem when the skill is read
        learning.library.offer(skill.name, skill.folder, f"plugin {skill.plugin}", description)
