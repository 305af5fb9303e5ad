"""The API as one raw ASGI application: the order of the checks, and how failures are answered.

Every answer is JSON. A path is matched as it came over the wire, so an encoded slash in an id matches no
route. Paths outside the API go to the web application on its port.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import msgspec

from whet.contract.errors import StoreBusy, StoreError, StoreFull
from whet.web.bodies import CallerGone
from whet.web.operations import Methods, Operation
from whet_confirm.http.exchange import Backend, Exchange
from whet_confirm.http.guard import ApiGuard, require_role
from whet_confirm.http.routes import ROUTES
from whet_confirm.http.wire import (
    Headers,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    answer,
    encode,
    parse_object,
    read_as,
    read_body,
)
from whet_confirm.service import LARGE_BYTES, ConfirmService

ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
_logger = logging.getLogger("whet_confirm.http")
_NOT_FOUND = HttpRefusal(404, "there is nothing here; GET /openapi.json lists the calls")


class Api:
    """The application. `page_url` is the page where people decide; `web` gets other paths on `web_port`."""

    def __init__(
        self,
        service: ConfirmService,
        guard: ApiGuard,
        page_url: str = "",
        *,
        web: ASGIApp | None = None,
        web_port: int = 0,
    ) -> None:
        self._backend = Backend(service, guard, page_url)
        self._web = web
        self._web_port = web_port

    def may_start_at_once(self, scope: Scope) -> bool:
        """Return whether a request is for the API. Such a request needs no task until it waits."""
        return not self._is_for_page(scope)

    def _is_for_page(self, scope: Scope) -> bool:
        server = scope["server"]  # None for a Unix socket
        on_web_port = self._web is not None and server and server[1] == self._web_port
        return bool(on_web_port and not ROUTES.covers(scope["raw_path"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path: bytes = scope["raw_path"]
        if self._web is not None and self._is_for_page(scope):
            await self._web(scope, receive, send)
            return
        try:
            await self._dispatch(scope, receive, send, path)
        except HttpRefusal as refusal:
            await self._send(
                send, refusal.status, {"error": refusal.message, **refusal.more}, refusal.headers
            )
        except CallerGone:
            return
        except StoreError as error:
            await self._send_store_error(send, error)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send, path: bytes) -> None:
        guard = self._backend.guard
        guard.check_origin(scope)
        match = ROUTES.find(path)
        if match is None:
            raise _NOT_FOUND
        operation = _find_operation(match[0], scope["method"])
        call = Exchange(self._backend, scope, send, match[1])
        if operation.roles is not None:
            call.caller = await guard.require_caller(scope, is_from_cache=operation.rechecks_token)
        try:
            if operation.roles:
                require_role(call.caller, *operation.roles)
            if operation.body is None:
                call.is_cache_current = not operation.rechecks_token and guard.has_looked_up(call.caller)
                response = await operation.handler(call)
            else:
                call.fields = await _read_fields(operation, call, receive)
                body = (
                    read_as(call.fields, operation.body) if call.fields else _read_empty_body(operation.body)
                )
                response = await operation.handler(call, body)
        except HttpRefusal:
            if operation.rechecks_token:  # a caller with a revoked token gets that error and no other
                await guard.require_caller(scope)
            raise
        if response is not None:  # None: the handler has streamed its own answer
            await self._send(send, *response)

    async def _send(self, send: Send, status: int, body: Any, headers: Headers = ()) -> None:
        self._backend.metrics.count(status)
        await answer(send, status, body if isinstance(body, bytes) else encode(body), headers)

    async def _send_store_error(self, send: Send, error: StoreError) -> None:
        """Answer 503: nothing of the request was done."""
        if not isinstance(error, StoreBusy | StoreFull):
            _logger.error("the database failed: %s", error.message)
        body = {"error": error.message, "hint": error.hint}
        await self._send(send, 503, body, [(b"retry-after", b"5")])


async def _read_fields(operation: Operation, call: Exchange, receive: Receive) -> dict[str, Any]:
    """Read the body."""
    body = await read_body(call.scope, receive)
    call.size_bytes = size = len(body)
    if not operation.needs_body and not body.strip():
        return {}
    return parse_object(body) if size <= LARGE_BYTES else await asyncio.to_thread(parse_object, body)


@lru_cache(maxsize=64)
def _read_empty_body(shape: type[msgspec.Struct]) -> msgspec.Struct:
    """Decode an empty body. Raises HttpRefusal (400) if the type has required fields."""
    return read_as({}, shape)


def _find_operation(methods: Methods, method: str) -> Operation:
    operation = methods.get(method)
    if operation is None:
        allow = ", ".join(methods)
        message = f"{method} is not answered here; use {allow}"
        raise HttpRefusal(405, message, headers=[(b"allow", allow.encode())])
    return operation
