"""Notify open pages about changes with server-sent events; the page then loads itself again.

An event contains a kind and a request id but no text of a request, so that only the page renders content.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request as Http
from starlette.responses import Response, StreamingResponse

from whet.contract.texts import parse_typed_number
from whet.web.sessions import Sessions
from whet_confirm.records import AuditEvent
from whet_confirm.service import ConfirmService

_BEAT_S = 15.0
_MAX_STREAMS = 200
_QUIET = frozenset(
    ("login", "login_failed", "started", "viewed", "notified", "notify_failed", "delivered", "seen")
)


class RequestStream:
    """The stream that open pages read."""

    def __init__(self, service: ConfirmService, sessions: Sessions) -> None:
        self._service = service
        self._sessions = sessions
        self._open = 0

    async def serve(self, request: Http) -> Response:
        """Answer GET /live?after=N with every event after N. Last-Event-ID takes precedence over `after`."""
        if await self._sessions.find_visit(request) is None:
            return Response(status_code=403)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._open >= _MAX_STREAMS:
            return Response(status_code=503, headers={"retry-after": "5"})
        requested_id = parse_typed_number(
            request.headers.get("last-event-id") or request.query_params.get("after", "")
        )
        newest = self._service.hub.last_id
        after = newest if requested_id is None else min(requested_id, newest)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            self._stream(request, after), media_type="text/event-stream", headers=headers
        )

    async def _stream(self, request: Http, after: int) -> AsyncIterator[bytes]:
        self._open += 1
        hub = self._service.hub
        try:
            yield b"retry: 2000\n\n"
            while not hub.is_closed:
                future = hub.next_event()
                try:
                    events = self._service.log.history(after_id=after)
                    if not events:
                        await asyncio.wait((future,), timeout=_BEAT_S)
                        events = self._service.log.history(after_id=after)
                    # A session that ended meanwhile gets no more events, even if they arrive all the time.
                    if await self._sessions.find_visit(request) is None:
                        return
                    after = events[-1].id if events else after
                    yield _format_events(events) if events else b": still here\n\n"
                finally:
                    hub.cancel_wait(future)
        finally:
            self._open -= 1


def _format_events(events: list[AuditEvent]) -> bytes:
    """Combine several events into one, so that the page reloads once."""
    loud = [event for event in events if event.kind not in _QUIET]
    data = msgspec.json.encode(
        {
            "requests": sorted({event.request_id for event in events if event.request_id})[:50],
            "kinds": sorted({event.kind for event in loud}),
        }
    )
    return b"id: %d\nevent: change\ndata: %s\n\n" % (events[-1].id, data)
