"""Host many conversations in one process: open a session when a message arrives, run its turns one at a time,
and close it when it is idle.

For interfaces that serve several people or programs at once. This module does not know where messages come
from or where answers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import InboxEntry, Session, TurnObserver, receipt_of
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.session_parts import NO_EXTRAS, Principal, SessionExtras
from whet.app.conversations.session_pool import SessionPool, SessionSlot
from whet.app.conversations.sessions import SessionOpener
from whet.app.services import Services
from whet.contract.errors import WhetError
from whet.contract.events import Emit, EndReason, TurnEnd
from whet.contract.messages import ImagePart, TextOrigin, Usage
from whet.contract.protocols import Person
from whet.contract.tools import Tool
from whet.store import sessions, turns
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.transcript import TurnRecord

Busy = Literal["steer", "queue", "refuse"]
"""How a message that arrives during a turn is handled: the turn reads it before its next step ("steer"), it
waits for the turn's end ("queue"), or it is refused ("refuse")."""


def no_begin() -> None:
    """Do nothing when a turn begins to run."""


def no_end(turn: TurnRecord, reason: EndReason, text: str) -> TransactionWork:
    """Add no writes to a turn's last transaction."""
    return queue_nothing


class TurnWrites(msgspec.Struct, frozen=True):
    """Extra writes for a turn, made in its own transactions.

    `on_stored` runs in the transaction that stores the person's message, so an inbox entry is removed exactly
    when the transcript has the message. `on_end` receives the turn, its reason and the answer, and returns
    the writes for the transaction that stores the end marker, so an answer is in an outbox exactly when the
    turn has ended. `on_begin` is called when the turn runs and can take messages. `row` is the message's
    number if it is an accepted message, else 0.
    """

    on_stored: TransactionWork = queue_nothing
    on_end: Callable[[TurnRecord, EndReason, str], TransactionWork] = no_end
    on_begin: Callable[[], None] = no_begin
    row: int = 0


NO_WRITES = TurnWrites()


def no_extras(session_id: str) -> SessionExtras:
    """Add nothing to a session."""
    return NO_EXTRAS


class TurnWritesObserver(TurnObserver):
    """Makes the submitter's extra writes in the transaction that ends a turn."""

    def __init__(self) -> None:
        self.by_session: dict[str, TurnWrites] = {}

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Return the extra writes of the session's turn."""
        return self.by_session.get(session.id, NO_WRITES).on_end(turn, reason, session.last_answer)


class SessionHost:
    """The conversations of one process. `people` is the Person that the program was started with.

    At most `max_turns` turns run at a time; further requests wait. A session is closed `idle_after_s` after
    its last use, or earlier if more than `max_open` are open. `furnish` returns the parts that the interface
    adds to each session when it is opened, new or stored. Used on one event loop.
    """

    def __init__(
        self,
        opener: SessionOpener,
        people: PersonRouter,
        *,
        idle_after_s: float = 60.0,
        max_open: int = 200,
        max_turns: int = 200,
        furnish: Callable[[str], SessionExtras] = no_extras,
    ) -> None:
        self.opener = opener
        self.services: Services = opener.services
        self._furnish = furnish
        self._people = people
        people.root_of = opener.services.gate.get().root_of
        self._turn_slots = asyncio.Semaphore(max_turns)
        self._writes = TurnWritesObserver()
        self._pool = SessionPool(
            opener, self._extras, idle_after_s=idle_after_s, max_open=max(max_open, max_turns)
        )
        self._closing = False

    def add_tools(self, tools_for: Callable[[str], Sequence[Tool]]) -> None:
        """Add another interface's tools to the sessions that are opened from now on."""
        furnish_others = self._furnish

        def furnish(session_id: str) -> SessionExtras:
            extras = furnish_others(session_id)
            return msgspec.structs.replace(extras, tools=(*extras.tools, *tools_for(session_id)))

        self._furnish = furnish

    @property
    def is_closing(self) -> bool:
        """Whether the program is ending and takes no more messages."""
        return self._closing

    @property
    def open_count(self) -> int:
        """The number of sessions in memory."""
        return sum(slot.session is not None for slot in self._pool)

    @property
    def running(self) -> list[str]:
        """The ids of the sessions that are running a turn."""
        return [slot.session_id for slot in self._pool if slot.turn is not None]

    async def new_session(  # noqa: PLR0913 - each option is independent
        self,
        *,
        title: str = "",
        private: bool = False,
        warm: str = "",
        leaving: str = "",
        source: str = "",
        profile: str = "",
        workspace: Path | None = None,
        tools: Sequence[Tool] = (),
        session_id: str = "",
    ) -> str:
        """Store a new session and return its id.

        If `leaving` is a session's id, the new session belongs to the same conversation and takes over its
        context engine, and the old session is closed. `profile` is the person whose memory it reads and
        writes ("" for the owner), `source` is the interface, `tools` are additional tools, and `session_id`
        is a new id from the interface. Raises WhetError.
        """
        self._refuse_if_closing()
        principal = Principal(profile, source, workspace, tools)
        extras = self._extras(session_id or self.services.clock.new_id())
        if not leaving:
            await self._pool.make_room()
            session = await self.opener.new_session(
                title=title, private=private, warm=warm, whose=principal, extras=extras
            )
            self._pool.add(session)
            return session.id
        async with self._pool.acquire(leaving) as slot:
            old = await self._pool.load(slot)
            session = await self.opener.new_session(
                title=title, private=private, warm=warm, whose=principal, leaving=old, extras=extras
            )
            await self._pool.release(slot)
        self._pool.add(session)
        return session.id

    async def submit(  # noqa: PLR0913 - each option is independent
        self,
        session_id: str,
        text: str | None,
        images: Sequence[ImagePart] = (),
        *,
        emit: Emit,
        person: Person | None = None,
        busy: Busy = "queue",
        writes: TurnWrites = NO_WRITES,
        origin: TextOrigin = "",
    ) -> TurnEnd | None:
        """Run a turn and return its end, or None if the running turn took the text.

        If `text` is None, an unfinished turn is resumed. Messages for one session are handled in the order of
        the calls. A message that a running turn took but did not read gets a turn of its own after it.
        `person` answers the turn's questions, and `origin` is the text's. If the caller is cancelled, the
        turn is cancelled; after a call of `cancel` the end's reason is "cancelled". Raises NotFound if the
        session does not exist or there is nothing to resume, WhetError if a turn is running and `busy` is
        "refuse", and StoreError.
        """
        self._refuse_if_closing()
        slot = self._pool.get(session_id)
        if slot is not None and slot.turn is not None and busy != "queue":
            if busy == "refuse" or text is None or slot.session is None:
                raise WhetError("a turn is running in this session", hint="wait for its end, or cancel it")
            # without the note on time and folder, which the turn's first message has
            message = msgspec.structs.replace(slot.session.user_message(text, images, origin), note="")
            slot.session.inbox.add(InboxEntry(message, writes.on_stored, row=writes.row))
            return None
        async with self._pool.acquire(session_id) as slot, self._turn_slots:
            self._refuse_if_closing()
            was_open = slot.session is not None
            session = await self._pool.load(slot)
            if was_open:
                await session.log.writer.refresh()  # the message's note names the folder of the next command
            self._people.connect(session_id, person)
            self._writes.by_session[session_id] = writes
            try:
                incoming = None
                if text is not None:
                    on_stored = writes.on_stored
                    if not session.log.session.title:
                        on_stored = _add_title_write(session_id, text, on_stored)
                    incoming = InboxEntry(session.user_message(text, images, origin), on_stored)
                return await self._run(slot, session, incoming, emit, is_fresh=True)
            finally:
                del self._writes.by_session[session_id]
                self._people.connect(session_id, None)
                self.services.reviews.get().wake()

    def cancel(self, session_id: str) -> bool:
        """Cancel the running turn together with the messages that it has not read yet. Returns False if no
        turn is running."""
        slot = self._pool.get(session_id)
        if slot is None or slot.turn is None:
            return False
        return slot.turn.cancel()

    def is_running(self, session_id: str) -> bool:
        """Return whether a turn of this session is running."""
        slot = self._pool.get(session_id)
        return slot is not None and slot.turn is not None

    def find_open(self, session_id: str) -> Session | None:
        """Return a session that is in memory, or None; it may be running a turn."""
        slot = self._pool.get(session_id)
        return slot.session if slot is not None else None

    async def switch_model(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer a session from its next request on; "" means the
        configured model.

        The caller must hold the session (see `using`). The choice is stored with the session and inherited
        by later sessions of its conversation. Durable on return. Raises WhetError.
        """
        await self.opener.models.choose(session, model)

    async def open_session(self, session_id: str) -> Session:
        """Open a session; it stays open until it is idle. Waits for a running turn. Raises NotFound."""
        async with self.using(session_id) as session:
            return session

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncGenerator[Session]:
        """Hold a session between its turns, for work such as a compaction. Raises NotFound."""
        async with self._pool.acquire(session_id) as slot:
            yield await self._pool.load(slot)

    async def release(self, session_id: str) -> None:
        """Close a session that is in memory; its next use opens it again. Waits for a running turn."""
        async with self._pool.acquire(session_id) as slot:
            await self._pool.release(slot)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Accept no more messages, wait up to `drain_s` for running turns, cancel the others, and close every
        session.

        Does not close the app.
        """
        self._closing = True
        turns = [slot.turn for slot in self._pool if slot.turn is not None]
        if turns and drain_s > 0:
            await asyncio.wait(turns, timeout=drain_s)
        for turn in turns:
            turn.cancel()
        if turns:
            await asyncio.wait(turns)
        await self._pool.aclose()

    async def _run(
        self, slot: SessionSlot, session: Session, incoming: InboxEntry | None, emit: Emit, *, is_fresh: bool
    ) -> TurnEnd:
        """Run a turn, and further turns for messages that came too late for it."""
        try:
            while True:
                end = await self._run_turn(slot, session, incoming, emit, is_fresh=is_fresh)
                is_fresh = False
                if end.reason == "cancelled":
                    self._drop(session.inbox.take_back())
                    return end
                if not session.inbox:
                    return end
                incoming = session.inbox.take()
        finally:
            session.inbox.take_back()

    def _drop(self, entries: Sequence[InboxEntry]) -> None:
        """Remove accepted messages that a cancelled turn did not read. If the program is ending, keep them
        for the session's next turn."""
        ids = [entry.row for entry in entries if entry.row]
        if ids and not self._closing:
            self.services.database.submit(lambda db: turns.remove_accepted(db, ids))

    async def _run_turn(
        self, slot: SessionSlot, session: Session, incoming: InboxEntry | None, emit: Emit, *, is_fresh: bool
    ) -> TurnEnd:
        began_s = session.clock.monotonic_s()
        message = None if incoming is None else incoming.message
        on_stored = queue_nothing if incoming is None else incoming.on_stored
        turn = slot.turn = asyncio.create_task(
            run_turn(session, message, emit, on_stored=on_stored, is_fresh=is_fresh)
        )
        self._writes.by_session.get(session.id, NO_WRITES).on_begin()
        try:
            return await wait_for_end(turn, session, began_s, emit)
        finally:
            slot.turn = None

    def _extras(self, session_id: str) -> SessionExtras:
        """Return a session's extra parts, with the connected person and the submitter's writes."""
        extras = self._furnish(session_id)
        return msgspec.structs.replace(
            extras,
            session_id=session_id,
            person=self._people.person_at(session_id),
            observers=(*extras.observers, self._writes),
        )

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise WhetError("the program is ending and takes no more messages", hint="try again shortly")


def _add_title_write(session_id: str, text: str, on_stored: TransactionWork) -> TransactionWork:
    """Return writes that also title the session by its first message."""

    def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
        jobs = on_stored(connection)
        turns.title_session(connection, session_id, sessions.make_title(text))
        return jobs

    return work


async def wait_for_end(turn: asyncio.Task[TurnEnd], session: Session, began_s: float, emit: Emit) -> TurnEnd:
    """Wait for a turn's end and return it. For a cancelled turn, emit and return an end with that reason. If
    the caller is cancelled, cancel the turn."""
    try:
        await asyncio.wait({turn})
    except asyncio.CancelledError:
        turn.cancel()
        await _wait_for_task(turn)
        raise
    if not turn.cancelled():
        return turn.result()
    took_s = session.clock.monotonic_s() - began_s
    end = TurnEnd(
        session_id=session.id,
        turn_id="",
        reason="cancelled",
        text="",
        steps=0,
        usage=Usage(),
        duration_s=took_s,
        receipt=receipt_of(session, session.log.live.turn_number),
    )
    emit(end)
    return end


async def _wait_for_task(turn: asyncio.Task[TurnEnd]) -> None:
    """Wait until a cancelled turn has stored its end, even if the waiter is cancelled meanwhile."""
    while not turn.done():
        try:
            await asyncio.wait({turn})
        except asyncio.CancelledError:
            continue
