"""Every call of the API in one table: dispatch and the OpenAPI document are made of it."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from whet.confirm.http import admin, decisions, reading, shapes, streams, submissions
from whet.confirm.http.exchange import Answer, Exchange
from whet.confirm.http.wire import encode
from whet.web.operations import EVENT_STREAM, Media, Operation, RequestParameter, Routes, document

_SETTLED = {200: shapes.SettledAnswer}
_VOTED = {200: shapes.SettledAnswer, 202: shapes.CountedAnswer}
_ON_ONE = (404, 409, 425)
_KEY = RequestParameter("Idempotency-Key", place="header")
_LIMIT, _BEFORE = RequestParameter("limit", int), RequestParameter("before", int)
_AFTER = RequestParameter("after", int)


async def describe(call: Exchange) -> Answer:
    """Give the OpenAPI document."""
    return 200, _document()


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
    Operation(
        "POST",
        "/confirm/{id}/approve",
        decisions.approve,
        "Approve",
        roles=("approve",),
        takes=shapes.ApproveBody,
        needs_body=False,
        gives=_VOTED,
        failures=_ON_ONE,
    ),
    Operation(
        "POST",
        "/confirm/{id}/deny",
        decisions.deny,
        "Deny",
        roles=("approve",),
        takes=shapes.DenyBody,
        needs_body=False,
        gives=_VOTED,
        failures=_ON_ONE,
    ),
    Operation(
        "POST",
        "/confirm/{id}/cancel",
        decisions.cancel,
        "Take an own request back",
        roles=("submit",),
        takes=shapes.CancelBody,
        needs_body=False,
        gives=_SETTLED,
        failures=_ON_ONE,
    ),
    Operation(
        "POST",
        "/confirm/{id}/amend",
        decisions.amend,
        "Change the details",
        roles=("approve",),
        takes=shapes.AmendBody,
        gives={200: shapes.AmendedAnswer},
        failures=_ON_ONE,
    ),
    Operation(
        "POST",
        "/confirm/{id}/consume",
        decisions.consume,
        "Use an approval up, once",
        roles=("submit",),
        takes=shapes.ConsumeBody,
        gives={200: shapes.ConsumedAnswer},
        parameters=(_KEY,),
        failures=_ON_ONE,
    ),
    Operation(
        "POST",
        "/confirm/{id}/report",
        decisions.report,
        "Say what came of it",
        roles=("submit",),
        takes=shapes.ReportBody,
        gives={200: shapes.ReportedAnswer},
        failures=_ON_ONE,
    ),
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
        gives={201: shapes.AllowedEntry},
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
