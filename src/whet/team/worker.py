"""A worker of a team: takes turns from the queue and runs them, so many at a time.

It keeps nothing that another could not go on with. What it has taken it keeps by a beat; where it is stopped,
killed or cut off, another takes the turn after a lease and goes on where the transcript ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from whet.app.hosted import Receipt, SessionHost
from whet.contract.errors import NotFound, StoreBusy, StoreError, WhetError
from whet.contract.events import EndReason, Event
from whet.store import sessions, turns
from whet.store.jobs import AtEnd, Queued
from whet.store.turns import TurnRecord
from whet.team.queue import DatabaseQueue, EndedTurn, TakenTurn

_LOOK_S = 2.0
_AGAIN_S = 0.5


class TurnWorker:
    """Runs turns of the queue until it is told to stop. `tell` hears what came of each."""

    def __init__(
        self,
        hosted: SessionHost,
        queue: DatabaseQueue,
        owner: str,
        most: int,
        tell: Callable[[EndedTurn], None],
    ) -> None:
        self._hosted = hosted
        self._database = hosted.app.database
        self._queue = queue
        self._owner = owner
        self._most = most
        self._tell = tell
        self._running: dict[str, tuple[TakenTurn, asyncio.Task[None]]] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take nothing more; `serve` returns when what runs has ended."""
        self._stopping.set()

    async def serve(self, lease_s: float) -> None:
        """Take turns and run them until `stop`. Raises StoreError where the database stays away."""
        beat = asyncio.create_task(self._beat(lease_s / 3))
        try:
            while not self._stopping.is_set():
                room = self._most - len(self._running)
                taken = await asyncio.to_thread(self._queue.take, self._owner, room) if room else []
                for one in taken:
                    self._begin(one)
                if not taken:
                    await self._pause()
            while self._running:
                await asyncio.wait([task for _, task in self._running.values()])
        finally:
            beat.cancel()
            self._queue.close()

    def _begin(self, taken: TakenTurn) -> None:
        task = asyncio.create_task(self._run(taken))
        self._running[taken.id] = (taken, task)
        task.add_done_callback(lambda _: self._running.pop(taken.id, None))

    async def _pause(self) -> None:
        """Wait for a notification, a turn's end, or the time after which one looks anyway."""
        heard = asyncio.ensure_future(asyncio.to_thread(self._queue.wait, _LOOK_S))
        stopped = asyncio.ensure_future(self._stopping.wait())
        room = [task for _, task in self._running.values()] if len(self._running) >= self._most else []
        await asyncio.wait({heard, stopped, *room}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await heard

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            taken = [one for one, _ in self._running.values()]
            if not taken:
                continue
            with suppress(StoreError):  # tried again at the next beat; what is lost by then its writes tell
                await asyncio.to_thread(self._queue.keep, taken)

    async def _run(self, taken: TakenTurn) -> None:
        """Run a turn, or go on with the one that a worker before began."""
        try:
            await self._turn(taken)
        except StoreBusy as error:  # another has it, or had it: it comes back to the queue after its lease
            self._tell(
                EndedTurn(taken.id, taken.session_id, taken.turn, "left", error.message, taken.attempts, "")
            )
            await asyncio.sleep(_AGAIN_S)
            return
        except WhetError as error:
            line = f"{error.message}; {error.hint}" if error.hint else error.message
            if (now := await self._outcome(taken)) is not None and now.attempts == taken.attempts:
                await self._database.append(lambda db: self._queue.end(db, taken, "failed", line))
        ended = await self._outcome(taken)
        if ended is not None and ended.reason:
            self._tell(ended)

    async def _outcome(self, taken: TakenTurn) -> EndedTurn | None:
        return await asyncio.to_thread(self._queue.outcome, taken.id)

    async def _turn(self, taken: TakenTurn) -> None:
        def stored(connection: apsw.Connection) -> Sequence[Queued]:
            self._queue.begin(connection, taken)
            return ()

        def ended(turn: TurnRecord, reason: EndReason, text: str) -> AtEnd:
            def work(connection: apsw.Connection) -> Sequence[Queued]:
                self._queue.end(connection, taken, reason, turn.error)
                return ()

            return work

        receipt = Receipt(stored, ended)
        if not taken.turn:
            await self._hosted.submit(taken.session_id, taken.text, emit=_ignore, receipt=receipt)
            return
        reason, error = await self._database.read(lambda db: _end_of(db, taken))
        while not reason:
            try:
                await self._hosted.submit(taken.session_id, None, emit=_ignore, receipt=receipt)
                return
            except NotFound:  # the lease of the worker before has not quite run out
                await asyncio.sleep(_AGAIN_S)
                reason, error = await self._database.read(lambda db: _end_of(db, taken))
        await self._database.append(lambda db: self._queue.end(db, taken, reason, error))


def _end_of(connection: apsw.Connection, taken: TakenTurn) -> tuple[str, str]:
    key = sessions.key_of(connection, taken.session_id)
    return turns.outcome(connection, key, taken.turn)[:2]


def _ignore(event: Event) -> None:
    """Show nothing: whoever asked reads what is stored."""
