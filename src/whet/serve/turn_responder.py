"""Answer an HTTP request with one turn, whole or streamed. The turn is cancelled if the client disconnects.

A codec writes the events in the client's format. A silent stream sends a comment every few seconds, and as
often the caller's token is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from whet.contract.errors import WhetError
from whet.contract.events import TurnEnd
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError, JsonAnswer, Stream, Ticker, as_api_error, watch_client

SESSION_HEADER = "x-whet-session"
RunTurn = Callable[[Callable[[ApiEvent], None], Callable[[str], None]], Coroutine[Any, Any, TurnEnd]]
"""Runs a turn. Its arguments receive each event, and the session's id."""


class ResponseCodec(Protocol):
    """Writes a turn in a client's format. `beat` is sent while the stream is silent."""

    beat: bytes

    @property
    def answer(self) -> str:
        """The text that was sent to the client."""
        ...

    def event(self, event: ApiEvent) -> bytes:
        """Return the bytes that a stream sends for an event, often none."""
        ...

    def end(self, end: TurnEnd) -> bytes:
        """Return the last bytes of a stream."""
        ...

    def encode_error(self, error: ApiError) -> bytes:
        """Return the last bytes of a stream that fails after it began."""
        ...

    def whole(self, end: TurnEnd) -> object:
        """Return the body for a request that is not streamed, after `event` has received all events."""
        ...


class EventInbox:
    """The events that a stream has not read yet. When `gone` completes, every wait ends."""

    def __init__(self, gone: asyncio.Future[None]) -> None:
        self.events: list[ApiEvent] = []
        self._gone = gone
        gone.add_done_callback(self.wake)
        self._waiter: asyncio.Future[None] | None = None

    def add(self, event: ApiEvent) -> None:
        """Add an event and wake the stream."""
        self.events.append(event)
        self.wake()

    def wake(self, _: object = None) -> None:
        """Wake the stream even if there is no event."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, patience_s: float) -> list[ApiEvent]:
        """Return the waiting events. If there are none, waits for one, for `wake`, or for `patience_s`."""
        if not self.events and not self._gone.done():
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(patience_s, self.wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        events, self.events = self.events, []
        return events


class TurnResponder:
    """Answers requests with turns.

    A stream waits up to `head_wait_s` for its first piece, then begins with a comment. From then on it is
    never silent for longer than `beat_s`.
    """

    def __init__(self, beat_s: float, head_wait_s: float) -> None:
        self._beat_s = beat_s
        self._head_wait_s = head_wait_s

    async def respond(self, request: Request, run_turn: RunTurn, codec: ResponseCodec) -> Response:
        """Run the turn and answer when it has ended. Raises WhetError."""
        headers: dict[str, str] = {}
        task = asyncio.current_task()
        assert task is not None
        gone: list[bool] = []

        def cancel_turn() -> None:
            gone.append(task.cancel())

        try:
            with watch_client(request.scope, cancel_turn):
                end = await run_turn(
                    lambda event: _ignore(codec.event(event)), _session_header_setter(headers)
                )
        except asyncio.CancelledError:
            if not gone or task.uncancel():
                raise
            return Response(status_code=499)
        if (error := failure_of(end)) is not None:
            raise error
        return JsonAnswer(codec.whole(end), headers=headers)

    def stream(self, run_turn: RunTurn, codec: ResponseCodec, may_go_on: Callable[[], bool]) -> Response:
        """Stream the turn while it runs.

        A failure before the first piece is answered with an error status, unless the model has taken
        longer than `head_wait_s`.
        """

        async def source(gone: asyncio.Future[None]) -> AsyncGenerator[bytes]:
            inbox = EventInbox(gone)
            turn = asyncio.ensure_future(run_turn(inbox.add, _session_header_setter(response.headers)))
            turn.add_done_callback(inbox.wake)
            token_check, silence, is_begun = Ticker(self._beat_s), Ticker(self._head_wait_s), False
            try:
                while not turn.done() or inbox.events:
                    events = await inbox.take(self._beat_s)
                    if gone.done():
                        return
                    if token_check.is_due() and not may_go_on():
                        revoked = ApiError(401, "this token was revoked", code="invalid_api_key")
                        if not is_begun:
                            raise revoked
                        yield codec.encode_error(revoked)
                        return
                    piece = b"".join(codec.event(event) for event in events)
                    if piece:
                        silence.restart()
                    elif silence.is_due():
                        piece = codec.beat
                    if piece:
                        if not is_begun:
                            is_begun, silence = True, Ticker(self._beat_s)
                        yield piece
                yield _encode_end(turn, codec, is_begun=is_begun)
            finally:
                await _stop_turn(turn)

        response = Stream(source)
        return response


def failure_of(end: TurnEnd) -> ApiError | None:
    """Return the API error for a turn's end, or None if the turn has an answer."""
    text = f"{end.error} ({end.hint})" if end.hint else end.error
    if end.is_overflow:
        return ApiError(400, end.error, code="context_length_exceeded", param="messages")
    if end.reason in ("failed", "crashed"):
        return ApiError(502, text or "the turn failed", code="turn_failed")
    if end.reason == "cancelled":
        return ApiError(409, "the turn was cancelled", code="turn_cancelled")
    return None


def _encode_end(turn: asyncio.Future[TurnEnd], codec: ResponseCodec, *, is_begun: bool) -> bytes:
    """Return the last piece of a stream. Raises WhetError if the turn failed before anything was sent."""
    try:
        end = turn.result()
        if (error := failure_of(end)) is not None:
            raise error
        return codec.end(end)
    except WhetError as error:
        if not is_begun:
            raise
        return codec.encode_error(as_api_error(error))


async def _stop_turn(turn: asyncio.Future[TurnEnd]) -> None:
    """Cancel a turn that is still running and wait until its end is stored."""
    if not turn.done():
        turn.cancel()
        await asyncio.wait((turn,))
    if not turn.cancelled():
        turn.exception()  # already reported; read it so that asyncio does not warn


def _session_header_setter(headers: Any) -> Callable[[str], None]:
    def name(session_id: str) -> None:
        headers[SESSION_HEADER] = session_id

    return name


def _ignore(piece: bytes) -> None:
    """Ignore the bytes that a stream would send."""
