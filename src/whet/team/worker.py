"""A worker of a team: takes turns from the queue and runs them, so many at a time.

It keeps nothing that another could not go on with. What it has taken it keeps by a beat; where it is stopped,
killed or cut off, another takes the turn after a lease and goes on where the transcript ends. What happens in
a turn it tells as rows, and what is said to a turn elsewhere it reads as rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import apsw

from whet.app.hosted import Receipt, SessionHost
from whet.contract.errors import NotFound, StoreBusy, StoreError, StoreFull, StoreUnwritable, WhetError
from whet.contract.events import EndReason, Event, TurnEnd
from whet.contract.messages import Message, Usage
from whet.contract.protocols import Person
from whet.store import sessions, turns
from whet.store.jobs import AtEnd, Queued, nothing
from whet.store.turns import TurnRecord
from whet.team import events, orders
from whet.team.events import EventWriter
from whet.team.metrics import WorkerCounts
from whet.team.notices import ORDERS, WAITING, Notices
from whet.team.queue import EndedTurn, TakenTurn, TurnQueue, outcome

_LOOK_S = 2.0
_AGAIN_S = 0.5
_logger = logging.getLogger("whet.team")


class RunningTurn:
    """A turn that this worker runs, and how far it has read what was said to it."""

    def __init__(self, taken: TakenTurn) -> None:
        self.taken = taken
        self.read_to = 0
        self.is_stored: bool = bool(taken.turn)
        self.is_ending = False
        self.is_told = False
        self.is_called_off = False
        self.is_cancelled: bool = taken.is_cancelled
        self.task: asyncio.Task[None]


class TurnWorker:
    """Runs turns of the queue until it is told to stop. `tell` hears what came of each; `person_of` gives who
    answers a turn's questions."""

    def __init__(
        self,
        hosted: SessionHost,
        queue: TurnQueue,
        owner: str,
        most: int,
        tell: Callable[[EndedTurn], None],
        person_of: Callable[[TakenTurn], Person | None] = lambda taken: None,
    ) -> None:
        self._hosted = hosted
        self._database = queue.database
        self._queue = queue
        self._owner = owner
        self._most = most
        self._tell = tell
        self._person_of = person_of
        self._events = EventWriter(queue.database)
        self._running: dict[str, RunningTurn] = {}
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._ordered = asyncio.Event()
        self._missing: set[str] = set()
        self.heard: list[Callable[[], None]] = []
        """Called when questions may have been answered."""
        self.counts: WorkerCounts = WorkerCounts()

    @property
    def is_taking(self) -> bool:
        """Whether it takes turns, and is not told to end."""
        return not self._stopping.is_set()

    def stop(self) -> None:
        """Take nothing more; `serve` returns when what runs has ended."""
        self._stopping.set()
        self._news.set()

    async def serve(self, lease_s: float) -> None:
        """Take turns and run them until `stop`; a database that is away is waited for."""
        notices = Notices(self._database, {WAITING: self._wake, ORDERS: self._order})
        notices.start()
        chores = [asyncio.create_task(self._beat(lease_s / 3)), asyncio.create_task(self._obey())]
        try:
            while not self._stopping.is_set():
                self._news.clear()
                room = self._most - len(self._running)
                taken = await self._taken(room) if room else []
                for one in taken:
                    self._begin(one)
                if not taken:
                    await self._pause()
            while self._running:
                await asyncio.wait([one.task for one in self._running.values()])
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)
            await notices.aclose()
            await self._events.drain()

    async def _taken(self, room: int) -> list[TakenTurn]:
        try:
            return await asyncio.to_thread(self._take, room)
        except StoreError as error:
            _logger.warning("no turns can be taken, trying again: %s", error.message)
            return []

    def _take(self, room: int) -> list[TakenTurn]:
        """Take turns, but for those whose folder was looked for in vain, and still is not here."""
        self._missing = {folder for folder in self._missing if not Path(folder).is_dir()}
        return self._queue.take(self._owner, room, [*self._missing])

    def _wake(self, said: str) -> None:
        self._news.set()

    def _order(self, said: str) -> None:
        self._ordered.set()

    def _begin(self, taken: TakenTurn) -> None:
        running = RunningTurn(taken)
        self._running[taken.id] = running
        if taken.attempts > 1:  # what the worker before did not tell any more is in the transcript
            self._events.tell(taken.session_id, None, taken.mark)
        self.counts.running += 1
        running.task = asyncio.create_task(self._run(running))
        running.task.add_done_callback(lambda _: self._left(running))

    def _left(self, running: RunningTurn) -> None:
        self.counts.running -= 1
        if self._running.get(running.taken.id) is running:
            del self._running[running.taken.id]
        self._news.set()

    async def _pause(self) -> None:
        """Wait for a notification, a turn's end, or the time after which one looks anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._news.wait()

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            taken = [one.taken for one in self._running.values()]
            with suppress(StoreError):  # tried again at the next beat; what is lost by then its writes tell
                if taken:
                    await asyncio.to_thread(self._queue.keep, taken)
                await self._database.append(events.tell_left)
            self._ordered.set()

    async def _obey(self) -> None:
        """Give turns what was said to them elsewhere, and cancel those that were called off."""
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            for heard in self.heard:
                heard()
            with suppress(StoreError):  # looked for again at the next beat
                for running in [*self._running.values()]:
                    await self._hear(running)

    async def _hear(self, running: RunningTurn) -> None:
        taken, after = running.taken, running.read_to

        def look(db: apsw.Connection) -> tuple[list[tuple[int, str]], bool]:
            return orders.said(db, taken.id, after), orders.is_cancelled(db, taken.id)

        said, is_cancelled = await self._database.read(look)
        running.is_cancelled = running.is_cancelled or is_cancelled
        if running.is_ending or not self._hosted.is_running(taken.session_id):
            return  # what was said becomes a turn of its own with this one's end, or is read at its beginning
        for number, text in said:
            if number > running.read_to:
                running.read_to = number
                receipt = Receipt(lambda db, number=number: _read(db, number))
                await self._hosted.submit(taken.session_id, text, emit=_ignore, busy="steer", receipt=receipt)
        if running.is_cancelled and not running.is_called_off:
            running.is_called_off = self._hosted.cancel(taken.session_id)

    async def _run(self, running: RunningTurn) -> None:
        """Run a turn; where the database stays away it is left to whoever takes it after the lease."""
        try:
            await self._run_to_end(running)
        except StoreError as error:
            _logger.warning("turn %s is left: %s", running.taken.id, error.message)

    async def _run_to_end(self, running: RunningTurn) -> None:
        """Run a turn, or go on with the one that a worker before began."""
        taken = running.taken
        try:
            if await self._is_elsewhere(taken):
                return
            await self._turn(running)
        except StoreBusy as error:  # another has it, or had it: it comes back to the queue after its lease
            self.counts.fenced += 1
            self._tell(
                EndedTurn(taken.id, taken.session_id, taken.turn, "left", error.message, taken.attempts, "")
            )
            await asyncio.sleep(_AGAIN_S)
            return
        except (StoreFull, StoreUnwritable):
            raise
        except WhetError as error:
            line = f"{error.message}; {error.hint}" if error.hint else error.message
            await self._end(running, "failed", line)
        ended = await self._outcome(taken)
        if ended is None or not ended.reason or ended.attempts != taken.attempts:
            return
        if not running.is_told:
            reason: EndReason = ended.reason  # pyright: ignore[reportAssignmentType] one of these was stored
            end = TurnEnd(taken.session_id, "", reason, "", 0, Usage(), 0.0, error=ended.error)
            self._events.tell(taken.session_id, end, taken.mark)
        self.counts.ended[ended.reason] += 1
        self._tell(ended)

    async def _is_elsewhere(self, taken: TakenTurn) -> bool:
        """Whether the session works in a folder that is not here; its turn is then left to others."""
        row = await self._database.read(lambda db: sessions.get(db, taken.session_id))
        if not row.workspace or Path(row.workspace).is_dir():
            return False
        self._missing.add(row.workspace)
        line = f"the workspace {row.workspace} is not on worker {self._owner.split(' ')[0]}"
        await self._database.append(lambda db: self._queue.give_back(db, taken, line))
        left = EndedTurn(taken.id, taken.session_id, taken.turn, "left", line, taken.attempts, "")
        self._tell(left)
        return True

    async def _end(self, running: RunningTurn, reason: str, error: str) -> None:
        """Note what came of a turn where its own last transaction did not."""
        taken = running.taken
        if (now := await self._outcome(taken)) is None or now.reason or now.attempts != taken.attempts:
            return
        await self._database.append(lambda db: self._queue.end(db, taken, reason, error))

    async def _outcome(self, taken: TakenTurn) -> EndedTurn | None:
        return await asyncio.to_thread(outcome, self._database, taken.id)

    async def _turn(self, running: RunningTurn) -> None:
        taken, session_id = running.taken, running.taken.session_id
        receipt = Receipt(
            lambda db: self._stored(running, db),
            lambda turn, reason, text: self._at_end(running, turn, reason),
            self._ordered.set,
        )

        def emit(event: Event) -> None:
            running.is_told = running.is_told or isinstance(event, TurnEnd)
            self._events.tell(session_id, event, taken.mark)

        if (tracing := self._hosted.app.tracing) is not None:
            tracing.belongs_to(session_id, taken.options.trace)
        person = self._person_of(taken)
        if not taken.turn:
            end = await self._hosted.submit(
                session_id, taken.text, taken.options.images, emit=emit, person=person, receipt=receipt
            )
            await self._end(running, end.reason if end else "cancelled", end.error if end else "")
            return
        reason, error = await self._database.read(lambda db: _end_of(db, taken))
        while not reason:
            try:
                await _put_words(running, self._hosted)
                end = await self._hosted.submit(session_id, None, emit=emit, person=person, receipt=receipt)
            except NotFound:  # the lease of the worker before has not quite run out
                await asyncio.sleep(_AGAIN_S)
                reason, error = await self._database.read(lambda db: _end_of(db, taken))
            else:
                reason, error = (end.reason, end.error) if end else ("cancelled", "")
        await self._end(running, reason, error)

    def _stored(self, running: RunningTurn, connection: apsw.Connection) -> Sequence[Queued]:
        self._queue.begin(connection, running.taken)
        running.is_stored = True
        return ()

    def _at_end(self, running: RunningTurn, turn: TurnRecord, reason: EndReason) -> AtEnd:
        if not running.is_stored:
            return nothing  # it is the end of a turn before, which a crash had left open
        running.is_ending = True
        session = self._hosted.opened(running.taken.session_id)
        if session is not None:
            session.inbox.take_back()  # as rows they become a turn of their own

        def work(connection: apsw.Connection) -> Sequence[Queued]:
            self._queue.end(connection, running.taken, reason, turn.error)
            return ()

        return work


async def _put_words(running: RunningTurn, hosted: SessionHost) -> None:
    """Give a turn that is resumed what was said to it meanwhile, before its open calls run."""
    taken = running.taken
    said = await hosted.app.database.read(lambda db: orders.said(db, taken.id, 0))
    if said:
        session = await hosted.session(taken.session_id)
        for number, text in said:
            running.read_to = number
            session.inbox.put(Message("user", text), lambda db, number=number: _read(db, number))


def _read(connection: apsw.Connection, number: int) -> Sequence[Queued]:
    orders.read(connection, number)
    return ()


def _end_of(connection: apsw.Connection, taken: TakenTurn) -> tuple[str, str]:
    key = sessions.key_of(connection, taken.session_id)
    return turns.outcome(connection, key, taken.turn)[:2]


def _ignore(event: Event) -> None:
    """Show nothing: what a turn took is among its own events."""
