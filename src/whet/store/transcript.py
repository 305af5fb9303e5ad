"""One open session: its live list in memory, and every change to it durable before it is visible.

A write that was begun is not undone when its waiter is cancelled; the memory follows as soon as the commit
is there. One process at a time holds a session's turn (`claims.py`). This module does not know what a tool
or a model is, and never calls one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.contract.errors import StoreBusy
from whet.contract.events import EndReason
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput
from whet.sqlite.lane import Rows, RowStatement
from whet.store import claims, compactions, live, rows, search, sessions, turns
from whet.store.database import StateDatabase
from whet.store.jobs import AtEnd, Queued, nothing
from whet.store.sessions import NewSession, SessionRow
from whet.store.turns import TurnRecord

__all__ = ["OpenCall", "Transcript", "TurnRecord"]

T = TypeVar("T")


class OpenCall(msgspec.Struct, frozen=True):
    """A call without a result; `started` after a crash means that its outcome is unknown."""

    call: ToolCall
    step: int
    index: int
    started: bool


class _Stale(Exception):
    """The stored session has moved on since it was read."""


class Transcript:
    """A session as one task uses it. `messages` is the live list; only this class changes it."""

    def __init__(self, db: StateDatabase, clock: Clock, state: live.LiveState) -> None:
        self._db = db
        self._clock = clock
        self._state = state
        self._holder = claims.Holder(clock.new_id())
        self._in_flight = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._renew_after_s = 0.0
        self.receipts: deque[AtEnd] = deque()
        """What the transactions that store the next user messages do besides, one for each, in order."""

    @classmethod
    async def create(cls, db: StateDatabase, new: NewSession, clock: Clock) -> Transcript:
        """Store a new session and open it."""
        now = iso(clock.now())

        def work(connection: apsw.Connection) -> live.LiveState:
            sessions.create(connection, new, now)
            return live.load(connection, new.id)

        return cls(db, clock, await db.append(work))

    @classmethod
    async def open(cls, db: StateDatabase, session_id: str, clock: Clock) -> Transcript:
        """Open a stored session. Raises NotFound."""
        return cls(db, clock, await db.read(lambda connection: live.load(connection, session_id)))

    @property
    def session(self) -> SessionRow:
        """The session as it was when it was opened or last changed here."""
        return self._state.session

    @property
    def messages(self) -> list[Message]:
        """The live list: everything said, or what the last compaction left and all after it.

        A message stays the same object while the session is open.
        """
        return self._state.messages

    @property
    def seqs(self) -> list[int]:
        """The number of each message of the live list; 0 for one that only a compaction made."""
        return self._state.seqs

    @property
    def turn_number(self) -> int:
        """The number of the turn that is open here; 0 between turns."""
        return self._state.open_turn.number if self._state.open_turn is not None else 0

    def last_words(self) -> str:
        """Give what the person said last; nothing where they have not said anything yet."""
        said = (message.text for message in reversed(self.messages) if message.role == "user")
        return next(said, "")

    async def begin_turn(self, message: Message) -> TurnRecord:
        """Store the user's message and a turn in one transaction, and claim the session.

        What another process added meanwhile is read first. A turn that a crash left open is closed as
        crashed (`unfinished_turn` would resume it). Raises StoreBusy where a living process holds it.
        """
        await self.settle_writes()
        message = rows.storable(message)
        while True:
            try:
                return await self._begin(message)
            except _Stale:
                await self._reload()

    async def _begin(self, message: Message) -> TurnRecord:
        state, now = self._state, self._clock.now()
        turn = TurnRecord(self._clock.new_id(), state.session.id, state.last_turn + 1, iso(now))
        seq, packed = state.next_seq, rows.pack(message, self._clock.unix_ms())
        receipt = self._receipt()

        def work(connection: apsw.Connection) -> None:
            claims.take(connection, state.key, state.session.id, self._holder, now)
            self._refuse_if_stale(connection)
            turns.begin(connection, state.key, turn)
            rows.insert(connection, state.key, seq, turn.number, packed)
            receipt(connection)

        def apply(_: None) -> None:
            self._given(receipt)
            self._add(seq, message)
            state.last_turn = turn.number
            state.open_turn = live.OpenTurn(turn.id, turn.number, turn.started)
            state.step = None

        await self._write(work, apply)
        return turn

    async def unfinished_turn(self) -> TurnRecord | None:
        """Claim and give a turn that has no end marker and no living holder; None without one."""
        await self.settle_writes()
        await self._look_again()
        state = self._state
        found = state.open_turn
        if found is None:
            return None

        def work(connection: apsw.Connection) -> bool:
            try:
                claims.take(connection, state.key, state.session.id, self._holder, self._clock.now())
            except StoreBusy:
                return False
            self._refuse_if_stale(connection)
            return True

        try:
            if not await self._write(work, lambda _: None):
                return None
        except _Stale:
            return await self.unfinished_turn()
        return TurnRecord(
            found.id,
            state.session.id,
            found.number,
            found.started,
            steps=found.steps,
            usage=found.usage,
            is_new=False,
            messages=found.messages,
            tool_calls=found.tool_calls,
        )

    async def append_user(self, turn: TurnRecord, message: Message) -> None:
        """Store text that was typed during the turn."""
        self.settle(turn)
        message = rows.storable(message)
        state = self._state
        seq = state.next_seq
        row = (rows.row_id(state.key, seq), turn.number, *rows.pack(message, self._clock.unix_ms()))
        receipt = self._receipt()

        def apply(_: None) -> None:
            self._given(receipt)
            self._add(seq, message)
            state.step = None
            turn.messages += 1

        await self._write(self._kept((rows.MESSAGE, row), also=receipt), apply)

    async def append_reply(self, turn: TurnRecord, reply: Message, usage: Usage, model: str) -> None:
        """Store an answer and a row for each of its calls, in one transaction."""
        self.settle(turn)
        state = self._state
        reply = rows.storable(reply)
        seq, number = state.next_seq, turn.steps + 1
        packed = rows.pack(reply, self._clock.unix_ms(), usage, model)
        row = (rows.row_id(state.key, seq), turn.number, *packed)
        calls = [
            (rows.CALL, (state.key, seq + 1 + i, i, turn.number, number, call.id, call.name))
            for i, call in enumerate(reply.tool_calls)
        ]

        def apply(_: None) -> None:
            self._add(seq, reply)
            state.next_seq += len(calls)
            state.step = live.OpenStep(seq, number, len(state.messages), reply.tool_calls) if calls else None
            turn.steps = number
            turn.usage += usage
            turn.messages += 1
            turn.tool_calls += len(calls)

        await self._write(self._kept((rows.MESSAGE, row), *calls), apply)

    def open_calls(self, turn: TurnRecord) -> list[OpenCall]:
        """Give the last answer's calls that have no result, in the model's order."""
        step = self._state.step
        if step is None:
            return []
        return [
            OpenCall(call, step.number, index, index in step.started)
            for index, call in enumerate(step.calls)
            if index not in step.results
        ]

    async def call_started(self, turn: TurnRecord, open_call: OpenCall, decided_by: str) -> None:
        """Store that a call is about to run; from here on a crash makes its outcome unknown."""
        state, step, started = self._state, self._step(), self._clock.unix_ms()
        values = (started, decided_by, state.key, step.seq + 1 + open_call.index)
        await self._write(
            self._kept((rows.CALL_STARTED, values)), lambda _: step.started.add(open_call.index)
        )

    async def call_finished(
        self, turn: TurnRecord, open_call: OpenCall, result: Message, *, output: ToolOutput, duration_s: float
    ) -> None:
        """Store a call's result; `settle` then puts the step's results into the live list in order."""
        state, step, now = self._state, self._step(), self._clock.unix_ms()
        result = rows.storable(result)
        seq = step.seq + 1 + open_call.index
        row = (rows.row_id(state.key, seq), turn.number, *rows.pack(result, now))
        end = (now, round(duration_s, 6), output.error_kind, output.exit_code, state.key, seq)

        def apply(_: None) -> None:
            step.results[open_call.index] = result
            turn.messages += 1

        await self._write(self._kept((rows.MESSAGE, row), (rows.CALL_FINISHED, end)), apply)

    def settle(self, turn: TurnRecord) -> None:
        """Put the last step's results into the live list, in the order of their calls."""
        state, step = self._state, self._state.step
        if step is None or len(state.messages) - step.base == len(step.results) == len(step.calls):
            return
        order = sorted(step.results)
        state.messages[step.base :] = [step.results[index] for index in order]
        state.seqs[step.base :] = [step.seq + 1 + index for index in order]

    async def end_turn(
        self, turn: TurnRecord, reason: EndReason, error: str, at_end: AtEnd = nothing
    ) -> Sequence[Queued]:
        """Store the end marker, the sums and what `at_end` does in one transaction; free the session.

        Gives the jobs that `at_end` has queued. Afterwards what was said is indexed, in the background.
        """
        await self.settle_writes()
        self.settle(turn)
        marker = (reason, error, iso(self._clock.now()))

        def work(connection: apsw.Connection) -> tuple[SessionRow, Sequence[Queued]]:
            claims.release(connection, self._state.key, self._holder)
            turns.end(connection, self._state.key, turn, *marker)
            queued = at_end(connection)
            return sessions.get(connection, self._state.session.id), queued

        def apply(ended: tuple[SessionRow, Sequence[Queued]]) -> None:
            self._state.session = ended[0]
            self._state.open_turn = None

        ended = await self._write(work, apply)
        search.index_soon(self._db)
        return ended[1]

    async def record_compaction(
        self,
        turn: TurnRecord | None,
        compacted: Sequence[Message],
        engine: str,
        tokens_before: int,
        tokens_after: int,
    ) -> None:
        """Make `compacted` the live list; the old rows stay and are found.

        Messages of the present list are stored as references and stay the same objects. Without `turn` it
        belongs to the open one, or between turns to the last; then StoreBusy where another process holds
        the session or has changed it.
        """
        state = self._state
        if turn is not None:
            self.settle(turn)
        between = turn is None and state.open_turn is None
        number = turn.number if turn is not None else self.turn_number or state.last_turn
        known = {id(message): seq for message, seq in zip(state.messages, state.seqs, strict=True) if seq}
        kept = [rows.storable(message) for message in compacted]
        seqs = [known.get(id(message), 0) for message in kept]
        text = live.encode_live([seq or message for seq, message in zip(seqs, kept, strict=True)])
        after, now = state.next_seq - 1, iso(self._clock.now())

        def work(connection: apsw.Connection) -> None:
            if between:
                self._refuse_if_changed(connection)
            else:
                self._renew(connection)
            connection.execute(
                "INSERT INTO compactions"
                " (session, turn, after_seq, live, engine, tokens_before, tokens_after, at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (state.key, number, after, text, engine, tokens_before, tokens_after, now),
            )
            connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (state.key,))

        def apply(_: None) -> None:
            state.messages[:] = kept
            state.seqs[:] = seqs
            state.epoch += 1
            state.step = None

        await self._write(work, apply)

    async def counts_after_compactions(self) -> list[int]:
        """Give the server's counts of the first requests after the last two compactions, oldest first."""
        state = self._state
        if not state.epoch:
            return []
        return await self._db.read(lambda connection: compactions.counts_after(connection, state.key, 2))

    async def undo_last_turn(self) -> str | None:
        """Take the last turn out of the live list and give what the user had said; None without a turn.

        Its rows stay, marked undone, and so do its sums. Raises StoreBusy while a turn runs.
        """
        await self.settle_writes()
        state, now = self._state, self._clock.now()

        def work(connection: apsw.Connection) -> str | None:
            claims.refuse_if_held(connection, state.key, state.session.id, None, now)
            return turns.undo_last(connection, state.key, iso(now))

        text = await self._write(work, lambda _: None)
        if text is not None:
            await self._reload()
        return text

    def close(self) -> None:
        """Forget the session: a turn that was left open can be resumed at once, in this process too."""
        claims.drop(self._holder)

    async def end_session(self, reason: str) -> None:
        """Mark the session ended."""
        now, id_ = iso(self._clock.now()), self.session.id
        await self._change_session(lambda connection: sessions.end(connection, id_, reason, now))

    async def set_title(self, title: str) -> None:
        """Name the session."""
        id_ = self.session.id
        await self._change_session(lambda connection: sessions.rename(connection, id_, title))

    async def choose_model(self, provider: str, model: str, *, chosen: bool) -> None:
        """Note which model answers from now on; not `chosen`: the configured one. Durable on return."""
        id_ = self.session.id
        await self._change_session(
            lambda connection: sessions.choose_model(connection, id_, provider, model, chosen=chosen)
        )

    async def set_private(self, private: bool) -> None:
        """Hide the session from search, bulk export and learning, or show it again."""
        id_ = self.session.id
        await self._change_session(lambda connection: sessions.set_private(connection, id_, private))

    async def _change_session(self, change: Callable[[apsw.Connection], None]) -> None:
        def work(connection: apsw.Connection) -> SessionRow:
            change(connection)
            return sessions.get(connection, self.session.id)

        def apply(session: SessionRow) -> None:
            self._state.session = session

        await self._write(work, apply)

    def _write(
        self, work: Callable[[apsw.Connection], T] | Rows, apply: Callable[[T], object]
    ) -> Coroutine[Any, Any, T]:
        """Commit `work`, then `apply` its result to memory, also where the waiter is cancelled."""

        def after(result: T, error: BaseException | None) -> None:
            self._in_flight -= 1
            if error is None:
                apply(result)
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

        self._in_flight += 1
        return self._db.append(work, after)

    async def settle_writes(self) -> None:
        """Wait for writes whose waiters were cancelled."""
        while self._in_flight:
            self._waiting.append(waiter := asyncio.get_running_loop().create_future())
            try:
                await waiter
            finally:
                self._waiting.remove(waiter)

    async def _look_again(self) -> None:
        """Take in what another process did; mostly nothing, which one look at two indexes tells."""
        state = self._state

        def look(connection: apsw.Connection) -> None:
            if state.open_turn or state.step:
                raise _Stale
            self._refuse_if_stale(connection)
            state.session = sessions.get(connection, state.session.id)

        try:
            self._db.read_now(look)
        except _Stale:
            await self._reload()

    async def _reload(self) -> None:
        """Read the session anew, keeping the objects that are in memory."""
        state = self._state
        known = {seq: message for seq, message in zip(state.seqs, state.messages, strict=True) if seq}
        if state.step is not None:
            known.update({state.step.seq + 1 + i: message for i, message in state.step.results.items()})
        fresh = await self._db.read(lambda connection: live.load(connection, state.session.id, known))
        if fresh.epoch == state.epoch:  # what only the last compaction made has no number to be known by
            for index, seq in enumerate(fresh.seqs[: len(state.seqs)]):
                if not seq and not state.seqs[index]:
                    fresh.messages[index] = state.messages[index]
        state.messages[:] = fresh.messages
        fresh.messages = state.messages
        self._state = fresh

    def _refuse_if_stale(self, connection: apsw.Connection) -> None:
        state = self._state
        if turns.has_moved_on(connection, state.key, (state.epoch, state.last_turn, state.next_seq)):
            raise _Stale

    def _refuse_if_changed(self, connection: apsw.Connection) -> None:
        """Raise StoreBusy where another process holds the session or has changed it."""
        state = self._state
        claims.refuse_if_held(connection, state.key, state.session.id, self._holder, self._clock.now())
        try:
            self._refuse_if_stale(connection)
        except _Stale:
            raise StoreBusy(
                "another process has changed this session", hint="open it again to see what it did"
            ) from None

    def _receipt(self) -> AtEnd:
        return self.receipts[0] if self.receipts else nothing

    def _given(self, receipt: AtEnd) -> None:
        if self.receipts and self.receipts[0] is receipt:
            self.receipts.popleft()

    def _kept(
        self, *rows_: tuple[RowStatement, tuple[Any, ...]], also: AtEnd = nothing
    ) -> Callable[[apsw.Connection], None] | Rows:
        """Give rows to write while the session stays claimed; now and then the claim is renewed with them,
        for those who can't see whether this process lives."""
        if also is nothing and self._clock.monotonic_s() <= self._renew_after_s:
            return rows_

        def work(connection: apsw.Connection) -> None:
            self._renew(connection)
            for statement, values in rows_:
                statement.write(connection, [values])
            also(connection)

        return work

    def _renew(self, connection: apsw.Connection) -> None:
        if self._clock.monotonic_s() > self._renew_after_s:
            claims.renew(connection, self._state.key, self._holder, self._clock.now())
            self._renew_after_s = self._clock.monotonic_s() + claims.LEASE_S / 4

    def _add(self, seq: int, message: Message) -> None:
        self._state.messages.append(message)
        self._state.seqs.append(seq)
        self._state.next_seq = seq + 1

    def _step(self) -> live.OpenStep:
        step = self._state.step
        assert step is not None  # an OpenCall exists only while its step is the last one
        return step
