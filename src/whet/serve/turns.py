"""Turns of API sessions: run for whoever waits for them or on their own, told to everybody who listens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.app.hosted import Busy, Receipt, SessionHost
from whet.clock import Clock
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event, Notice, TurnEnd
from whet.contract.messages import ImagePart, Usage
from whet.serve.feed import Feeds
from whet.serve.questions import Asker, Questions


class TurnInput(msgspec.Struct, frozen=True):
    """What a turn begins with, how it is taken while another one runs, and what is stored with it.
    `text` None goes on with a turn
    that a crash cut off; `is_plain`: it comes through a client that shows text and nothing else; `is_here`:
    it can't run in another process, for the program at the other end runs some of its calls."""

    text: str | None
    images: Sequence[ImagePart] = ()
    busy: Busy = "queue"
    receipt: Receipt = Receipt()
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
        """Begin to listen to other processes; turns of this one need none."""

    @property
    def running(self) -> list[str]:
        """The sessions whose turn runs."""
        return self.hosted.running

    def is_running(self, session_id: str) -> bool:
        """Whether a turn of this session runs."""
        return self.hosted.is_running(session_id)

    async def metrics(self) -> str:
        """Give what runs in the Prometheus text format."""
        return f"# TYPE whet_turns_running gauge\nwhet_turns_running {len(self.hosted.running)}\n"

    async def cancel(self, session_id: str) -> bool:
        """Cancel the turn that runs, with what it had been given and not read yet; False without one."""
        return self.hosted.cancel(session_id)

    def is_taken(self, session_id: str) -> bool:
        """Whether a turn of this session runs, or was begun here and will."""
        return session_id in self._begun or self.hosted.is_running(session_id)

    async def run(self, session_id: str, said: TurnInput, emit: Emit) -> TurnEnd | None:
        """Run a turn and give its end; None where a running turn took the text. A cancel cancels the turn."""

        keep = self.feeds.pass_on if said.is_plain else self.feeds.add

        def both(event: Event) -> None:
            keep(session_id, event)
            emit(event)

        self._begin(session_id)
        began_s = self._clock.monotonic_s()
        person = Asker(self.questions, session_id, may_clarify=not said.is_plain)
        try:
            return await self.hosted.submit(
                session_id,
                said.text,
                said.images,
                emit=both,
                person=person,
                busy=said.busy,
                receipt=said.receipt,
            )
        except asyncio.CancelledError:
            took_s = self._clock.monotonic_s() - began_s
            keep(session_id, TurnEnd(session_id, "", "cancelled", "", 0, Usage(), took_s))
            raise
        finally:
            self._leave(session_id)

    async def begin(self, session_id: str, said: TurnInput) -> asyncio.Task[bool]:
        """Run a turn that nobody waits for: it goes on whoever listens, and its end is in the feed. Gives
        whether it was one of its own; the text may be a running turn's."""
        self._begin(session_id)

        async def work() -> bool:
            try:
                return await self.run(session_id, said, lambda event: None) is not None
            except WhetError as error:
                end = TurnEnd(session_id, "", "failed", "", 0, Usage(), 0.0, error.message, error.hint)
                self.feeds.add(session_id, Notice(error.message))
                self.feeds.add(session_id, end)
                return True
            finally:
                self._leave(session_id)

        task = asyncio.create_task(work())
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task when all end."""
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    async def aclose(self, drain_s: float, *, is_shared: bool = False) -> None:
        """Let running turns end, cancel those that don't in time, and wait for all of them.

        Where the conversations are another's too (`is_shared`), only turns that nobody waits for are ours.
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

    def _leave(self, session_id: str) -> None:
        self._begun[session_id] -= 1
        if not self._begun[session_id]:
            del self._begun[session_id]
