"""Notify open pages of a change, so that they fetch themselves again.

An event contains no text, so that only templates render text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from whet.contract.events import Event, StepFinished, ToolFinished, TurnEnd
from whet.serve.turns import Turns
from whet.serve.wire import Stream
from whet.web.sessions import Sessions

_MAX_STREAMS = 100
_VISIBLE_EVENTS = (StepFinished, ToolFinished, TurnEnd)


class DashboardStream:
    """The stream that open pages listen to."""

    def __init__(self, turns: Turns, sessions: Sessions, beat_s: float) -> None:
        self._turns = turns
        self._sessions = sessions
        self._beat_s = beat_s
        self._open = 0
        self._changed = asyncio.Event()
        turns.questions.listeners.append(self._wake)
        turns.feeds.listeners.append(self._handle_event)

    async def serve(self, request: Request) -> Response:
        """Answer GET /live with an event for each change."""
        if await self._sessions.find_visit(request) is None:
            return Response(status_code=403)
        if self._open >= _MAX_STREAMS:
            return Response(status_code=503, headers={"retry-after": "5"})

        async def source(gone: asyncio.Future[None]) -> AsyncGenerator[bytes]:
            self._open += 1
            changed = self._changed  # a change while a piece is being sent is reported after it
            try:
                yield b"retry: 2000\n\n"
                while not (gone.done() or self._turns.feeds.is_closed):
                    if await self._wait(changed, gone):
                        changed = self._changed
                        yield b"event: change\ndata: {}\n\n"
                    elif await self._sessions.find_visit(request) is None:
                        return  # the login has ended meanwhile
                    else:
                        yield b": still here\n\n"
            finally:
                self._open -= 1

        return Stream(source)

    async def _wait(self, changed: asyncio.Event, gone: asyncio.Future[None]) -> bool:
        waiter = asyncio.ensure_future(changed.wait())
        try:
            await asyncio.wait((waiter, gone), timeout=self._beat_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        return changed.is_set()

    def _handle_event(self, session_id: str, event: Event) -> None:
        if isinstance(event, _VISIBLE_EVENTS):
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
