"""GET /openapi.json: the API as an OpenAPI 3.1 document."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from whet.confirm.records import STATUSES

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_WHOLE: dict[str, Any] = {"type": "integer"}
_OBJECT: dict[str, Any] = {"type": "object"}


def _object(required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _nullable(shape: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [shape, {"type": "null"}]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_RECORD = _object(
    "id action description details requester session_key status resolved_by resolved_at created_at"
    " timeout_seconds created_at_iso resolved_at_iso digest expires_at",
    id={"type": "string", "pattern": "^[0-9A-Za-z]{22}$"},
    action=_TEXT,
    description=_TEXT,
    details=_OBJECT,
    requester=_TEXT,
    session_key=_TEXT,
    status={"enum": list(STATUSES)},
    resolved_by=_TEXT,
    resolved_at=_nullable(_NUMBER),
    created_at=_NUMBER,
    timeout_seconds=_WHOLE,
    created_at_iso=_TEXT,
    resolved_at_iso=_nullable(_TEXT),
    reason=_TEXT,
    expires_at=_NUMBER,
    digest={"type": "string", "pattern": "^[0-9a-f]{64}$"},
)
_ENTRY = {**_RECORD, "properties": {**_RECORD["properties"], "details": _TEXT}}
_SCHEMAS: dict[str, Any] = {
    "Error": _object("error", error=_TEXT, status=_TEXT, hint=_TEXT, remaining=_WHOLE, window_seconds=_WHOLE),
    "Submission": _object(
        "action description",
        action={"type": "string", "minLength": 1, "maxLength": 256},
        description={"type": "string", "minLength": 1, "maxLength": 65_536},
        details=_OBJECT,
        requester={"type": "string", "default": "agent"},
        session_key={"type": "string", "default": ""},
        timeout_seconds={"type": "integer", "default": 300, "description": "clamped to 30..3600"},
        callback_url={"type": "string", "format": "uri"},
        accepts_edits={"type": "boolean", "default": False},
    ),
    "Pending": _object(
        "id action status timeout_seconds message approve_url deny_url digest",
        id=_TEXT,
        action=_TEXT,
        status={"const": "pending"},
        timeout_seconds=_WHOLE,
        message=_TEXT,
        approve_url=_TEXT,
        deny_url=_TEXT,
        digest=_TEXT,
        expires_at=_NUMBER,
    ),
    "Approved": _object(
        "id action status message digest", id=_TEXT, action=_TEXT, status=_TEXT, message=_TEXT
    ),
    "Settled": _object(
        "id action status resolved_by resolved_at",
        id=_TEXT,
        action=_TEXT,
        status=_TEXT,
        resolved_by=_TEXT,
        resolved_at=_NUMBER,
        reason=_TEXT,
    ),
    "Counted": _object("id status approvals denials quorum", id=_TEXT, approvals=_WHOLE, denials=_WHOLE),
    "Record": _RECORD,
    "Records": _object("count requests", count=_WHOLE, requests={"type": "array", "items": _ref("Record")}),
    "Audit": _object("count entries", count=_WHOLE, entries={"type": "array", "items": _ENTRY}),
    "Health": _object(
        "status pending_count timestamp", status=_TEXT, pending_count=_WHOLE, timestamp=_NUMBER
    ),
    "Consumed": _object("id status digest grant", id=_TEXT, status=_TEXT, digest=_TEXT, grant=_TEXT),
}
_ID = {"name": "id", "in": "path", "required": True, "schema": _TEXT}


def _answers(ok: dict[int, str], *failures: int) -> dict[str, Any]:
    made = {str(status): _json("the answer", name) for status, name in ok.items()}
    for status in (*failures, 400, 401, 403, 405, 408, 413, 429, 431, 503):
        made[str(status)] = _json("refused, and why", "Error")
    return made


def _json(text: str, name: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(name) if name in _SCHEMAS else _OBJECT}}
    return {"description": text, "content": content}


def _call(summary: str, answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"summary": summary, "responses": answers, **more}


def _body(shape: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": shape}}}


def _query(name: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": shape}


def _verb(
    summary: str, ok: dict[int, str], required: bool = False, **fields: dict[str, Any]
) -> dict[str, Any]:
    body = _body({"type": "object", "properties": fields}, required=required)
    answers = _answers(ok, 404, 409, 425)
    return {"parameters": [_ID], "post": _call(summary, answers, requestBody=body)}


def _paths() -> dict[str, Any]:
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {**_TEXT, "maxLength": 255},
    }
    return {
        "/confirm": {
            "post": _call(
                "Submit an action",
                _answers({202: "Pending", 200: "Approved"}, 422),
                parameters=[key],
                requestBody=_body(_ref("Submission"), required=True),
            ),
            "get": _call(
                "List requests",
                _answers({200: "Records"}),
                parameters=[_query("status", _TEXT), _query("limit", _WHOLE), _query("before", _WHOLE)],
            ),
        },
        "/confirm/{id}": {
            "parameters": [_ID],
            "get": _call(
                "Show a request; ?wait=SECONDS waits for its end",
                _answers({200: "Record"}, 404),
                parameters=[_query("wait", _NUMBER)],
            ),
        },
        **_request_paths(),
        **_other_paths(),
    }


def _request_paths() -> dict[str, Any]:
    settled = {200: "Settled"}
    return {
        "/confirm/{id}/approve": _verb(
            "Approve", {**settled, 202: "Counted"}, approver=_TEXT, digest=_TEXT, reason=_TEXT, code=_TEXT
        ),
        "/confirm/{id}/deny": _verb(
            "Deny", {**settled, 202: "Counted"}, denier=_TEXT, digest=_TEXT, reason=_TEXT
        ),
        "/confirm/{id}/cancel": _verb("Take an own request back", settled, reason=_TEXT),
        "/confirm/{id}/amend": _verb(
            "Change the details", {200: "Object"}, True, details=_OBJECT, reason=_TEXT
        ),
        "/confirm/{id}/consume": _verb("Use an approval up, once", {200: "Consumed"}, True, digest=_TEXT),
        "/confirm/{id}/report": _verb(
            "Say what came of it", {200: "Object"}, True, result={"enum": ["executed", "failed"]}, note=_TEXT
        ),
        "/confirm/{id}/grant": {
            "parameters": [_ID],
            "get": _call("The signed grant of an approved request", _answers({200: "Object"}, 404, 409)),
        },
    }


def _other_paths() -> dict[str, Any]:
    return {
        "/audit": {
            "get": _call(
                "Requests, newest first",
                _answers({200: "Audit"}),
                parameters=[_query("limit", _WHOLE), _query("before", _WHOLE)],
            )
        },
        "/audit/events": {
            "get": _call(
                "The hash-chained log", _answers({200: "Object"}), parameters=[_query("after", _WHOLE)]
            )
        },
        "/audit/checkpoint": {"get": _call("The newest signed checkpoint", _answers({200: "Object"}))},
        "/events": {
            "get": _call(
                "Server-sent events; Last-Event-ID goes on where a client left off",
                {"200": {"description": "a stream", "content": {"text/event-stream": {"schema": _TEXT}}}}
                | _answers({}),
                parameters=[_query("after", _WHOLE), _query("request", _TEXT)],
            )
        },
        "/whitelist": {
            "get": _call("Whitelist entries", _answers({200: "Object"})),
            "post": _call(
                "Let an action pass for a while",
                _answers({201: "Object"}),
                requestBody=_body(
                    _object("action principal seconds", action=_TEXT, principal=_TEXT, seconds=_NUMBER),
                    required=True,
                ),
            ),
        },
        "/whitelist/{entry}": {
            "parameters": [{"name": "entry", "in": "path", "required": True, "schema": _WHOLE}],
            "delete": _call("Take an entry back", _answers({200: "Object"}, 404)),
        },
        "/callbacks": {"get": _call("Webhooks that have not arrived", _answers({200: "Object"}))},
        "/keys": {"get": _call("Public keys (JWK set)", _answers({200: "Object"}), security=[])},
        "/health": {"get": _call("Health", _answers({200: "Health"}), security=[])},
        "/metrics": {
            "get": _call(
                "Prometheus metrics",
                {"200": {"description": "metrics", "content": {"text/plain": {"schema": _TEXT}}}}
                | _answers({}),
                security=[],
            )
        },
        "/openapi.json": {"get": _call("This document", _answers({200: "Object"}), security=[])},
    }


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Give the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Whet confirmation service",
            "version": version("whet"),
            "description": "An action waits until a person approves or denies it, or time runs out.",
        },
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
