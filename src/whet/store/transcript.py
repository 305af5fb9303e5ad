"""Open a session and write its turns: messages, calls, results and ends. A change is durable before it is
visible.

No tool or model is called here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.contract.errors import StoreBusy
from whet.contract.events import EndReason
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput
from whet.sqlite.lane import ScopedWrite
from whet.store import rows, sessions, turns
from whet.store.database import CallStart, StateDatabase
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.live import LiveState, OpenStep, SessionWriter, StaleTranscript, load
from whet.store.sessions import NewSession, SessionRow
from whet.store.turns import ERROR_CHARS, TurnCall, TurnRecord

ReadSession = Callable[[], SessionRow | None]
OnBegin = Callable[[TurnRecord], object]
__all__ = ["OpenCall", "SessionDetails", "Transcript", "TurnRecord"]


def _ignore_turn(turn: TurnRecord) -> None:
    """Do nothing when a turn begins."""


class OpenCall(msgspec.Struct, frozen=True):
    """A call without a result. If `started` is set after a crash, its outcome is unknown.

    `ran` are the arguments that a person wrote in place of the model's. Only the process that runs the call
    knows them.
    """

    call: ToolCall
    step: int
    index: int
    started: bool
    ran: str = ""


class Transcript:
    """An open session, which one task uses to write its turns.

    Only this class and `compactions.py` change its messages. `details` changes its title and other fields,
    and `live` is its state in memory.
    """

    def __init__(self, db: StateDatabase, clock: Clock, state: LiveState) -> None:
        self.live = state
        self.writer: SessionWriter = SessionWriter(db, clock, state)
        self.details: SessionDetails = SessionDetails(self.writer, state)
        self._clock = clock

    @classmethod
    async def create(cls, db: StateDatabase, new: NewSession, clock: Clock) -> Transcript:
        """Store a new session and open it."""

        def work(connection: apsw.Connection) -> LiveState:
            sessions.insert(connection, new, iso(clock.now()))
            return load(connection, new.id)

        return cls(db, clock, await db.append(ScopedWrite(new.id, work)))

    @classmethod
    async def open(cls, db: StateDatabase, session_id: str, clock: Clock) -> Transcript:
        """Open a stored session. Raises NotFound."""
        return cls(db, clock, await db.read(lambda connection: load(connection, session_id)))

    @property
    def session(self) -> SessionRow:
        """The session as it was when it was opened or last changed here."""
        return self.live.session

    @property
    def messages(self) -> list[Message]:
        """The messages that the model sees (the live list of `LiveState`)."""
        return self.live.messages

    async def begin_turn(
        self, message: Message, also: TransactionWork = queue_nothing, on_begin: OnBegin = _ignore_turn
    ) -> TurnRecord:
        """Claim the session and store the user's message and a turn, in one transaction with the work of
        `also`.

        The changes of other processes are read first. A turn that a crash left open is closed as crashed.
        `on_begin` receives the turn once it is stored, even if the waiter was cancelled. Raises StoreBusy
        if another holder has the session.
        """
        await self.drain()
        message = rows.to_storable(message)
        while True:
            try:
                return await self._begin(message, also, on_begin)
            except StaleTranscript:
                await self.writer.reload()

    async def _begin(self, message: Message, also: TransactionWork, on_begin: OnBegin) -> TurnRecord:
        state = self.live
        turn = TurnRecord(
            self.writer.coming_turn or self._clock.new_id(),
            state.session.id,
            state.last_turn + 1,
            iso(self._clock.now()),
        )
        seq, packed = state.next_seq, rows.pack(message, self._clock.unix_ms())

        def work(connection: apsw.Connection) -> None:
            turns.begin_turn(connection, state.key, turn)
            rows.insert_message(connection, state.key, seq, turn.number, packed)
            if also is not queue_nothing:
                also(connection)

        def apply(_: None) -> None:
            state.add(seq, message)
            state.last_turn = turn.number
            state.open_turn = turns.OpenTurn(turn.id, turn.number, turn.started)
            self.writer.coming_turn = ""
            state.step = None
            state.is_shell_current = False
            turn.said.append(message.text)
            on_begin(turn)

        await self.writer.commit_claimed(work, apply)
        return turn

    async def claim_unfinished_turn(self) -> TurnRecord | None:
        """Claim and return the turn that has no end marker and no living holder, or return None."""
        await self.writer.refresh()
        if self.live.open_turn is None or not await self.writer.take_over():
            return None
        state, open_turn = self.live, self.live.open_turn
        return TurnRecord(
            open_turn.id,
            state.session.id,
            open_turn.number,
            open_turn.started,
            steps=open_turn.steps,
            usage=open_turn.usage,
            is_new=False,
            messages=open_turn.messages,
            tool_calls=open_turn.tool_calls,
        )

    async def append_user(
        self, turn: TurnRecord, message: Message, also: TransactionWork = queue_nothing
    ) -> None:
        """Store text that was typed during the turn, in one transaction with the work of `also`."""
        self.live.fold_results()
        message = rows.to_storable(message)
        state = self.live
        seq = state.next_seq
        row = (rows.row_id(state.key, seq), turn.number, *rows.pack(message, self._clock.unix_ms()))

        def apply(_: None) -> None:
            state.add(seq, message)
            state.step = None
            turn.messages += 1
            turn.said.append(message.text)

        await self.writer.append(apply, (rows.MESSAGE, row), also=also)

    async def append_reply(self, turn: TurnRecord, reply: Message, usage: Usage, model: str) -> None:
        """Store an answer and a row for each of its calls, in one transaction.

        If it has calls, a power cut may undo it until the first of them has begun or has a result.
        """
        self.live.fold_results()
        state = self.live
        reply = rows.to_storable(reply)
        seq, number = state.next_seq, turn.steps + 1
        packed = rows.pack(reply, self._clock.unix_ms(), usage, model)
        row = (rows.row_id(state.key, seq), turn.number, *packed)
        calls = [
            (rows.CALL, (state.key, seq + 1 + i, i, turn.number, number, call.id, call.name))
            for i, call in enumerate(reply.tool_calls)
        ]

        def apply(_: None) -> None:
            state.add(seq, reply)
            state.next_seq += len(calls)
            state.step = OpenStep(seq, number, len(state.messages), reply.tool_calls) if calls else None
            turn.steps = number
            turn.usage += usage
            turn.messages += 1
            turn.tool_calls += len(calls)
            turn.context_tokens = usage.total_tokens or turn.context_tokens
            for i, call in enumerate(reply.tool_calls):
                turn.calls[seq + 1 + i] = TurnCall(number, call.name, call.arguments)

        await self.writer.append(apply, (rows.CALLING if calls else rows.MESSAGE, row), *calls)

    def open_calls(self, turn: TurnRecord) -> list[OpenCall]:
        """Return the last answer's calls that have no result, in the model's order."""
        step = self.live.step
        if step is None:
            return []
        return [
            OpenCall(call, step.number, index, index in step.started, step.started.get(index, ""))
            for index, call in enumerate(step.calls)
            if index not in step.results
        ]

    async def store_call_start(self, turn: TurnRecord, open_call: OpenCall, decided_by: str) -> None:
        """Store that a call is about to run. After this, a crash makes its outcome unknown.

        Raises StoreBusy if another process holds the session now. Then the call must not run.
        """
        step = self._step()
        seq, started = step.seq + 1 + open_call.index, self._clock.unix_ms()
        begun = {open_call.index: open_call.ran}
        await self.writer.start_call(
            CallStart(seq, started, decided_by, open_call.started), lambda _: step.started.update(begun)
        )

    async def store_call_result(
        self,
        turn: TurnRecord,
        open_call: OpenCall,
        result: Message,
        *,
        output: ToolOutput,
        duration_s: float,
        decided_by: str = "",
    ) -> None:
        """Store a call's result. `fold_results` then puts the step's results into the live list in order.

        Set `decided_by` if the start was not stored before, so that it is stored with the result.
        """
        state, step, now = self.live, self._step(), self._clock.unix_ms()
        result = rows.to_storable(result)
        seq = step.seq + 1 + open_call.index
        row = (rows.row_id(state.key, seq), turn.number, *rows.pack(result, now))
        end = (now, round(duration_s, 6), output.error_kind, output.exit_code, output.facts, state.key, seq)
        started = now - round(duration_s * 1000)
        done = (rows.CALL_DONE, (started, decided_by, *end)) if decided_by else (rows.CALL_FINISHED, end)

        def apply(_: None) -> None:
            step.results[open_call.index] = result
            turn.messages += 1
            turn.ran_tests = turn.ran_tests or '"tests":' in output.facts
            if output.error_kind and (call := turn.calls.get(seq)) is not None:
                text = result.content[:ERROR_CHARS] if isinstance(result.content, str) else ""
                turn.calls[seq] = msgspec.structs.replace(call, error_kind=output.error_kind, error=text)

        await self.writer.append(apply, (rows.MESSAGE, row), done)

    async def end_turn(
        self, turn: TurnRecord, reason: EndReason, error: str, at_end: TransactionWork = queue_nothing
    ) -> Sequence[QueuedJob]:
        """Store the turn's end and sums in one transaction with the work of `at_end`, and release the
        session.

        Returns the jobs that `at_end` has queued. The turn's messages are then indexed in the background.
        """
        await self.drain()
        self.live.fold_results()
        marker = (reason, error, iso(self._clock.now()))

        def work(connection: apsw.Connection) -> tuple[ReadSession, Sequence[QueuedJob]]:
            self.writer.release(connection)
            return turns.end_turn(connection, self.live.key, turn, *marker), at_end(connection)

        def apply(ended: tuple[ReadSession, Sequence[QueuedJob]]) -> None:
            self.live.session = ended[0]() or self.live.session
            self.live.open_turn = None

        ended = await self.writer.commit(work, apply)
        from whet.store import index  # noqa: PLC0415 - so that the first request does not wait for the import

        index.schedule_indexing(self.writer.db)
        return ended[1]

    async def undo_last_turn(self) -> tuple[int, str] | None:
        """Remove the last turn from the live list. Return its number and the user's text, or None without a
        turn.

        Its rows stay and are marked as undone. Its sums stay, too. Raises StoreBusy while a turn runs.
        """
        await self.drain()
        now = iso(self._clock.now())

        def work(connection: apsw.Connection) -> tuple[int, str] | None:
            self.writer.refuse_if_held(connection)
            return turns.undo_last(connection, self.live.key, now)

        undone = await self.writer.commit(work, lambda _: None)
        if undone is not None:
            await self.writer.reload()
        return undone

    def close(self) -> None:
        """Close the session. An open turn can be resumed at once, in this process too."""
        self.writer.close()

    async def drain(self) -> None:
        """Wait for writes whose waiters were cancelled."""
        await self.writer.drain()

    def _step(self) -> OpenStep:
        step = self.live.step
        assert step is not None  # an OpenCall exists only while its step is the last one
        return step


async def is_cut_off(writer: SessionWriter, live: LiveState) -> bool:
    """Return whether the last turn has no end marker and no living holder.

    It is not claimed, so that it can be undone as well as resumed.
    """
    await writer.refresh()
    if live.open_turn is None:
        return False
    try:
        await writer.db.read(writer.refuse_if_held)
    except StoreBusy:
        return False
    return True


class SessionDetails:
    """Changes an open session's fields, but not its messages. Each change is durable on return."""

    def __init__(self, writer: SessionWriter, state: LiveState) -> None:
        self._writer = writer
        self._live = state

    async def set_title(self, title: str) -> None:
        """Set the session's title."""
        await self._change(lambda connection, id_: sessions.rename(connection, id_, title))

    async def choose_model(self, provider: str, model: str, *, chosen: bool) -> None:
        """Store the model that answers from now on. Without `chosen`, the model is the configured one."""
        await self._change(
            lambda connection, id_: sessions.choose_model(connection, id_, provider, model, chosen=chosen)
        )

    async def set_private(self, private: bool) -> None:
        """Hide the session from search, bulk export and learning, or show it again."""
        await self._change(lambda connection, id_: sessions.set_private(connection, id_, private))

    async def end(self, reason: str) -> None:
        """Mark the session ended."""
        now = iso(self._writer.clock.now())
        await self._change(lambda connection, id_: sessions.end_session(connection, id_, reason, now))

    async def _change(self, change: Callable[[apsw.Connection, str], None]) -> None:
        id_ = self._live.session.id

        def work(connection: apsw.Connection) -> SessionRow:
            change(connection, id_)
            return sessions.get(connection, id_)

        def apply(session: SessionRow) -> None:
            self._live.session = session

        await self._writer.commit(work, apply)
