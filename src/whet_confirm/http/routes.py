"""The table of all API calls, from which dispatch and the OpenAPI document are built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from whet.web.operations import EVENT_STREAM, Media, Operation, RequestParameter, Routes, build_document
from whet_confirm.http import admin, decisions, reading, shapes, streams, submissions
from whet_confirm.http.exchange import Answer, Exchange
from whet_confirm.http.wire import encode
from whet_confirm.stand_ins import Delegation
from whet_confirm.whitelist import AllowedEntry

_SETTLED = {200: shapes.SettledAnswer}
_VOTED = {200: shapes.SettledAnswer, 202: shapes.CountedAnswer}
_KEY = RequestParameter("Idempotency-Key", location="header")
_STATUS = RequestParameter("status")
_LIMIT, _BEFORE = RequestParameter("limit", int), RequestParameter("before", int)
_AFTER_PARAMETER = RequestParameter("after", int)


async def describe(call: Exchange) -> Answer:
    """Return this document."""
    return 200, read_document()


def _request_operation(
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
        answers=gives,
        failures=(404, 409, 425),
        rechecks_token=True,
        **more,
    )


def _read_operation(
    path: str, handler: Callable[..., Awaitable[Answer | None]], gives: Any, **more: Any
) -> Operation:
    """Build the operation of a read-only call."""
    return Operation("GET", path, handler, answers={200: gives}, **more)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/confirm",
        submissions.submit,
        roles=("submit",),
        body=shapes.SubmitBody,
        answers={202: shapes.PendingAnswer, 200: shapes.AllowedAnswer},
        parameters=(_KEY,),
        failures=(422,),
        rechecks_token=True,
    ),
    _read_operation("/confirm", reading.listing, shapes.RequestList, parameters=(_STATUS, _LIMIT, _BEFORE)),
    _read_operation(
        "/confirm/{id}",
        reading.status,
        shapes.RequestRecord,
        parameters=(RequestParameter("wait", float), RequestParameter("attended", int)),
        failures=(404,),
    ),
    _request_operation(decisions.approve, "approve", shapes.ApproveBody, _VOTED, needs_body=False),
    _request_operation(decisions.deny, "approve", shapes.DenyBody, _VOTED, needs_body=False),
    _request_operation(decisions.cancel, "submit", shapes.CancelBody, _SETTLED, needs_body=False),
    _request_operation(decisions.amend, "approve", shapes.AmendBody, {200: shapes.AmendedAnswer}),
    _request_operation(
        decisions.consume, "submit", shapes.ConsumeBody, {200: shapes.ConsumedAnswer}, parameters=(_KEY,)
    ),
    _request_operation(decisions.report, "submit", shapes.ReportBody, {200: shapes.ReportedAnswer}),
    _read_operation(
        "/confirm/{id}/grant",
        reading.grant,
        shapes.GrantAnswer,
        roles=("submit", "audit"),
        failures=(404, 409),
    ),
    _read_operation(
        "/confirm/{id}/deliveries",
        reading.deliveries_of,
        shapes.DeliveryList,
        roles=("approve", "audit"),
        failures=(404,),
    ),
    _read_operation(
        "/audit", reading.audit, shapes.AuditPage, roles=("audit", "approve"), parameters=(_LIMIT, _BEFORE)
    ),
    _read_operation(
        "/audit/events",
        admin.audit_events,
        shapes.EventPage,
        roles=("audit",),
        parameters=(_AFTER_PARAMETER,),
    ),
    _read_operation(
        "/audit/checkpoint", admin.checkpoint, shapes.CheckpointAnswer, roles=("audit", "approve")
    ),
    _read_operation(
        "/events",
        streams.stream,
        EVENT_STREAM,
        parameters=(
            _AFTER_PARAMETER,
            RequestParameter("request"),
            RequestParameter("Last-Event-ID", location="header"),
        ),
    ),
    _read_operation("/whitelist", admin.list_whitelist, shapes.AllowedEntries, roles=("audit", "approve")),
    Operation(
        "POST",
        "/whitelist",
        admin.allow,
        roles=("admin",),
        body=shapes.AllowBody,
        answers={201: AllowedEntry},
    ),
    Operation(
        "DELETE",
        "/whitelist/{entry}",
        admin.disallow,
        roles=("approve",),
        answers={200: shapes.RowAnswer},
        parameters=(RequestParameter("entry", int, "path"),),
        failures=(404,),
    ),
    Operation(
        "POST",
        "/decisions",
        decisions.decide_many,
        roles=("approve",),
        body=shapes.ManyBody,
        answers={200: shapes.ManyAnswer},
    ),
    _read_operation("/delegations", admin.delegations, shapes.DelegationList, roles=("approve",)),
    Operation(
        "POST",
        "/delegations",
        admin.delegate,
        roles=("approve",),
        body=shapes.AwayBody,
        answers={201: Delegation},
    ),
    Operation(
        "DELETE",
        "/delegations/{number}",
        admin.end_delegation,
        roles=("approve",),
        answers={200: shapes.RowAnswer},
        parameters=(RequestParameter("number", int, "path"),),
        failures=(404,),
    ),
    _read_operation("/callbacks", admin.dead_letters, shapes.DeadLetters, roles=("audit",)),
    Operation(
        "POST",
        "/callbacks/{number}/retry",
        admin.retry,
        roles=("admin",),
        answers={200: shapes.RowAnswer},
        parameters=(RequestParameter("number", int, "path"),),
        failures=(404,),
    ),
    _read_operation("/keys", admin.keys, shapes.JsonWebKeys, roles=None),
    _read_operation("/health", reading.health, shapes.HealthAnswer, roles=None),
    _read_operation("/metrics", reading.metrics, Media("text/plain"), roles=None),
    Operation("GET", "/openapi.json", describe, roles=None),
)
ROUTES = Routes(OPERATIONS)


@lru_cache(maxsize=1)
def read_document() -> bytes:
    info: dict[str, Any] = {
        "title": "Whet confirmation service",
        "version": version("whet-agent"),
        "description": "An action waits until a person approves or denies it, or time runs out.",
    }
    refused = (400, 401, 403, 405, 408, 413, 429, 431, 503)
    return encode(build_document(info, OPERATIONS, shapes.ErrorBody, failures=refused))
