"""The API as one raw ASGI application: routes, the order of the checks, and how a failure is answered.

Every answer is JSON. A path is matched as it came over the wire, so that an encoded slash in an id leads
nowhere. What is not an API path goes to the web application on its port.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from whet.confirm.http import admin, decisions, reading, shapes, streams
from whet.confirm.http.guard import ApiGuard
from whet.confirm.http.metrics import Metrics
from whet.confirm.http.openapi import document
from whet.confirm.http.submissions import idempotency_key, submit
from whet.confirm.http.wire import (
    ClientGone,
    Headers,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    answer,
    encode,
    line_of,
    read_body,
)
from whet.confirm.ids import SHAPE
from whet.confirm.records import ConfirmRequest
from whet.confirm.service import ConfirmService
from whet.contract.errors import StoreBusy, StoreError, StoreFull

ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = tuple[int, dict[str, Any]]
_logger = logging.getLogger("whet.confirm.http")


class Api:
    """The application. `page_url` is where people decide; `web` gets what is not the API's on `web_port`."""

    def __init__(
        self,
        service: ConfirmService,
        guard: ApiGuard,
        page_url: str = "",
        *,
        web: ASGIApp | None = None,
        web_port: int = 0,
    ) -> None:
        self.service = service
        self.guard = guard
        self.metrics = Metrics()
        self._page_url = page_url
        self._web = web
        self._web_port = web_port
        self._encoded: tuple[ConfirmRequest, bytes] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path: bytes = scope["raw_path"]
        if self._web is not None and scope["server"][1] == self._web_port and not is_api_path(path):
            await self._web(scope, receive, send)
            return
        try:
            await self._route(scope, receive, send, path)
        except HttpRefusal as refusal:
            self.metrics.count(refusal.status)
            body = encode({"error": refusal.message, **refusal.more})
            await answer(send, refusal.status, body, refusal.headers)
        except ClientGone:
            return
        except StoreError as error:
            await self._store_failed(send, error)

    async def _route(self, scope: Scope, receive: Receive, send: Send, path: bytes) -> None:
        self.guard.check_origin(scope)
        method = scope["method"]
        parts = path.split(b"/")
        if len(parts) < 2 or parts[0]:
            raise _NOT_FOUND  # `*` and whole addresses, as proxies are sent them
        if parts[1] == b"confirm" and len(parts) <= 4:
            if len(parts) == 2:
                if method == "POST":
                    return await self._submit(scope, receive, send)
                _only(method, "GET", "HEAD")
                who = await self.guard.principal(scope)
                return await self._send(send, (200, reading.listing(self.service, who, scope)))
            request_id = _id(parts[2])
            if len(parts) == 3:
                _only(method, "GET", "HEAD")
                return await self._status(scope, send, request_id)
            if parts[3] == b"grant":
                _only(method, "GET", "HEAD")
                who = await self.guard.principal(scope)
                return await self._send(send, (200, reading.grant(self.service, who, request_id)))
            return await self._verb(scope, receive, send, (request_id, parts[3]))
        await self._route_rest(scope, receive, send, path)

    async def _submit(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = await self.guard.principal(scope)
        body = await read_body(scope, receive)
        status, shown, headers = await submit(self.service, who, scope, body)
        if self._page_url and status == 202:
            shown["page_url"] = f"{self._page_url}/r/{shown['id']}"
        await self._send(send, (status, shown), headers)

    async def _verb(self, scope: Scope, receive: Receive, send: Send, called: tuple[str, bytes]) -> None:
        request_id, name = called
        verb = decisions.VERBS.get(name)
        if verb is None:
            raise _NOT_FOUND
        _only(scope["method"], "POST")
        who = await self.guard.principal(scope)
        body = await read_body(scope, receive)
        key = idempotency_key(scope)
        await self._send(send, await verb(self.service, who, request_id, (body, key)))

    async def _status(self, scope: Scope, send: Send, request_id: str) -> None:
        who = await self.guard.principal(scope)
        request = reading.visible(self.service, who, request_id)
        wait_s = reading.wait_seconds(scope)
        if wait_s > 0 and request.is_pending and not self.service.hub.is_closed:
            found = await self.service.wait(request_id, wait_s, line_of(scope))
            if found is None:
                raise HttpRefusal(404, "there is no such request")
            request = found
        await reading.note_look(self.service, who, request)
        self.metrics.count(200)
        await answer(send, 200, self._record(request))

    def _record(self, request: ConfirmRequest) -> bytes:
        """Give a record as JSON; encoded once for all who waited for the same end."""
        if self._encoded is None or self._encoded[0] is not request:
            self._encoded = (request, encode(shapes.record(request)))
        return self._encoded[1]

    async def _route_rest(self, scope: Scope, receive: Receive, send: Send, path: bytes) -> None:
        method = scope["method"]
        if path == b"/health":
            _only(method, "GET", "HEAD")
            return await self._send(send, (200, reading.health(self.service)))
        if path == b"/openapi.json":
            _only(method, "GET", "HEAD")
            return await self._send(send, (200, document()))
        if path == b"/metrics":
            _only(method, "GET", "HEAD")
            text = self.metrics.render(self.service).encode()
            return await _send_text(send, text)
        if path == b"/keys":
            _only(method, "GET", "HEAD")
            return await self._send(send, (200, admin.keys(self.service)))
        if path == b"/audit":
            _only(method, "GET", "HEAD")
            who = await self.guard.principal(scope)
            return await self._send(send, (200, reading.audit(self.service, who, scope)))
        if path == b"/events":
            _only(method, "GET")
            who = await self.guard.principal(scope)
            return await streams.stream(self.service, self.guard, who, (scope, send))
        if admin.is_admin_path(path):
            who = await self.guard.principal(scope)
            body = await read_body(scope, receive)
            return await self._send(send, await admin.call(self.service, who, (method, path, body), scope))
        raise _NOT_FOUND

    async def _send(self, send: Send, made: Answer, headers: Headers = ()) -> None:
        self.metrics.count(made[0])
        await answer(send, made[0], encode(made[1]), headers)

    async def _store_failed(self, send: Send, error: StoreError) -> None:
        """Answer 503: nothing of the request was done."""
        self.metrics.count(503)
        if not isinstance(error, StoreBusy | StoreFull):
            _logger.error("the database failed: %s", error.message)
        body = encode({"error": error.message, "hint": error.hint})
        await answer(send, 503, body, [(b"retry-after", b"5")])


_NOT_FOUND = HttpRefusal(404, "there is nothing here; GET /openapi.json lists the calls")
_FIRST_PARTS = frozenset(
    {
        b"confirm",
        b"health",
        b"openapi.json",
        b"metrics",
        b"keys",
        b"audit",
        b"events",
        b"whitelist",
        b"callbacks",
    }
)


def is_api_path(path: bytes) -> bool:
    """Whether a path, as it came over the wire, is the API's."""
    return path.split(b"/", 2)[1] in _FIRST_PARTS if path.startswith(b"/") else True


def _id(raw: bytes) -> str:
    text = raw.decode("latin-1")
    if not SHAPE.fullmatch(text):
        raise HttpRefusal(404, "there is no such request")
    return text


def _only(method: str, *allowed: str) -> None:
    if method not in allowed:
        allow = ", ".join(allowed)
        raise HttpRefusal(
            405, f"{method} is not answered here; use {allow}", headers=[(b"allow", allow.encode())]
        )


async def _send_text(send: Send, text: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})
