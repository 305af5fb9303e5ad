"""GET /openapi.json: the API as an OpenAPI 3.1 document; its shapes are the types that are read and sent."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from whet import __version__
from whet.contract.events import Event
from whet.serve import native
from whet.serve.chat import ChatRequest
from whet.serve.questions import PendingQuestion
from whet.serve.responses import ResponsesRequest
from whet.store.sessions import SessionRow

_REF = "#/components/schemas/{name}"
_TEXT: dict[str, Any] = {"type": "string"}
_TYPES: tuple[Any, ...] = (
    ChatRequest,
    ResponsesRequest,
    native.SessionInput,
    native.Rename,
    native.NewTurn,
    native.Steering,
    native.QuestionAnswer,
    PendingQuestion,
    SessionRow,
    Event,
)


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Give the document."""
    shapes, components = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    events = shapes[-1]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Whet",
            "version": __version__,
            "description": "OpenAI-compatible calls, and sessions with their events. Every call but /health"
            " and /openapi.json needs a bearer token (`whet serve token`).",
        },
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, "Event": events, "Session": _session(), "Error": _error()},
        },
    }


def _paths() -> dict[str, Any]:
    return {
        **_compat(),
        **_sessions(),
        "/api/approvals": {"get": _call("List the questions that wait for the owner", "object")},
        "/api/approvals/{id}": {"post": _call("Answer one", "object", _path("id"), body="Answering")},
        "/mcp": {"post": _call("Speak MCP: one JSON-RPC message", "object", body="object", streams=True)},
        "/health": {"get": {**_call("Say that it runs", "object"), "security": []}},
        "/openapi.json": {"get": {**_call("Give this document", "object"), "security": []}},
    }


def _compat() -> dict[str, Any]:
    return {
        "/v1/models": {"get": _call("List the models: one, `whet`", "object")},
        "/v1/models/{name}": {"get": _call("Show a model", "object", _path("name"))},
        "/v1/chat/completions": {
            "post": _call(
                "Answer a chat completion", "object", _session_header(), body="ChatRequest", streams=True
            )
        },
        "/v1/responses": {
            "post": _call(
                "Answer a response", "object", _session_header(), body="ResponsesRequest", streams=True
            )
        },
    }


def _sessions() -> dict[str, Any]:
    one = "/api/sessions/{id}"
    return {
        "/api/sessions": {
            "get": _call(
                "List sessions, the last active first",
                "object",
                _query("limit", "integer"),
                _query("before"),
                _query("q"),
            ),
            "post": _call("Begin a session", "Session", body="NewSession", status=201),
        },
        one: {
            "get": _call("Show a session", "Session", _path("id")),
            "patch": _call("Name a session", "Session", _path("id"), body="Rename"),
            "delete": _call("Delete a session and all that was said in it", "object", _path("id")),
        },
        f"{one}/messages": {
            "get": _call(
                "Give the messages after a number",
                "object",
                _path("id"),
                _query("after", "integer"),
                _query("limit", "integer"),
            )
        },
        f"{one}/turns": {
            "post": _call(
                "Start a turn; with Accept: text/event-stream its events",
                "object",
                _path("id"),
                body="NewTurn",
                streams=True,
                status=202,
            )
        },
        f"{one}/events": {
            "get": _call(
                "Stream a session's events",
                "",
                _path("id"),
                _query("after"),
                {"name": "Last-Event-ID", "in": "header", "required": False, "schema": _TEXT},
                streams=True,
            )
        },
        f"{one}/cancel": {"post": _call("Cancel the running turn", "object", _path("id"))},
        f"{one}/steer": {
            "post": _call(
                "Say something to the running turn", "object", _path("id"), body="Steering", status=202
            )
        },
    }


def _call(
    summary: str,
    answer: str,
    *parameters: dict[str, Any],
    body: str = "",
    streams: bool = False,
    status: int = 200,
) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _shape(answer)}} if answer else {}
    responses: dict[str, Any] = {str(status): {"description": "the answer", "content": content}}
    if streams:
        stream = {"text/event-stream": {"schema": _TEXT}}
        if status == 200:
            content.update(stream)
        else:
            responses["200"] = {"description": "the events", "content": stream}
    failed = {"description": "refused, and why", "content": {"application/json": {"schema": _shape("Error")}}}
    responses["default"] = failed
    made: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameters:
        made["parameters"] = list(parameters)
    if body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _shape(body)}}}
    return made


def _shape(name: str) -> dict[str, Any]:
    return {"type": "object"} if name == "object" else {"$ref": _REF.format(name=name)}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _query(name: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"type": kind}}


def _session_header() -> dict[str, Any]:
    return {
        "name": "X-Whet-Session",
        "in": "header",
        "required": False,
        "description": "The session to go on in; every answer names its own.",
        "schema": _TEXT,
    }


def _session() -> dict[str, Any]:
    return {
        "allOf": [_shape("SessionRow"), {"type": "object", "properties": {"running": {"type": "boolean"}}}]
    }


def _error() -> dict[str, Any]:
    maybe: dict[str, Any] = {"type": ["string", "null"]}
    what = {"message": _TEXT, "type": _TEXT, "param": maybe, "code": maybe}
    return {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "required": ["message", "type"], "properties": what}},
    }
