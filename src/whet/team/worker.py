"""A worker of a team: takes turns from the queue and runs up to a given number of them at once.

It keeps no state that another worker would need, and renews the leases of its turns regularly. If it is
stopped, killed or cut off, another worker takes each turn after its lease and continues at the end of the
transcript. Events and messages are exchanged with other processes as rows of the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import apsw

from whet.app.conversations.hosted import SessionHost, TurnWrites
from whet.contract.errors import NotFound, StoreBusy, StoreError, StoreFull, StoreUnwritable, WhetError
from whet.contract.events import EndReason, Event, TurnEnd
from whet.contract.messages import Usage
from whet.contract.protocols import Person
from whet.postgres.connection import PostgresConnection
from whet.sqlite.lane import ScopedWrite
from whet.store import claims, sessions, turns
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.team.aside import set_lost_aside
from whet.team.events import EventWriter
from whet.team.metrics import WorkerCounts
from whet.team.notices import ORDERS, WAITING, Notices, wait_briefly
from whet.team.queue import DatabaseQueue, EndedTurn, TakenTurn, read_result
from whet.team.running_turn import RunningTurn, deliver_all_orders, restore_messages

_PER_RESERVED = 4  # one in four turns is reserved for turns that a person waits for
_AGAIN_S = 0.5
_logger = logging.getLogger("whet.team")
_SET_ASIDE = ScopedWrite("lost turns", set_lost_aside)


class TurnWorker:
    """Runs turns of the queue until it is stopped.

    `report` is called with the result of each turn. `person_of` returns the person who answers a turn's
    questions.
    """

    def __init__(
        self,
        host: SessionHost,
        queue: DatabaseQueue,
        owner: str,
        max_turns: int,
        report: Callable[[EndedTurn], None],
        person_of: Callable[[TakenTurn], Person | None] = lambda taken_turn: None,
    ) -> None:
        self._host = host
        self._database = queue.database
        self._queue = queue
        self._owner = owner
        self._max_turns = max_turns
        self._report = report
        self._person_of = person_of
        self._events = EventWriter(queue.database)
        self._running: dict[str, RunningTurn] = {}
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._has_orders = asyncio.Event()
        self._missing: set[str] = set()
        self.answer_listeners: list[Callable[[], Awaitable[None]]] = []
        """Functions that are called when questions may have been answered."""
        self.counts: WorkerCounts = WorkerCounts()

    @property
    def is_taking(self) -> bool:
        """Whether it still takes turns, because it has not been stopped."""
        return not self._stopping.is_set()

    def stop(self) -> None:
        """Take no more turns. `serve` returns when the running ones have ended."""
        self._stopping.set()
        self._wake.set()

    async def serve(self, lease_s: float) -> None:
        """Take turns and run them until `stop`. If the database is unavailable, wait for it."""
        self._database.keeper.renewals.append(self._renew)
        self._database.keep_claims()
        await self._database.append(ScopedWrite(self._owner, claims.register_process))
        notices = Notices(
            self._database, {WAITING: lambda _: self._wake.set(), ORDERS: lambda _: self._has_orders.set()}
        )
        notices.start()
        chores = [asyncio.create_task(self._beat(lease_s / 3)), asyncio.create_task(self._deliver_orders())]
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                free_count = self._max_turns - len(self._running)
                taken_turns = await self._take_turns(free_count) if free_count else []
                for taken_turn in taken_turns:
                    self._begin(taken_turn)
                if not taken_turns:
                    await wait_briefly(self._wake)
            while self._running:
                await asyncio.wait([taken_turn.task for taken_turn in self._running.values()])
        finally:
            self._database.keeper.renewals.remove(self._renew)
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)
            await notices.aclose()
            await self._events.drain()

    async def _take_turns(self, free_count: int) -> list[TakenTurn]:
        """Take turns, except those whose workspace was missing before and is still missing."""
        self._missing = {folder for folder in self._missing if not Path(folder).is_dir()}
        reserved = min(free_count, self._max_turns // _PER_RESERVED)
        try:
            return await asyncio.to_thread(
                self._queue.take, self._owner, free_count, [*self._missing], reserved
            )
        except StoreError as error:
            _logger.warning("no turns can be taken, trying again: %s", error.message)
            return []

    def _begin(self, taken_turn: TakenTurn) -> None:
        running = RunningTurn(taken_turn)
        self._running[taken_turn.id] = running
        if taken_turn.attempts > 1:  # the last worker may not have written all events
            self._events.enqueue(taken_turn.session_id, None, taken_turn.mark)
        self.counts.running += 1
        running.task = asyncio.create_task(self._run(running))
        running.task.add_done_callback(lambda _: self._drop(running))

    def _drop(self, running: RunningTurn) -> None:
        self.counts.running -= 1
        if self._running.get(running.taken_turn.id) is running:
            del self._running[running.taken_turn.id]
        self._wake.set()

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            with suppress(StoreError):  # retried at the next beat
                await self._database.append(_SET_ASIDE)
            self._has_orders.set()

    def _renew(self, connection: PostgresConnection) -> None:
        """Renew the leases of the running turns, on the keeper's thread. The writes of a turn whose lease was
        lost fail."""
        if taken_turns := [running.taken_turn for running in [*self._running.values()]]:
            self._queue.keep(connection, taken_turns)

    async def _deliver_orders(self) -> None:
        """Deliver orders from other processes to the turns whenever there may be some."""
        while True:
            await self._has_orders.wait()
            self._has_orders.clear()
            with suppress(StoreError):  # retried at the next beat
                for listener in self.answer_listeners:
                    await listener()
                await deliver_all_orders([*self._running.values()], self._host, self._database)

    async def _run(self, running: RunningTurn) -> None:
        """Run a turn. If the database stays unavailable, leave it to another worker after the lease."""
        try:
            await self._run_to_end(running)
        except StoreError as error:
            _logger.warning("turn %s is left: %s", running.taken_turn.id, error.message)

    async def _run_to_end(self, running: RunningTurn) -> None:
        """Run a turn, or continue it if another worker began it, and report its result."""
        taken_turn = running.taken_turn
        try:
            if await self._is_elsewhere(taken_turn):
                return
            ended = await self._execute(running)
        except StoreBusy as error:  # another worker has the session; the turn is taken again after its lease
            self.counts.fenced += 1
            await self._leave(taken_turn)
            self._report(_left_end(taken_turn, error.message))
            await asyncio.sleep(_AGAIN_S)
            return
        except (StoreFull, StoreUnwritable):
            raise
        except WhetError as error:
            line = f"{error.message}; {error.hint}" if error.hint else error.message
            ended = await self._end(running, "failed", line)
        if ended is None or not ended.reason or ended.attempts != taken_turn.attempts:
            return
        if not running.is_told:
            reason: EndReason = ended.reason  # pyright: ignore[reportAssignmentType] one of these was stored
            end = TurnEnd(taken_turn.session_id, "", reason, "", 0, Usage(), 0.0, error=ended.error)
            self._events.enqueue(taken_turn.session_id, end, taken_turn.mark)
        self.counts.ended[ended.reason] += 1
        self._report(ended)

    async def leave_all(self) -> None:
        """Leave the running turns to other workers, because this process ends."""
        for running in [*self._running.values()]:
            await self._leave(running.taken_turn)

    async def _leave(self, taken_turn: TakenTurn) -> None:
        with suppress(StoreError):
            await self._queue.write(taken_turn, lambda db: self._queue.leave(db, taken_turn))

    async def _is_elsewhere(self, taken_turn: TakenTurn) -> bool:
        """Return whether the session's workspace is missing here. If it is, leave the turn to other
        workers."""
        workspace = taken_turn.workspace
        if not workspace or Path(workspace).is_dir():
            return False
        self._missing.add(workspace)
        line = f"the workspace {workspace} is not on worker {self._owner.split(' ')[0]}"
        await self._queue.write(taken_turn, lambda db: self._queue.leave(db, taken_turn, line))
        self._report(_left_end(taken_turn, line))
        return True

    async def _execute(self, running: RunningTurn) -> EndedTurn | None:
        taken_turn, session_id = running.taken_turn, running.taken_turn.session_id
        writes = TurnWrites(
            lambda db: self._record_start(running, db),
            lambda turn, reason, text: self._at_end(running, turn, reason),
            lambda: self._has_orders.set() if running.is_behind else None,
        )

        def emit(event: Event) -> None:
            running.is_told = running.is_told or isinstance(event, TurnEnd)
            self._events.enqueue(session_id, event, taken_turn.mark)

        if (tracing := self._host.services.tracing) is not None:
            tracing.set_parent(session_id, taken_turn.options.trace)
        person = self._person_of(taken_turn)
        if not taken_turn.turn:
            text, images = taken_turn.text, taken_turn.options.images
            end = await self._host.submit(session_id, text, images, emit=emit, person=person, writes=writes)
            reason, error = (end.reason, end.error) if end else ("cancelled", "")
            return await self._end(running, reason, error)
        reason, error = await self._database.read(lambda db: _read_outcome(db, taken_turn))
        while not reason:
            try:
                await restore_messages(running, self._host)
                end = await self._host.submit(session_id, None, emit=emit, person=person, writes=writes)
            except NotFound:  # the last worker's lease of the session has not quite run out
                await asyncio.sleep(_AGAIN_S)
                reason, error = await self._database.read(lambda db: _read_outcome(db, taken_turn))
            else:
                reason, error = (end.reason, end.error) if end else ("cancelled", "")
        return await self._end(running, reason, error)

    def _record_start(self, running: RunningTurn, connection: apsw.Connection) -> Sequence[QueuedJob]:
        self._queue.begin(connection, running.taken_turn)
        running.is_stored = True
        return ()

    def _at_end(self, running: RunningTurn, turn: turns.TurnRecord, reason: EndReason) -> TransactionWork:
        if not running.is_stored:
            return queue_nothing  # this ends an earlier turn, which a crash left open
        running.is_ending = True
        session = self._host.find_open(running.taken_turn.session_id)
        if session is not None:
            session.inbox.take_back()  # unread messages are still rows, and become a turn of their own

        def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
            running.closing = self._queue.end(connection, running.taken_turn, reason, turn.error)
            return ()

        return work

    async def _end(self, running: RunningTurn, reason: str, error: str) -> EndedTurn | None:
        """Return the stored result of a turn. Stores it if the turn's own last transaction did not."""
        taken_turn = running.taken_turn
        ended = running.read_end(self._owner)
        ended = ended or await asyncio.to_thread(read_result, self._database, taken_turn.id)
        if ended is None or ended.reason or ended.attempts != taken_turn.attempts:
            return ended
        await self._queue.write(taken_turn, lambda db: self._queue.end(db, taken_turn, reason, error))
        return await asyncio.to_thread(read_result, self._database, taken_turn.id)


def _left_end(turn: TakenTurn, reason: str) -> EndedTurn:
    """Return the end of a turn that this worker leaves to others."""
    return EndedTurn(turn.id, turn.session_id, turn.turn, "left", reason, turn.attempts, "")


def _read_outcome(connection: apsw.Connection, taken_turn: TakenTurn) -> tuple[str, str]:
    key = sessions.key_of(connection, taken_turn.session_id)
    return turns.read_outcome(connection, key, taken_turn.turn)[:2]
