"""Queue the turns of API sessions for a team's workers, and follow their events.

A turn is stored before its request is answered, and runs even if this process ends. Only turns with tools of
the client program run in this process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.app.conversations.hosted import SessionHost
from whet.clock import Clock
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event, Notice, TurnEnd, show_nothing
from whet.serve.team_feed import TeamFeeds
from whet.serve.team_questions import TeamQuestions
from whet.serve.turns import TurnInput, Turns
from whet.sqlite.lane import ScopedWrite
from whet.store.team import TeamDatabase
from whet.store.turns import TurnRecord
from whet.team import orders
from whet.team.metrics import team_text
from whet.team.notices import NEWS, ORDERS, Notices
from whet.team.queue import AskedTurn, DatabaseQueue, TurnOptions

if TYPE_CHECKING:
    from whet.app.tracing import RequestTrace  # imports packages of an extra

LOOK_S = 2.0
NO_WORKER_S = 5.0


class TeamTurns(Turns):
    """Queues this process's turns for a team's workers."""

    def __init__(self, hosted: SessionHost, clock: Clock, beat_s: float, answer_wait_s: float) -> None:
        database = hosted.services.database
        assert isinstance(database, TeamDatabase)  # made only for a team's database
        questions = TeamQuestions(database, clock, answer_wait_s)
        self._team_feeds = TeamFeeds(database, beat_s)
        super().__init__(hosted, self._team_feeds, questions, clock)
        self._database = database
        self._queue = DatabaseQueue(database)
        hear = {NEWS: self._team_feeds.handle_notification, ORDERS: questions.handle_notification}
        self._notices = Notices(database, hear)
        self._is_ending = False

    def start(self) -> None:
        """Start listening to the workers."""
        self._notices.start()

    @property
    def running(self) -> list[str]:
        """The sessions with a running turn, on any worker."""
        open_turns = self._database.read_now(orders.list_open_turns)
        running_ids = [session_id for session_id, state in open_turns if state == "running"]
        return [*dict.fromkeys((*self.hosted.running, *running_ids))]

    def is_running(self, session_id: str) -> bool:
        """Return whether a turn of this session runs, on any worker."""
        return super().is_running(session_id) or "running" in self._states(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Return whether a turn of this session runs or waits."""
        return super().is_busy(session_id) or bool(self._states(session_id))

    async def metrics(self) -> str:
        """Return the metrics of this process and of the team in the Prometheus text format."""
        return await super().metrics() + await self._database.read(team_text)

    async def cancel(self, session_id: str) -> bool:
        """Cancel the turns that run or wait. Returns False if there are no such turns."""
        is_here = await super().cancel(session_id)
        return await self._database.write(_cancel_write(session_id)) or is_here

    async def run(self, session_id: str, turn_input: TurnInput, emit: Emit) -> TurnEnd | None:
        """Queue a turn, follow it and return its end, or None if a running turn took the text.

        If the caller is cancelled, the turn is cancelled, unless this process is shutting down.
        """
        if turn_input.is_here or turn_input.text is None:
            return await super().run(session_id, turn_input, emit)
        turn = await self._queue_turn(session_id, turn_input)
        return None if turn is None else await self._follow(turn, turn_input, emit)

    async def begin(self, session_id: str, turn_input: TurnInput) -> asyncio.Task[bool]:
        """Queue a turn that no request waits for. It is stored on return.

        Returns a task that ends with the turn; its result is False if a running turn took the text.
        """
        turn = await self._queue_turn(session_id, turn_input)

        async def work() -> bool:
            if turn is None:
                return False
            try:
                await self._follow(turn, turn_input, show_nothing)  # listeners read the feed
            except WhetError as error:
                self.feeds.add(session_id, Notice(error.message))
            return True

        task = asyncio.create_task(work())
        self.keep(task)
        return task

    async def aclose(self, drain_s: float, *, is_shared: bool = False) -> None:
        """Stop following turns after `drain_s`. They continue on their workers, but turns that run in this
        process are cancelled."""
        self._is_ending = True
        if self._own:
            await asyncio.wait(self._own, timeout=drain_s)
            for task in self._own:
                task.cancel()
        await super().aclose(0.0 if self._own else drain_s, is_shared=is_shared)
        await self._notices.aclose()
        await self._team_feeds.aclose()

    def _states(self, session_id: str) -> list[str]:
        return self._database.read_now(lambda db: orders.list_states(db, session_id))

    async def _queue_turn(self, session_id: str, turn_input: TurnInput) -> _FollowedTurn | None:
        """Store a turn in the queue. Returns None if the text was added to a running turn."""
        assert turn_input.text is not None
        after = await self._team_feeds.position(session_id)
        trace = tracing.begin_request() if (tracing := self.hosted.services.tracing) is not None else None
        options = TurnOptions(
            tuple(turn_input.images),
            self.questions.wait_s,
            may_clarify=not turn_input.is_plain,
            trace=trace.header if trace is not None else "",
        )
        queued_turn = AskedTurn(self._clock.new_id(), session_id, turn_input.text, options)

        def work(connection: apsw.Connection) -> bool:
            if turn_input.busy == "refuse" and orders.list_states(connection, session_id):
                raise WhetError("a turn is running in this session", hint="wait for its end, or cancel it")
            if (
                turn_input.busy == "steer"
                and not turn_input.images
                and orders.send_message(connection, session_id, queued_turn.text)
            ):
                return False
            turn_input.writes.on_stored(connection)
            self._queue.ask(connection, queued_turn)
            return True

        if not await self._database.write(ScopedWrite(session_id, work)):
            return None
        return _FollowedTurn(queued_turn.id, session_id, after, trace)

    async def _follow(self, turn: _FollowedTurn, turn_input: TurnInput, emit: Emit) -> TurnEnd:
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._team_feeds.follow(turn.session_id, turn.id, turn.after, events.put_nowait)
        try:
            turn_input.writes.on_begin()
            end = await self._pass_on_events(turn, events, emit)
        except asyncio.CancelledError:
            if not self._is_ending:
                await self._database.write(_cancel_write(turn.session_id))
            raise
        finally:
            self._team_feeds.unfollow(turn.id)
        if turn.trace is not None and self.hosted.services.tracing is not None:
            self.hosted.services.tracing.end_request(turn.trace, turn.session_id, end)
        record = TurnRecord(end.turn_id, turn.session_id, 0, "", end.steps, end.usage)
        work = turn_input.writes.on_end(record, end.reason, end.text)
        await self._database.append(ScopedWrite(turn.session_id, work), scope=turn.session_id)
        emit(end)
        return end

    async def _pass_on_events(
        self, turn: _FollowedTurn, events: asyncio.Queue[Event | None], emit: Emit
    ) -> TurnEnd:
        """Pass a turn's events to `emit` and return its end."""
        silent_s, is_reported = 0.0, False
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    event = await events.get()
            except TimeoutError:  # a notification may be lost with its connection
                self._team_feeds.handle_notification(turn.session_id)
                silent_s += LOOK_S
                if silent_s >= NO_WORKER_S and not is_reported:
                    is_reported = await self._report_wait(turn, emit)
                continue
            silent_s = 0.0
            if isinstance(event, TurnEnd):
                return event
            if event is not None:
                emit(event)

    async def _report_wait(self, turn: _FollowedTurn, emit: Emit) -> bool:
        """Send the reason why a turn waits for a worker to its request and to the session's listeners.
        Returns False if there is no reason."""
        reason = await self._database.read(lambda db: orders.describe_wait(db, turn.id))
        if reason:
            line = f"{reason}; {orders.START_WORKER}"
            emit(Notice(line, must_show=True))
            self.feeds.add(turn.session_id, Notice(line))
        return bool(reason)


class _FollowedTurn(msgspec.Struct, frozen=True):
    """A queued turn. Its events have numbers above `after`."""

    id: str
    session_id: str
    after: int
    trace: RequestTrace | None = None


def _cancel_write(session_id: str) -> ScopedWrite:
    """Return the write that cancels a session's turns."""
    return ScopedWrite(session_id, lambda db: orders.cancel_turns(db, session_id))
