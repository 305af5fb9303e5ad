"""GET /events: the audit log as server-sent events, from where the client left off.

A submitter's stream holds what concerns its own requests. A client that reads slowly is waited for; what it
misses meanwhile comes from the database. The token is looked at again every thirty seconds, and whenever a
token is revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

from whet.confirm.http import shapes
from whet.confirm.http.exchange import Exchange
from whet.confirm.http.wire import HttpRefusal, Send, line_of
from whet.confirm.hub import wake
from whet.confirm.records import AuditEvent, Caller
from whet.confirm.service import ConfirmService

BEAT_S = 30.0
_TOKENS = frozenset({"token_revoked", "token_expires"})
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_chunk = lru_cache(maxsize=2048)(shapes.stream_chunk)


async def stream(call: Exchange) -> None:
    """Send events until the client goes, the token is revoked or the service stops."""
    service, guard, scope, send = call.service, call.backend.guard, call.scope, call.send
    after_id = _start(call)
    wanted = _wanted(call.who, call.query.get("request", ""))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _write(send, b"retry: 1000\n: events after %d\n\n" % after_id)
    line = line_of(scope)
    bell = StreamWakeup(service)
    line.listen(bell.ring)
    try:
        while not (service.hub.is_closed or line.is_cut):
            found = service.log.newer(after_id)
            if found:
                after_id = found[-1].id
                if bell.is_late() or any(event.kind in _TOKENS for event in found):
                    await guard.principal(scope)
                body = b"".join(_chunk(event) for event in found if wanted(event))
                if body:
                    await _write(send, body)
            elif not await bell.next():
                await guard.principal(scope)
                await _write(send, b": beat\n\n")
    except HttpRefusal:
        pass  # the token was revoked: the stream ends
    finally:
        line.forget(bell.ring)
    await send({"type": "http.response.body", "body": b""})


class StreamWakeup:
    """What a stream waits for: an event, its client's end, the next beat. A beat that busy times leave no
    room for is late."""

    def __init__(self, service: ConfirmService) -> None:
        self._hub = service.hub
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._beat_s = self._loop.time() + BEAT_S

    def is_late(self) -> bool:
        """Whether a beat has been due since; counts as one."""
        now_s = self._loop.time()
        is_late = now_s >= self._beat_s
        if is_late:
            self._beat_s = now_s + BEAT_S
        return is_late

    async def next(self) -> bool:
        """Wait for an event or the client's end; False where the beat came first."""
        self._future = future = self._hub.next_event()
        timer = self._loop.call_at(ends_s := self._loop.time() + BEAT_S, self.ring)
        try:
            await future
        finally:
            timer.cancel()
            self._hub.forget(future)
        return self._loop.time() < ends_s - 0.01

    def ring(self) -> None:
        """End the wait."""
        if self._future is not None:
            wake((self._future,))


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _start(call: Exchange) -> int:
    text = call.header(b"last-event-id") or call.query.get("after", "")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    call.service.log.catch_up(call.service.timeline)  # what another process wrote before now is not news
    return call.service.hub.last_id


def _wanted(who: Caller, request_id: str) -> Callable[[AuditEvent], bool]:
    owner = who.name if who.role == "submit" else ""

    def wanted(event: AuditEvent) -> bool:
        return (not owner or event.owner == owner) and (not request_id or event.request_id == request_id)

    return wanted
