"""The table of all API calls, from which Starlette's routes and the OpenAPI document are generated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whet import __version__
from whet.contract.events import Event
from whet.serve import native
from whet.serve.auth import ApiAuth, require_owner
from whet.serve.chat import ChatRequest
from whet.serve.embeddings import Embeddings
from whet.serve.mcp_endpoint import McpEndpoint
from whet.serve.messages import MessagesRequest
from whet.serve.native import Native, QuestionList, SessionFacts
from whet.serve.responses import ResponsesRequest
from whet.serve.vendor_endpoints import VendorEndpoints
from whet.serve.wire import ErrorAnswer, read_json
from whet.web.operations import EVENT_STREAM, JSON_OBJECT, Media, Operation, RequestParameter, build_document

OpenHandler = Callable[[Request], Awaitable[Response]]
_OWNER = ("owner",)
_SESSION_PATH = "/api/sessions/{id}"
_JSON_OR_STREAM = {200: (JSON_OBJECT, EVENT_STREAM)}
_SESSION = RequestParameter(
    "X-Whet-Session", location="header", description="The session to continue; every answer names its own."
)
_LIMIT, _AFTER = RequestParameter("limit", int), RequestParameter("after", int)


def vendor_calls(endpoints: VendorEndpoints, embeddings: Embeddings) -> tuple[Operation, ...]:
    """Return the calls of OpenAI's and Anthropic's clients."""
    answering = {
        "/v1/chat/completions": (endpoints.chat, ChatRequest),
        "/v1/responses": (endpoints.responses, ResponsesRequest),
        "/v1/messages": (endpoints.messages, MessagesRequest),
    }
    count = Operation("POST", "/v1/messages/count_tokens", endpoints.count_tokens, body=MessagesRequest)
    return (
        Operation("GET", "/v1/models", endpoints.models),
        Operation("GET", "/v1/models/{name:path}", endpoints.model),
        *(
            Operation("POST", path, handler, body=shape, answers=_JSON_OR_STREAM, parameters=(_SESSION,))
            for path, (handler, shape) in answering.items()
        ),
        count,
        Operation("POST", "/v1/embeddings", embeddings.create, body=JSON_OBJECT),
    )


def session_calls(api: Native) -> tuple[Operation, ...]:
    """Return the calls of the session API."""
    session = {200: SessionFacts}
    return (
        Operation(
            "GET",
            "/api/sessions",
            api.sessions,
            parameters=(_LIMIT, RequestParameter("before"), RequestParameter("q")),
        ),
        Operation("POST", "/api/sessions", api.create, body=native.SessionInput, answers={201: SessionFacts}),
        Operation("GET", _SESSION_PATH, api.show, answers=session),
        Operation("PATCH", _SESSION_PATH, api.rename, body=native.Rename, answers=session),
        Operation("DELETE", _SESSION_PATH, api.delete),
        Operation("GET", f"{_SESSION_PATH}/messages", api.messages, parameters=(_AFTER, _LIMIT)),
        *_turn_calls(api),
        Operation("GET", "/api/approvals", api.approvals, roles=_OWNER, answers={200: QuestionList}),
        Operation("POST", "/api/approvals/{id}", api.answer, roles=_OWNER, body=native.QuestionAnswer),
    )


def _turn_calls(api: Native) -> tuple[Operation, ...]:
    return (
        Operation(
            "POST",
            f"{_SESSION_PATH}/turns",
            api.turn,
            body=native.NewTurn,
            answers={202: JSON_OBJECT, 200: EVENT_STREAM},
        ),
        Operation(
            "GET",
            f"{_SESSION_PATH}/events",
            api.events,
            answers={200: EVENT_STREAM},
            parameters=(RequestParameter("after"), RequestParameter("Last-Event-ID", location="header")),
        ),
        Operation("POST", f"{_SESSION_PATH}/cancel", api.cancel),
        Operation(
            "POST", f"{_SESSION_PATH}/steer", api.steer, body=native.Steering, answers={202: JSON_OBJECT}
        ),
    )


def mcp_call(hosts: McpEndpoint) -> Operation:
    """Return the call of MCP clients."""
    return Operation("POST", "/mcp", hosts.post, roles=_OWNER, body=JSON_OBJECT, answers=_JSON_OR_STREAM)


def public_calls(
    describe: OpenHandler, health: OpenHandler, ready: OpenHandler, metrics: OpenHandler
) -> tuple[Operation, ...]:
    """Return the calls without a token: the OpenAPI document, health, readiness and metrics."""
    return (
        Operation("GET", "/openapi.json", describe, roles=None),
        Operation("GET", "/health", health, roles=None),
        Operation("GET", "/ready", ready, roles=None),
        Operation("GET", "/metrics", metrics, answers={200: Media("text/plain")}, roles=None),
    )


def route_of(operation: Operation, auth: ApiAuth) -> Route:
    """Return a route that authenticates a call, reads its body and calls its handler."""

    async def endpoint(request: Request) -> Response:
        if operation.roles is None:
            return await operation.handler(request)
        caller = auth.authenticate(request)
        if operation.roles:
            require_owner(caller)
        if operation.body is None:
            return await operation.handler(request, caller)
        return await operation.handler(request, caller, await read_json(request, operation.body))

    return Route(operation.path, endpoint, methods=[operation.method])


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    info = {
        "title": "Whet",
        "version": __version__,
        "description": "OpenAI- and Anthropic-compatible calls, and sessions with their events. Every call"
        " but /health, /ready, /metrics and /openapi.json needs a bearer token (`whet serve token`).",
    }
    return build_document(info, operations, ErrorAnswer, named={"Event": Event})
