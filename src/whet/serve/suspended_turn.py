"""A turn that is suspended while the client program runs calls, and continues with the program's next
request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from whet.contract.events import Emit, Event, StepFinished, TurnEnd
from whet.contract.messages import Usage
from whet.serve.client_tools import ClientTools, HandedOver

_SETTLE_S = 0.03  # the calls of one step begin to wait one after the other, within this time
ApiEvent = Event | HandedOver


class SuspendedTurn:
    """A running turn, split into rounds. A round ends with the turn, or with calls for the program. `wait_s`:
    how long the turn waits for the results."""

    def __init__(self, session_id: str, tools: ClientTools, wait_s: float) -> None:
        self.session_id = session_id
        self._tools = tools
        self._wait_s = wait_s
        self._emit: Callable[[ApiEvent], None] | None = None
        self._missed: list[Event] = []
        self._usage = Usage()
        self._round_end: asyncio.Future[None] | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._give_up_timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[TurnEnd | None]

    def start(self, work: Callable[[Emit], Coroutine[Any, Any, TurnEnd | None]]) -> None:
        """Start the turn."""
        self.task = asyncio.create_task(work(self._handle_event))
        self.task.add_done_callback(lambda _: self._end_round())

    def note_waiting_call(self) -> None:
        """Record that a call waits for the program. The round ends after `_SETTLE_S` without another call."""
        _cancel_timer(self._settle_timer)
        self._settle_timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._end_if_waiting)

    async def run_round(self, emit: Callable[[ApiEvent], None]) -> TurnEnd:
        """Run until the turn's end or the next calls for the program, and return the end with the usage of
        this round. If the caller is cancelled, the turn is cancelled. Raises WhetError."""
        _cancel_timer(self._give_up_timer)
        self._round_end = asyncio.get_running_loop().create_future()
        self._emit, missed, self._missed = emit, self._missed, []
        for event in missed:
            self._handle_event(event)
        if self.task.done():
            self._end_round()
        elif self._tools.waiting_calls(self.session_id):
            self.note_waiting_call()
        try:
            await self._round_end
            if not self.task.done():
                emit(HandedOver(self._tools.waiting_calls(self.session_id)))
                self._give_up_timer = asyncio.get_running_loop().call_later(self._wait_s, self.task.cancel)
                return TurnEnd(self.session_id, "", "answered", "", 0, self._usage, 0.0)
        except asyncio.CancelledError:
            self.task.cancel()
            await asyncio.wait((self.task,))
            raise
        finally:
            _cancel_timer(self._settle_timer)
            usage, self._usage, self._emit, self._round_end = self._usage, Usage(), None, None
        if self.task.cancelled():
            return TurnEnd(self.session_id, "", "cancelled", "", 0, usage, 0.0)
        end = self.task.result()
        assert end is not None  # it would be None only if another running turn took the text
        return msgspec.structs.replace(end, usage=usage) if usage.total_tokens else end

    def _end_if_waiting(self) -> None:
        if self._tools.waiting_calls(self.session_id):
            self._end_round()

    def _end_round(self) -> None:
        if self._round_end is not None and not self._round_end.done():
            self._round_end.set_result(None)

    def _handle_event(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            self._usage += event.usage
        if self._emit is not None:
            self._emit(event)
        else:
            self._missed.append(event)


def _cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
