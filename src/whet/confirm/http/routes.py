"""Every call of the API in one table: dispatch and the OpenAPI document are made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from whet.confirm.http import admin, decisions, reading, shapes, streams, submissions
from whet.confirm.http.exchange import Answer, Exchange
from whet.confirm.http.wire import encode
from whet.confirm.whitelist import AllowedEntry
from whet.web.operations import EVENT_STREAM, Media, Operation, RequestParameter, Routes, document

_SETTLED = {200: shapes.SettledAnswer}
_VOTED = {200: shapes.SettledAnswer, 202: shapes.CountedAnswer}
_KEY = RequestParameter("Idempotency-Key", place="header")
_LIMIT, _BEFORE = RequestParameter("limit", int), RequestParameter("before", int)
_AFTER = RequestParameter("after", int)


async def describe(call: Exchange) -> Answer:
    """Give the OpenAPI document."""
    return 200, _document()


def _verb(
    handler: Callable[..., Awaitable[Answer]],
    summary: str,
    role: str,
    takes: type,
    gives: Mapping[int, type],
    **more: Any,
) -> Operation:
    """Give a call on one request; it is named as its handler is."""
    path = f"/confirm/{{id}}/{handler.__name__}"
    return Operation(
        "POST", path, handler, summary, (role,), takes, gives=gives, failures=(404, 409, 425), **more
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/confirm",
        submissions.submit,
        "Submit an action",
        roles=("submit",),
        takes=shapes.SubmitBody,
        gives={202: shapes.PendingAnswer, 200: shapes.AllowedAnswer},
        parameters=(_KEY,),
        failures=(422,),
    ),
    Operation(
        "GET",
        "/confirm",
        reading.listing,
        "List requests",
        gives={200: shapes.RequestList},
        parameters=(RequestParameter("status"), _LIMIT, _BEFORE),
    ),
    Operation(
        "GET",
        "/confirm/{id}",
        reading.status,
        "Show a request; ?wait=SECONDS waits for its end",
        gives={200: shapes.RequestRecord},
        parameters=(RequestParameter("wait", float),),
        failures=(404,),
    ),
    _verb(decisions.approve, "Approve", "approve", shapes.ApproveBody, _VOTED, needs_body=False),
    _verb(decisions.deny, "Deny", "approve", shapes.DenyBody, _VOTED, needs_body=False),
    _verb(
        decisions.cancel, "Take an own request back", "submit", shapes.CancelBody, _SETTLED, needs_body=False
    ),
    _verb(decisions.amend, "Change the details", "approve", shapes.AmendBody, {200: shapes.AmendedAnswer}),
    _verb(
        decisions.consume,
        "Use an approval up, once",
        "submit",
        shapes.ConsumeBody,
        {200: shapes.ConsumedAnswer},
        parameters=(_KEY,),
    ),
    _verb(decisions.report, "Say what came of it", "submit", shapes.ReportBody, {200: shapes.ReportedAnswer}),
    Operation(
        "GET",
        "/confirm/{id}/grant",
        reading.grant,
        "The signed grant of an approved request",
        roles=("submit", "audit"),
        gives={200: shapes.GrantAnswer},
        failures=(404, 409),
    ),
    Operation(
        "GET",
        "/audit",
        reading.audit,
        "Requests, newest first",
        roles=("audit", "approve"),
        gives={200: shapes.AuditPage},
        parameters=(_LIMIT, _BEFORE),
    ),
    Operation(
        "GET",
        "/audit/events",
        admin.audit_events,
        "The hash-chained log",
        roles=("audit",),
        gives={200: shapes.EventPage},
        parameters=(_AFTER,),
    ),
    Operation(
        "GET",
        "/audit/checkpoint",
        admin.checkpoint,
        "The newest signed checkpoint",
        roles=("audit", "approve"),
        gives={200: shapes.CheckpointAnswer},
    ),
    Operation(
        "GET",
        "/events",
        streams.stream,
        "Server-sent events; Last-Event-ID goes on where a client left off",
        gives={200: EVENT_STREAM},
        parameters=(
            _AFTER,
            RequestParameter("request"),
            RequestParameter("Last-Event-ID", place="header"),
        ),
    ),
    Operation(
        "GET",
        "/whitelist",
        admin.allowed,
        "Whitelist entries",
        roles=("audit",),
        gives={200: shapes.AllowedEntries},
    ),
    Operation(
        "POST",
        "/whitelist",
        admin.allow,
        "Let an action pass for a while",
        roles=("admin",),
        takes=shapes.AllowBody,
        gives={201: AllowedEntry},
    ),
    Operation(
        "DELETE",
        "/whitelist/{entry}",
        admin.disallow,
        "Take an entry back",
        roles=("admin",),
        gives={200: shapes.RowAnswer},
        parameters=(RequestParameter("entry", int, "path"),),
        failures=(404,),
    ),
    Operation(
        "GET",
        "/callbacks",
        admin.dead_letters,
        "Webhooks that have not arrived",
        roles=("audit",),
        gives={200: shapes.DeadLetters},
    ),
    Operation(
        "POST",
        "/callbacks/{number}/retry",
        admin.retry,
        "Have a webhook sent again",
        roles=("admin",),
        gives={200: shapes.RowAnswer},
        parameters=(RequestParameter("number", int, "path"),),
        failures=(404,),
    ),
    Operation(
        "GET", "/keys", admin.keys, "Public keys (JWK set)", roles=None, gives={200: shapes.JsonWebKeys}
    ),
    Operation("GET", "/health", reading.health, "Health", roles=None, gives={200: shapes.HealthAnswer}),
    Operation(
        "GET", "/metrics", reading.metrics, "Prometheus metrics", roles=None, gives={200: Media("text/plain")}
    ),
    Operation("GET", "/openapi.json", describe, "This document", roles=None),
)
ROUTES = Routes(OPERATIONS)


@lru_cache(maxsize=1)
def _document() -> bytes:
    info: dict[str, Any] = {
        "title": "Whet confirmation service",
        "version": version("whet"),
        "description": "An action waits until a person approves or denies it, or time runs out.",
    }
    refused = (400, 401, 403, 405, 408, 413, 429, 431, 503)
    return encode(document(info, OPERATIONS, shapes.ErrorBody, failures=refused))
