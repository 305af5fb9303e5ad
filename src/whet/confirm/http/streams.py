"""GET /events: the audit log as server-sent events, from where the client left off.

A submitter's stream holds what concerns its own requests. A client that reads slowly is waited for; what it
misses meanwhile comes from the database. The token is looked at again every fifteen seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

from whet.confirm.http import shapes
from whet.confirm.http.guard import Guard
from whet.confirm.http.wire import Receive, Refusal, Scope, Send, header, query
from whet.confirm.records import Event, Principal
from whet.confirm.service import Service

BEAT_S = 15.0
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_chunk = lru_cache(maxsize=2048)(shapes.stream_chunk)


async def hung_up(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def stream(service: Service, guard: Guard, who: Principal, call: tuple[Scope, Receive, Send]) -> None:
    """Send events until the client goes, the token is revoked or the service stops."""
    scope, receive, send = call
    after_id = _start(service, scope)
    wanted = _wanted(who, query(scope).get("request", ""))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _write(send, b"retry: 1000\n: events after %d\n\n" % after_id)
    gone = asyncio.ensure_future(hung_up(receive))
    try:
        while not (service.hub.is_closed or gone.done()):
            found = service.newer(after_id)
            if found:
                after_id = found[-1].id
                body = b"".join(_chunk(event) for event in found if wanted(event))
                if body:
                    await _write(send, body)
                continue
            if not await _next(service, gone):
                await guard.principal(scope)
                await _write(send, b": beat\n\n")
    except Refusal:
        pass  # the token was revoked: the stream ends
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _next(service: Service, gone: asyncio.Future[None]) -> bool:
    """Wait for an event, the client's end or the next beat; False for the beat."""
    future = service.hub.next_event()
    try:
        done, _ = await asyncio.wait((future, gone), timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        service.hub.forget(future)
    return bool(done)


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _start(service: Service, scope: Scope) -> int:
    text = header(scope, b"last-event-id") or query(scope).get("after", "")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return service.hub.last_id


def _wanted(who: Principal, request_id: str) -> Callable[[Event], bool]:
    owner = who.name if who.role == "submit" else ""

    def wanted(event: Event) -> bool:
        return (not owner or event.owner == owner) and (not request_id or event.request_id == request_id)

    return wanted
