"""Many conversations in one process: each opened when it is spoken to, one turn at a time, let go when idle.

For interfaces that serve several people or programs at once. A conversation that nobody has spoken to for a
while costs nothing in memory: it is read again from the store. It does not know where messages come from,
nor where answers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.people import Switchboard
from whet.app.whose import Principal
from whet.contract.errors import WhetError
from whet.contract.events import Emit, EndReason, TurnEnd
from whet.contract.messages import ImagePart, Message, Usage
from whet.contract.protocols import Person
from whet.contract.tools import Tool
from whet.store import sessions
from whet.store.jobs import AtEnd, Queued, nothing
from whet.store.transcript import TurnRecord

Busy = Literal["steer", "queue", "refuse"]
"""What becomes of a message while a turn runs: it is read before that turn's next step, or after it, or not
taken at all."""


def no_end(turn: TurnRecord, reason: EndReason, text: str) -> AtEnd:
    """Do nothing more in a turn's last transaction."""
    return nothing


class Receipt(msgspec.Struct, frozen=True):
    """What else is stored with a turn, in its own transactions: `stored` together with the person's message,
    `ended` together with the end marker (`text` is the answer). So an inbox is crossed off exactly when the
    transcript has the message, and an answer is in an outbox exactly when the turn has ended."""

    stored: AtEnd = nothing
    ended: Callable[[TurnRecord, EndReason, str], AtEnd] = no_end


_NO_RECEIPT = Receipt()


def as_is(session: Session) -> None:
    """Leave an opened session as it is."""


class _Slot:
    """One conversation's place: its session while it is open, and who waits for it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.lock = asyncio.Lock()  # whoever holds it has the session to himself
        self.users = 0
        self.session: Session | None = None
        self.turn: asyncio.Task[TurnEnd] | None = None
        self.receipt = _NO_RECEIPT
        self.expiry: asyncio.TimerHandle | None = None


class SessionHost:
    """The conversations of one app. `people` is the Person that the app was started with.

    At most `max_turns` turns run at a time and `max_open` sessions are open; what comes more waits. A
    session is let go `idle_after_s` after its last use. `furnish` is called with each session that is opened,
    new or again, before anything is done with it. Used on one event loop.
    """

    def __init__(
        self,
        app: App,
        people: Switchboard,
        *,
        idle_after_s: float = 60.0,
        max_open: int = 200,
        max_turns: int = 200,
        furnish: Callable[[Session], None] = as_is,
    ) -> None:
        self.app = app
        self._furnish = furnish
        self._people = people
        people.root_of = app.gate.root_of
        self._idle_after_s = idle_after_s
        self._max_open = max(max_open, max_turns)
        self._turns = asyncio.Semaphore(max_turns)
        self._slots: dict[str, _Slot] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def open_count(self) -> int:
        """How many sessions are in memory."""
        return sum(slot.session is not None for slot in self._slots.values())

    @property
    def running(self) -> list[str]:
        """The sessions whose turn runs now."""
        return [slot.session_id for slot in self._slots.values() if slot.turn is not None]

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
    ) -> str:
        """Store a new session and give its id; after `leaving` (an id) it is of the same conversation, takes
        its context engine over, and the old one is let go. `profile` is whose memory it reads and writes, ""
        the owner's; `source` the interface; `tools` what it has besides the process's. Raises WhetError."""
        self._refuse_if_closing()
        whose = Principal(profile, source, workspace, tools)
        if not leaving:
            await self._make_room()
            session = await self.app.new_session(title=title, private=private, warm=warm, whose=whose)
            self._keep(session)
            return session.id
        async with self.using(leaving) as old:
            session = await self.app.new_session(
                title=title, private=private, warm=warm, whose=whose, leaving=old
            )
            await self._let_go(self._slots[leaving])
        self._keep(session)
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
        receipt: Receipt = _NO_RECEIPT,
    ) -> TurnEnd | None:
        """Run a turn and give its end; None where the text was taken by the turn that runs already.

        `text` None resumes an unfinished turn. Messages for one session are taken in the order of the calls.
        What a running turn took and came to its end without reading is a turn of its own after it. `person`
        answers the turn's questions. A cancel of the caller cancels the turn; one by `cancel` gives an end
        with the reason cancelled. Raises NotFound for the session, and for a resume where nothing is
        unfinished; WhetError where a turn runs and `busy` is refuse; StoreError.
        """
        self._refuse_if_closing()
        slot = self._slots.get(session_id)
        if slot is not None and slot.turn is not None and busy != "queue":
            if busy == "refuse" or text is None or slot.session is None:
                raise WhetError("a turn is running in this session", hint="wait for its end, or cancel it")
            slot.session.inbox.append(_message(slot.session, text, images))
            slot.session.log.receipts.append(receipt.stored)
            return None
        async with self._held(session_id) as slot, self._turns:
            self._refuse_if_closing()
            session = await self._opened(slot)
            self._people.connect(session_id, person)
            slot.receipt = receipt
            try:
                incoming = None if text is None else session.user_message(text, images)
                if text and not session.log.session.title:
                    await session.log.set_title(sessions.title_of(text))
                return await self._run(slot, session, incoming, emit)
            finally:
                slot.receipt = _NO_RECEIPT
                self._people.connect(session_id, None)
                self.app.reviews.kick()

    def cancel(self, session_id: str) -> bool:
        """Cancel the turn that runs, with what it had been given and not read yet; False without one."""
        slot = self._slots.get(session_id)
        if slot is None or slot.turn is None:
            return False
        return slot.turn.cancel()

    def is_running(self, session_id: str) -> bool:
        """Whether a turn of this session runs now."""
        slot = self._slots.get(session_id)
        return slot is not None and slot.turn is not None

    def opened(self, session_id: str) -> Session | None:
        """Give a session as it is in memory, None where it is not; its turn may run."""
        slot = self._slots.get(session_id)
        return slot.session if slot is not None else None

    async def switch_model(self, session: Session, model: str) -> None:
        """Have another model of the same provider answer a session that one has to oneself from its next
        request on, "" the configured one; stored with the session, and what follows it in its conversation
        has it too. Durable on return. Raises WhetError."""
        await self.app.answer_with(session, model)
        info = session.model
        await session.log.choose_model(info.provider, info.model, chosen=bool(model))

    async def session(self, session_id: str) -> Session:
        """Open a session; it stays open until it is idle. Waits for a turn that runs. Raises NotFound."""
        async with self.using(session_id) as session:
            return session

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncGenerator[Session]:
        """Have a session to oneself between its turns, for work such as a compaction. Raises NotFound."""
        async with self._held(session_id) as slot:
            yield await self._opened(slot)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Take nothing more, give running turns `drain_s` to end, cancel what is left, let every session go.

        The app stays open.
        """
        self._closing = True
        turns = [slot.turn for slot in self._slots.values() if slot.turn is not None]
        if turns and drain_s > 0:
            await asyncio.wait(turns, timeout=drain_s)
        for turn in turns:
            turn.cancel()
        if turns:
            await asyncio.wait(turns)
        for slot in [*self._slots.values()]:
            if slot.expiry is not None:
                slot.expiry.cancel()
            async with slot.lock:
                await self._let_go(slot)
        self._slots.clear()
        if self._chores:
            await asyncio.wait(self._chores)

    async def _run(self, slot: _Slot, session: Session, incoming: Message | None, emit: Emit) -> TurnEnd:
        """Run a turn, and further ones for what was given to it too late."""
        receipts = session.log.receipts
        if incoming is not None:
            receipts.append(slot.receipt.stored)
        try:
            while True:
                end = await self._turn(slot, session, incoming, emit)
                if end.reason == "cancelled" or not session.inbox:
                    return end
                incoming = session.inbox.popleft()
        finally:
            session.inbox.clear()
            receipts.clear()

    async def _turn(self, slot: _Slot, session: Session, incoming: Message | None, emit: Emit) -> TurnEnd:
        began_s = self.app.clock.monotonic_s()
        turn = slot.turn = asyncio.create_task(run_turn(session, incoming, emit))
        try:
            await asyncio.wait({turn})
        except asyncio.CancelledError:
            turn.cancel()
            await _settled(turn)
            raise
        finally:
            slot.turn = None
        if not turn.cancelled():
            return turn.result()
        took_s = self.app.clock.monotonic_s() - began_s
        end = TurnEnd(session.id, "", "cancelled", "", 0, Usage(), took_s)
        emit(end)
        return end

    @asynccontextmanager
    async def _held(self, session_id: str) -> AsyncGenerator[_Slot]:
        """Give a session's slot, held; when nobody uses it any more it expires."""
        slot = self._slots.setdefault(session_id, _Slot(session_id))
        slot.users += 1
        if slot.expiry is not None:
            slot.expiry.cancel()
            slot.expiry = None
        try:
            async with slot.lock:
                yield slot
        finally:
            slot.users -= 1
            self._rest(slot)

    def _rest(self, slot: _Slot) -> None:
        if slot.users or self._closing:
            return
        if slot.session is None:
            self._slots.pop(slot.session_id, None)
            return
        loop = asyncio.get_running_loop()
        slot.expiry = loop.call_later(self._idle_after_s, self._expire, slot)
        self._slots[slot.session_id] = self._slots.pop(slot.session_id)  # the one longest at rest is first

    def _expire(self, slot: _Slot) -> None:
        slot.expiry = None
        self._do(self._let_go_if_unused(slot))

    async def _let_go_if_unused(self, slot: _Slot) -> None:
        async with slot.lock:
            if slot.users or self._closing:
                return
            if slot.expiry is not None:
                slot.expiry.cancel()
                slot.expiry = None
            await self._let_go(slot)
            if not slot.users and self._slots.get(slot.session_id) is slot:
                del self._slots[slot.session_id]

    async def _let_go(self, slot: _Slot) -> None:
        if slot.session is not None:
            try:
                await self.app.let_go(slot.session)
            finally:
                slot.session = None

    async def _opened(self, slot: _Slot) -> Session:
        if slot.session is None:
            await self._make_room()
            session = self._fitted(slot, await self.app.open_session(slot.session_id))
            chosen = session.log.session
            if chosen.model_chosen and chosen.provider == session.model.provider:
                await self.app.answer_with(session, chosen.model)
            slot.session = session
        return slot.session

    async def _make_room(self) -> None:
        resting = (slot for slot in self._slots.values() if not slot.users and slot.session is not None)
        for slot in [*islice(resting, max(0, self.open_count + 1 - self._max_open))]:
            await self._let_go_if_unused(slot)

    def _keep(self, session: Session) -> None:
        slot = self._slots[session.id] = _Slot(session.id)
        slot.session = self._fitted(slot, session)
        self._rest(slot)

    def _fitted(self, slot: _Slot, session: Session) -> Session:
        """Have a session's questions go to whoever is there, and its turns' ends do what was asked for."""
        self._furnish(session)
        session.person = self._people.at(session.id)
        jobs = session.jobs_at_end

        def at_end(turn: TurnRecord, reason: EndReason) -> AtEnd:
            last = session.log.messages[-1]
            text = last.text if last.role == "assistant" else ""
            queue, also = jobs(turn, reason), slot.receipt.ended(turn, reason, text)

            def work(connection: Any) -> Sequence[Queued]:
                queued = queue(connection)
                also(connection)
                return queued

            return work

        session.jobs_at_end = at_end
        return session

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise WhetError("the program is ending and takes no more messages", hint="try again shortly")


def _message(session: Session, text: str, images: Sequence[ImagePart]) -> Message:
    """Make what is said during a turn: without the note on time and folder, which the turn began with."""
    return msgspec.structs.replace(session.user_message(text, images), note="")


async def _settled(turn: asyncio.Task[TurnEnd]) -> None:
    """Wait for a cancelled turn to store its end, however often the waiter is cancelled meanwhile."""
    while not turn.done():
        try:
            await asyncio.wait({turn})
        except asyncio.CancelledError:
            continue
