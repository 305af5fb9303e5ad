"""Keep sessions in memory while they are used: load them on demand, release them after some idle time.

The next use of a released session reads it from the store. The pool never starts or ends a turn; it only
holds the task of a running one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice

from whet.agent.session import Session
from whet.app.conversations.session_parts import SessionExtras
from whet.app.conversations.sessions import SessionOpener
from whet.contract.events import TurnEnd


class SessionSlot:
    """The entry of one conversation: its session while it is open, its running turn, and its users."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.lock: asyncio.Lock = asyncio.Lock()  # its holder has the session exclusively
        self.users = 0
        self.session: Session | None = None
        self.turn: asyncio.Task[TurnEnd] | None = None
        self.expiry: asyncio.TimerHandle | None = None


class SessionPool:
    """The sessions of one process that are in memory, at most `max_open` of them unless more are in use.

    A session is released `idle_after_s` after its last use. `extras` returns the parts that each session
    is opened with.
    """

    def __init__(
        self,
        opener: SessionOpener,
        extras: Callable[[str], SessionExtras],
        *,
        idle_after_s: float,
        max_open: int,
    ) -> None:
        self._opener = opener
        self._extras = extras
        self._idle_after_s = idle_after_s
        self._max_open = max_open
        self._slots: dict[str, SessionSlot] = {}
        self._release_tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def __iter__(self) -> Iterator[SessionSlot]:
        """Iterate over a copy of the slots, the one idle for longest first."""
        return iter(list(self._slots.values()))

    def get(self, session_id: str) -> SessionSlot | None:
        """Return a conversation's slot, or None."""
        return self._slots.get(session_id)

    @asynccontextmanager
    async def acquire(self, session_id: str) -> AsyncGenerator[SessionSlot]:
        """Lock a session's slot inside the context. Its expiry starts when the last user has left."""
        slot = self._slots.setdefault(session_id, SessionSlot(session_id))
        slot.users += 1
        _stop_expiry(slot)
        try:
            async with slot.lock:
                yield slot
        finally:
            slot.users -= 1
            self._start_expiry(slot)

    async def load(self, slot: SessionSlot) -> Session:
        """Return the session of a locked slot; open it if it is not in memory. Raises NotFound."""
        if slot.session is None:
            await self.make_room()
            extras = self._extras(slot.session_id)
            slot.session = await self._opener.open_session(slot.session_id, extras=extras)
        return slot.session

    async def make_room(self) -> None:
        """Release the sessions that have been idle for longest, so that one more stays within the limit."""
        open_count = sum(slot.session is not None for slot in self)
        idle_slots = (slot for slot in self if not slot.users and slot.session is not None)
        for slot in list(islice(idle_slots, max(0, open_count + 1 - self._max_open))):
            await self._release_if_idle(slot)

    def add(self, session: Session) -> None:
        """Add a session that was just created."""
        slot = self._slots[session.id] = SessionSlot(session.id)
        slot.session = session
        self._start_expiry(slot)

    async def release(self, slot: SessionSlot) -> None:
        """Release the session of a locked slot; the next use opens it again."""
        if slot.session is not None:
            try:
                await self._opener.close_session(slot.session)
            finally:
                slot.session = None

    async def aclose(self) -> None:
        """Release every session as soon as its user is done with it.

        The caller must not acquire sessions from now on.
        """
        self._closing = True
        for slot in self:
            _stop_expiry(slot)
            async with slot.lock:
                await self.release(slot)
        self._slots.clear()
        if self._release_tasks:
            await asyncio.wait(self._release_tasks)

    def _start_expiry(self, slot: SessionSlot) -> None:
        if slot.users or self._closing:
            return
        if slot.session is None:
            self._slots.pop(slot.session_id, None)
            return
        loop = asyncio.get_running_loop()
        slot.expiry = loop.call_later(self._idle_after_s, self._expire, slot)
        # the session that has been idle for longest is first
        self._slots[slot.session_id] = self._slots.pop(slot.session_id)

    def _expire(self, slot: SessionSlot) -> None:
        slot.expiry = None
        task = asyncio.create_task(self._release_if_idle(slot))
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _release_if_idle(self, slot: SessionSlot) -> None:
        async with slot.lock:
            if slot.users or self._closing:
                return
            helpers = self._opener.helpers.created
            if helpers is not None and helpers.runs_for(slot.session_id):
                # the helper needs the session for its grants and to reach the person
                return self._start_expiry(slot)
            _stop_expiry(slot)
            await self.release(slot)
            if not slot.users and self._slots.get(slot.session_id) is slot:
                del self._slots[slot.session_id]


def _stop_expiry(slot: SessionSlot) -> None:
    if slot.expiry is not None:
        slot.expiry.cancel()
        slot.expiry = None
