"""GET /events: the audit log as server-sent events, resuming after the last event that the client received.

A submitter's stream contains only events of its own requests. The stream waits for a client that reads
slowly and then reads the missed events from the database. The token is checked again with every heartbeat,
and whenever a token is revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

from whet.contract.texts import parse_typed_number
from whet.web.connection import connection_of
from whet_confirm.http import answers
from whet_confirm.http.exchange import Exchange
from whet_confirm.http.wire import HttpRefusal, Send
from whet_confirm.hub import wake
from whet_confirm.records import AuditEvent, Caller
from whet_confirm.service import ConfirmService

_TOKENS = frozenset({"token_revoked", "token_expires"})
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_chunk = lru_cache(maxsize=2048)(answers.stream_chunk)


async def stream(call: Exchange) -> None:
    """Stream events as server-sent events. Last-Event-ID resumes after that event. The stream ends when the
    client disconnects, the token is revoked or the service stops. Raises HttpRefusal (429) if the caller has
    too many open streams."""
    with call.backend.held_calls.hold(call.caller):
        await _stream_events(call)


async def _stream_events(call: Exchange) -> None:
    service, guard, scope, send = call.service, call.backend.guard, call.scope, call.send
    after_id = _first_event_id(call)
    is_wanted_event = _make_event_filter(call.caller, call.query.get("request", ""))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _write(send, b"retry: 1000\n: events after %d\n\n" % after_id)
    line = connection_of(scope)
    wakeup = StreamWakeup(service)
    line.listen(wakeup.end_wait)
    heartbeat = call.backend.heartbeats.add(scope, send, wakeup.end_wait)
    try:
        while not (service.hub.is_closed or line.is_cut or heartbeat.is_refused):
            events = service.log.read_after(after_id)
            if events:
                after_id = events[-1].id
                if any(event.kind in _TOKENS for event in events):
                    await guard.require_caller(scope)
                body = b"".join(_chunk(event) for event in events if is_wanted_event(event))
                if body:
                    await _write(send, body)
            else:
                await wakeup.wait()
    except HttpRefusal:
        pass  # the token was revoked: the stream ends
    finally:
        call.backend.heartbeats.remove(heartbeat)
        line.stop_listening(wakeup.end_wait)
    await send({"type": "http.response.body", "body": b""})


class StreamWakeup:
    """Wakes a stream: for an event, its client's disconnect, or the end of its token."""

    def __init__(self, service: ConfirmService) -> None:
        self._hub = service.hub
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for an event or `end_wait`."""
        self._future = future = self._hub.next_event()
        try:
            await future
        finally:
            self._hub.cancel_wait(future)

    def end_wait(self) -> None:
        """End the wait."""
        if self._future is not None:
            wake((self._future,))


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _first_event_id(call: Exchange) -> int:
    after = parse_typed_number(call.header(b"last-event-id") or call.query.get("after", ""))
    if after is not None:
        return after
    # Events that another process wrote before now are not new.
    call.service.log.catch_up(call.service.timeline)
    return call.service.hub.last_id


def _make_event_filter(caller: Caller, request_id: str) -> Callable[[AuditEvent], bool]:
    owner = caller.name if caller.role == "submit" else ""

    def matches(event: AuditEvent) -> bool:
        return (not owner or event.owner == owner) and (not request_id or event.request_id == request_id)

    return matches
