"""Run turns of API sessions, for a waiting request or in the background, and send their events to all
listeners."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.agent.session import user_message
from whet.app.conversations.hosted import Busy, SessionHost, TurnWrites
from whet.clock import Clock
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event, Notice, TurnEnd
from whet.contract.messages import ImagePart, Usage
from whet.serve.feed import Feeds
from whet.serve.questions import Asker, Questions
from whet.store import turns


class TurnInput(msgspec.Struct, frozen=True):
    """The input of a turn.

    - `text`: the message; None: continue a turn that a crash interrupted
    - `busy`: what to do if another turn is running
    - `writes`: extra writes for the turn's transactions
    - `is_plain`: the client shows only text
    - `is_here`: the turn can't run in another process, because the client program runs some of its calls
    """

    text: str | None
    images: Sequence[ImagePart] = ()
    busy: Busy = "queue"
    writes: TurnWrites = TurnWrites()
    is_plain: bool = False
    is_here: bool = False


class Turns:
    """Runs turns in this process."""

    def __init__(self, hosted: SessionHost, feeds: Feeds, questions: Questions, clock: Clock) -> None:
        self.hosted = hosted
        self.feeds = feeds
        self.questions = questions
        self._clock = clock
        self._own: set[asyncio.Task[Any]] = set()
        self._begun: Counter[str] = Counter()

    def start(self) -> None:
        """Start listening to other processes. Does nothing for turns of this process."""

    @property
    def running(self) -> list[str]:
        """The sessions with a running turn."""
        return self.hosted.running

    def is_running(self, session_id: str) -> bool:
        """Return whether a turn of this session runs."""
        return self.hosted.is_running(session_id)

    async def metrics(self) -> str:
        """Return the number of running turns in the Prometheus text format."""
        return f"# TYPE whet_turns_running gauge\nwhet_turns_running {len(self.hosted.running)}\n"

    async def cancel(self, session_id: str) -> bool:
        """Cancel the running turn and the input that it has not read. Returns False if no turn is running."""
        return self.hosted.cancel(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Return whether a turn of this session runs, or was started here and is about to run."""
        return session_id in self._begun or self.hosted.is_running(session_id)

    async def run(self, session_id: str, turn_input: TurnInput, emit: Emit) -> TurnEnd | None:
        """Run a turn and return its end, or None if a running turn took the text. If the caller is cancelled,
        the turn is cancelled."""

        add_to_feed = self.feeds.pass_on if turn_input.is_plain else self.feeds.add

        def forward(event: Event) -> None:
            add_to_feed(session_id, event)
            emit(event)

        self._begin(session_id)
        began_s = self._clock.monotonic_s()
        person = Asker(self.questions, session_id, may_clarify=not turn_input.is_plain)
        try:
            return await self.hosted.submit(
                session_id,
                turn_input.text,
                turn_input.images,
                emit=forward,
                person=person,
                busy=turn_input.busy,
                writes=turn_input.writes,
            )
        except asyncio.CancelledError:
            took_s = self._clock.monotonic_s() - began_s
            add_to_feed(session_id, TurnEnd(session_id, "", "cancelled", "", 0, Usage(), took_s))
            raise
        finally:
            self._end(session_id)

    async def begin(self, session_id: str, turn_input: TurnInput) -> asyncio.Task[bool]:
        """Start a turn that no request waits for. Its events and its end are in the feed.

        The message is on disk on return. The task's result is False if a running turn took the text.
        """
        turn_input = await self._accept(session_id, turn_input)
        self._begin(session_id)

        async def work() -> bool:
            try:
                return await self.run(session_id, turn_input, lambda event: None) is not None
            except WhetError as error:
                if not self.hosted.is_closing:
                    await self._forget(turn_input.writes.row)
                end = TurnEnd(session_id, "", "failed", "", 0, Usage(), 0.0, error.message, error.hint)
                self.feeds.add(session_id, Notice(error.message))
                self.feeds.add(session_id, end)
                return True
            finally:
                self._end(session_id)

        task = asyncio.create_task(work())
        self.keep(task)
        return task

    async def _accept(self, session_id: str, turn_input: TurnInput) -> TurnInput:
        """Store a message as accepted. The transaction that stores it in the transcript removes it again."""
        if turn_input.text is None:
            return turn_input
        message = user_message(turn_input.text, turn_input.images)
        row = await self.hosted.services.database.append(
            lambda db: turns.accept_message(db, session_id, message)
        )
        on_stored = turns.remove_at_end((row,), turn_input.writes.on_stored)
        writes = msgspec.structs.replace(turn_input.writes, row=row, on_stored=on_stored)
        return msgspec.structs.replace(turn_input, writes=writes)

    async def _forget(self, row: int) -> None:
        """Remove an accepted message whose turn could not begin. The feed has told its sender why."""
        await self.hosted.services.database.append(lambda db: turns.remove_accepted(db, (row,)))

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done. `aclose` waits for it."""
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    async def aclose(self, drain_s: float, *, is_shared: bool = False) -> None:
        """Let running turns end, cancel those that take longer than `drain_s`, and wait for all of them.

        `is_shared`: another interface uses the same conversations, so only turns that no request waits for
        are ended.
        """
        if not is_shared:
            await self.hosted.aclose(drain_s=drain_s)
        elif self._own:
            await asyncio.wait(self._own, timeout=drain_s)
            for task in self._own:
                task.cancel()
        if self._own:
            await asyncio.wait(self._own)

    def _begin(self, session_id: str) -> None:
        self._begun[session_id] += 1

    def _end(self, session_id: str) -> None:
        self._begun[session_id] -= 1
        if not self._begun[session_id]:
            del self._begun[session_id]
