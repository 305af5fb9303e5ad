"""Many conversations in one process: each opened when it is spoken to, one turn at a time, let go when idle.

For interfaces that serve several people or programs at once. It does not know where messages come from, nor
where answers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import InboxEntry, Session, TurnObserver, receipt_of
from whet.app.build import App
from whet.app.people import Switchboard
from whet.app.session_parts import NO_EXTRAS, Principal, SessionExtras
from whet.app.session_pool import SessionPool, SessionSlot
from whet.contract.errors import WhetError
from whet.contract.events import Emit, EndReason, TurnEnd
from whet.contract.messages import ImagePart, Message, Usage
from whet.contract.protocols import Person
from whet.contract.tools import Tool
from whet.store import sessions
from whet.store.jobs import AtEnd, nothing
from whet.store.transcript import TurnRecord

Busy = Literal["steer", "queue", "refuse"]
"""What becomes of a message while a turn runs: it is read before that turn's next step, or after it, or not
taken at all."""


def no_begin() -> None:
    """Do nothing when a turn begins to run."""


def no_end(turn: TurnRecord, reason: EndReason, text: str) -> AtEnd:
    """Do nothing more in a turn's last transaction."""
    return nothing


class Receipt(msgspec.Struct, frozen=True):
    """What else is stored with a turn, in its own transactions: `stored` together with the person's message,
    `ended` together with the end marker (`text` is the answer). So an inbox is crossed off exactly when the
    transcript has the message, and an answer is in an outbox exactly when the turn has ended. `begun` is
    called when the turn runs, so that messages can be given to it."""

    stored: AtEnd = nothing
    ended: Callable[[TurnRecord, EndReason, str], AtEnd] = no_end
    begun: Callable[[], None] = no_begin


NO_RECEIPT = Receipt()


def plain(session_id: str) -> SessionExtras:
    """Give nothing more to a session."""
    return NO_EXTRAS


class ReceiptObserver(TurnObserver):
    """Does what the submitter of a turn wants done in the transaction that ends it."""

    def __init__(self) -> None:
        self.by_session: dict[str, Receipt] = {}

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Give what the receipt of the session's turn says."""
        return self.by_session.get(session.id, NO_RECEIPT).ended(turn, reason, session.last_answer)


class SessionHost:
    """The conversations of one app. `people` is the Person that the app was started with.

    At most `max_turns` turns run at a time and `max_open` sessions are open; what comes more waits. A
    session is let go `idle_after_s` after its last use. `furnish` gives what each session gets of its
    interface when it is opened, new or again. Used on one event loop.
    """

    def __init__(
        self,
        app: App,
        people: Switchboard,
        *,
        idle_after_s: float = 60.0,
        max_open: int = 200,
        max_turns: int = 200,
        furnish: Callable[[str], SessionExtras] = plain,
    ) -> None:
        self.app = app
        self._furnish = furnish
        self._people = people
        people.root_of = app.gate.root_of
        self._turns = asyncio.Semaphore(max_turns)
        self._receipts = ReceiptObserver()
        self._pool = SessionPool(
            app, self._extras, idle_after_s=idle_after_s, max_open=max(max_open, max_turns)
        )
        self._closing = False

    def lend(self, extras: Callable[[str], SessionExtras]) -> None:
        """Have another interface of the process furnish sessions too: its tools come besides."""
        before = self._furnish

        def furnish(session_id: str) -> SessionExtras:
            given, more = before(session_id), extras(session_id)
            return msgspec.structs.replace(given, tools=(*given.tools, *more.tools))

        self._furnish = furnish

    @property
    def open_count(self) -> int:
        """How many sessions are in memory."""
        return sum(slot.session is not None for slot in self._pool)

    @property
    def running(self) -> list[str]:
        """The sessions whose turn runs now."""
        return [slot.session_id for slot in self._pool if slot.turn is not None]

    async def new_session(  # noqa: PLR0913 - each is a fact of a session's own
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
        """Store a new session and give its id; after `leaving` (an id) it is of the same conversation, takes
        its context engine over, and the old one is let go. `profile` is whose memory it reads and writes, ""
        the owner's; `source` the interface; `tools` what it has besides the process's,
        `session_id` a new id that the interface has made. Raises WhetError."""
        self._refuse_if_closing()
        whose = Principal(profile, source, workspace, tools)
        extras = self._extras(session_id or self.app.clock.new_id())
        if not leaving:
            await self._pool.make_room()
            session = await self.app.new_session(
                title=title, private=private, warm=warm, whose=whose, extras=extras
            )
            self._pool.keep(session)
            return session.id
        async with self._pool.held(leaving) as slot:
            old = await self._pool.opened(slot)
            session = await self.app.new_session(
                title=title, private=private, warm=warm, whose=whose, leaving=old, extras=extras
            )
            await self._pool.let_go(slot)
        self._pool.keep(session)
        chosen = old.log.session
        if chosen.model_chosen and chosen.provider == session.model.provider:
            async with self.using(session.id) as session:
                await self.switch_model(session, chosen.model)
        return session.id

    async def submit(  # noqa: PLR0913 - one for each thing that interfaces differ in
        self,
        session_id: str,
        text: str | None,
        images: Sequence[ImagePart] = (),
        *,
        emit: Emit,
        person: Person | None = None,
        busy: Busy = "queue",
        receipt: Receipt = NO_RECEIPT,
    ) -> TurnEnd | None:
        """Run a turn and give its end; None where the text was taken by the turn that runs already.

        `text` None resumes an unfinished turn. Messages for one session are taken in the order of the calls.
        What a running turn took and came to its end without reading is a turn of its own after it. `person`
        answers the turn's questions. A cancel of the caller cancels the turn; one by `cancel` gives an end
        with the reason cancelled. Raises NotFound for the session, and for a resume where nothing is
        unfinished; WhetError where a turn runs and `busy` is refuse; StoreError.
        """
        self._refuse_if_closing()
        slot = self._pool.get(session_id)
        if slot is not None and slot.turn is not None and busy != "queue":
            if busy == "refuse" or text is None or slot.session is None:
                raise WhetError("a turn is running in this session", hint="wait for its end, or cancel it")
            slot.session.inbox.put(_message(slot.session, text, images), receipt.stored)
            return None
        async with self._pool.held(session_id) as slot, self._turns:
            self._refuse_if_closing()
            session = await self._pool.opened(slot)
            self._people.connect(session_id, person)
            self._receipts.by_session[session_id] = receipt
            try:
                incoming = None
                if text is not None:
                    incoming = InboxEntry(session.user_message(text, images), receipt.stored)
                if text and not session.log.session.title:
                    await session.log.details.set_title(sessions.title_of(text))
                return await self._run(slot, session, incoming, emit)
            finally:
                del self._receipts.by_session[session_id]
                self._people.connect(session_id, None)
                self.app.reviews.kick()

    def cancel(self, session_id: str) -> bool:
        """Cancel the turn that runs, with what it had been given and not read yet; False without one."""
        slot = self._pool.get(session_id)
        if slot is None or slot.turn is None:
            return False
        return slot.turn.cancel()

    def is_running(self, session_id: str) -> bool:
        """Whether a turn of this session runs now."""
        slot = self._pool.get(session_id)
        return slot is not None and slot.turn is not None

    def opened(self, session_id: str) -> Session | None:
        """Give a session as it is in memory, None where it is not; its turn may run."""
        slot = self._pool.get(session_id)
        return slot.session if slot is not None else None

    async def switch_model(self, session: Session, model: str) -> None:
        """Have another model of the same provider answer a session that one has to oneself from its next
        request on, "" the configured one; stored with the session, and what follows it in its conversation
        has it too. Durable on return. Raises WhetError."""
        await self.app.sessions.answer_with(session, model)
        info = session.model
        await session.log.details.choose_model(info.provider, info.model, chosen=bool(model))

    async def session(self, session_id: str) -> Session:
        """Open a session; it stays open until it is idle. Waits for a turn that runs. Raises NotFound."""
        async with self.using(session_id) as session:
            return session

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncGenerator[Session]:
        """Have a session to oneself between its turns, for work such as a compaction. Raises NotFound."""
        async with self._pool.held(session_id) as slot:
            yield await self._pool.opened(slot)

    async def let_go(self, session_id: str) -> None:
        """Let a session go that is in memory: its next use opens it again. Waits for a turn that runs."""
        if self._pool.get(session_id) is not None:
            async with self._pool.held(session_id) as slot:
                await self._pool.let_go(slot)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Take nothing more, give running turns `drain_s` to end, cancel what is left, let every session go.

        The app stays open.
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
        self, slot: SessionSlot, session: Session, incoming: InboxEntry | None, emit: Emit
    ) -> TurnEnd:
        """Run a turn, and further ones for what was given to it too late."""
        try:
            while True:
                end = await self._turn(slot, session, incoming, emit)
                if end.reason == "cancelled" or not session.inbox:
                    return end
                incoming = session.inbox.take()
        finally:
            session.inbox.take_back()

    async def _turn(
        self, slot: SessionSlot, session: Session, incoming: InboxEntry | None, emit: Emit
    ) -> TurnEnd:
        began_s = session.clock.monotonic_s()
        message, receipt = (None, nothing) if incoming is None else (incoming.message, incoming.receipt)
        turn = slot.turn = asyncio.create_task(run_turn(session, message, emit, receipt=receipt))
        self._receipts.by_session.get(session.id, NO_RECEIPT).begun()
        try:
            return await end_of(turn, session, began_s, emit)
        finally:
            slot.turn = None

    def _extras(self, session_id: str) -> SessionExtras:
        """Have a session's questions go to whoever is there, and its turns' ends do what was asked for."""
        given = self._furnish(session_id)
        return msgspec.structs.replace(
            given,
            session_id=session_id,
            person=self._people.at(session_id),
            observers=(*given.observers, self._receipts),
        )

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise WhetError("the program is ending and takes no more messages", hint="try again shortly")


def _message(session: Session, text: str, images: Sequence[ImagePart]) -> Message:
    """Make what is said during a turn: without the note on time and folder, which the turn began with."""
    return msgspec.structs.replace(session.user_message(text, images), note="")


async def end_of(turn: asyncio.Task[TurnEnd], session: Session, began_s: float, emit: Emit) -> TurnEnd:
    """Wait for a turn's end; one that was cancelled has one too. A cancel of the caller cancels it."""
    try:
        await asyncio.wait({turn})
    except asyncio.CancelledError:
        turn.cancel()
        await _settled(turn)
        raise
    if not turn.cancelled():
        return turn.result()
    took_s = session.clock.monotonic_s() - began_s
    done = receipt_of(session, session.log.live.turn_number)
    end = TurnEnd(session.id, "", "cancelled", "", 0, Usage(), took_s, receipt=done)
    emit(end)
    return end


async def _settled(turn: asyncio.Task[TurnEnd]) -> None:
    """Wait for a cancelled turn to store its end, however often the waiter is cancelled meanwhile."""
    while not turn.done():
        try:
            await asyncio.wait({turn})
        except asyncio.CancelledError:
            continue
