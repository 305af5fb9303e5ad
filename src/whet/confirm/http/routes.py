"""Every call of the API in one table, which dispatch and the OpenAPI document are built from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from whet.confirm.http import admin, decisions, reading, shapes, streams, submissions
from whet.confirm.http.exchange import Answer, Exchange
from whet.confirm.http.wire import encode
from whet.confirm.stand_ins import Delegation
from whet.confirm.whitelist import AllowedEntry
from whet.web.operations import EVENT_STREAM, Media, Operation, RequestParameter, Routes, document

_SETTLED = {200: shapes.SettledAnswer}
_VOTED = {200: shapes.SettledAnswer, 202: shapes.CountedAnswer}
_KEY = RequestParameter("Idempotency-Key", place="header")
_STATUS, _LIMIT, _BEFORE = (
    RequestParameter("status"),
    RequestParameter("limit", int),
    RequestParameter("before", int),
)
_AFTER = RequestParameter("after", int)


async def describe(call: Exchange) -> Answer:
    """Return this document."""
    return 200, _document()


def _verb(
    handler: Callable[..., Awaitable[Answer]],
    role: str,
    takes: type,
    gives: Mapping[int, type],
    **more: Any,
) -> Operation:
    """Build the operation of a call on one request. Its path ends with the handler's name."""
    path = f"/confirm/{{id}}/{handler.__name__}"
    return Operation(
        "POST",
        path,
        handler,
        (role,),
        takes,
        gives=gives,
        failures=(404, 409, 425),
        looks_again=True,
        **more,
    )


def _get(path: str, handler: Callable[..., Awaitable[Answer | None]], gives: Any, **more: Any) -> Operation:
    """Build the operation of a read-only call."""
    return Operation("GET", path, handler, gives={200: gives}, **more)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/confirm",
        submissions.submit,
        roles=("submit",),
        takes=shapes.SubmitBody,
        gives={202: shapes.PendingAnswer, 200: shapes.AllowedAnswer},
        parameters=(_KEY,),
        failures=(422,),
        looks_again=True,
    ),
    _get("/confirm", reading.listing, shapes.RequestList, parameters=(_STATUS, _LIMIT, _BEFORE)),
    _get(
        "/confirm/{id}",
        reading.status,
        shapes.RequestRecord,
        parameters=(RequestParameter("wait", float),),
        failures=(404,),
    ),
    _verb(decisions.approve, "approve", shapes.ApproveBody, _VOTED, needs_body=False),
    _verb(decisions.deny, "approve", shapes.DenyBody, _VOTED, needs_body=False),
    _verb(decisions.cancel, "submit", shapes.CancelBody, _SETTLED, needs_body=False),
    _verb(decisions.amend, "approve", shapes.AmendBody, {200: shapes.AmendedAnswer}),
    _verb(decisions.consume, "submit", shapes.ConsumeBody, {200: shapes.ConsumedAnswer}, parameters=(_KEY,)),
    _verb(decisions.report, "submit", shapes.ReportBody, {200: shapes.ReportedAnswer}),
    _get(
        "/confirm/{id}/grant",
        reading.grant,
        shapes.GrantAnswer,
        roles=("submit", "audit"),
        failures=(404, 409),
    ),
    _get("/audit", reading.audit, shapes.AuditPage, roles=("audit", "approve"), parameters=(_LIMIT, _BEFORE)),
    _get("/audit/events", admin.audit_events, shapes.EventPage, roles=("audit",), parameters=(_AFTER,)),
    _get("/audit/checkpoint", admin.checkpoint, shapes.CheckpointAnswer, roles=("audit", "approve")),
    _get(
        "/events",
        streams.stream,
        EVENT_STREAM,
        parameters=(_AFTER, RequestParameter("request"), RequestParameter("Last-Event-ID", place="header")),
    ),
    _get("/whitelist", admin.allowed, shapes.AllowedEntries, roles=("audit",)),
    Operation(
        "POST", "/whitelist", admin.allow, roles=("admin",), takes=shapes.AllowBody, gives={201: AllowedEntry}
    ),
    Operation(
        "DELETE",
        "/whitelist/{entry}",
        admin.disallow,
        roles=("admin",),
        gives={200: shapes.RowAnswer},
        parameters=(RequestParameter("entry", int, "path"),),
        failures=(404,),
    ),
    Operation(
        "POST",
        "/decisions",
        decisions.decide_many,
        roles=("approve",),
        takes=shapes.ManyBody,
        gives={200: shapes.ManyAnswer},
    ),
    _get("/delegations", admin.delegations, shapes.DelegationList, roles=("approve",)),
    Operation(
        "POST",
        "/delegations",
        admin.delegate,
        roles=("approve",),
        takes=shapes.AwayBody,
        gives={201: Delegation},
    ),
    Operation(
        "DELETE",
        "/delegations/{number}",
        admin.come_back,
        roles=("approve",),
        gives={200: shapes.RowAnswer},
        parameters=(RequestParameter("number", int, "path"),),
        failures=(404,),
    ),
    _get("/callbacks", admin.dead_letters, shapes.DeadLetters, roles=("audit",)),
    Operation(
        "POST",
        "/callbacks/{number}/retry",
        admin.retry,
        roles=("admin",),
        gives={200: shapes.RowAnswer},
        parameters=(RequestParameter("number", int, "path"),),
        failures=(404,),
    ),
    _get("/keys", admin.keys, shapes.JsonWebKeys, roles=None),
    _get("/health", reading.health, shapes.HealthAnswer, roles=None),
    _get("/metrics", reading.metrics, Media("text/plain"), roles=None),
    Operation("GET", "/openapi.json", describe, roles=None),
)
ROUTES = Routes(OPERATIONS)


@lru_cache(maxsize=1)
def _document() -> bytes:
    info: dict[str, Any] = {
        "title": "Whet confirmation service",
        "version": version("whet-agent"),
        "description": "An action waits until a person approves or denies it, or time runs out.",
    }
    refused = (400, 401, 403, 405, 408, 413, 429, 431, 503)
    return encode(document(info, OPERATIONS, shapes.ErrorBody, failures=refused))
