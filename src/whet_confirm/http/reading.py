"""The calls that only read: one request, lists, the audit page, health, metrics."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from whet.contract.texts import parse_typed_number
from whet.web.connection import connection_of
from whet_confirm import attendance, sight
from whet_confirm.http import answers, shapes
from whet_confirm.http.decisions import build_grant
from whet_confirm.http.exchange import Answer, Exchange
from whet_confirm.http.wire import HttpRefusal
from whet_confirm.notify import deliveries
from whet_confirm.records import STATUSES, ConfirmRequest
from whet_confirm.requests import RequestFilter
from whet_confirm.service import run_off_loop

LONGEST_WAIT_S = 300.0
_PAGE, _LARGEST_PAGE = 50, 500
_PLAIN = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]


async def status(call: Exchange) -> Answer:
    """Return a request; ?wait=SECONDS waits until it ends. With &attended=1 the request is cancelled if the
    caller, its submitter, stops waiting."""
    request = _find_visible(call)
    wait_s = read_wait_s(call.query)
    if wait_s > 0 and request.is_pending and not call.service.hub.is_closed:
        await _note_attendance(call, request)
        with call.backend.held_calls.hold(call.caller), _attend(call, request):
            latest = await call.service.wait(request.id, wait_s, connection_of(call.scope))
        if latest is None:
            raise HttpRefusal(404, "there is no such request")
        request = latest
    if call.caller.role == "approve" and request.is_pending:
        await call.service.mark_viewed(request, call.caller)
    assessment = sight.assess(call.service, request)
    return 200, await run_off_loop(request.length, call.backend.record, request, assessment)


def _is_attended(call: Exchange, request: ConfirmRequest) -> bool:
    return call.query.get("attended") == "1" and request.principal == call.caller.name


async def _note_attendance(call: Exchange, request: ConfirmRequest) -> None:
    if _is_attended(call, request) and call.service.attendance.needs_note(request.id):
        await call.service.change(lambda tx: attendance.note(tx, request.id, call.caller))


@contextmanager
def _attend(call: Exchange, request: ConfirmRequest) -> Generator[None]:
    """Count the wait if the caller is the only one who would run the action."""
    if not _is_attended(call, request):
        yield
        return
    waits, hub = call.service.attendance, call.service.hub
    waits.begin_wait(request.id)
    try:
        yield
    finally:
        is_cut = connection_of(call.scope).is_cut and not hub.is_closed
        waits.end_wait(request.id, call.caller, is_cut=is_cut)


async def deliveries_of(call: Exchange) -> Answer:
    """Return the state of each channel's and device's deliveries of a request."""
    request = _find_visible(call)
    now_s = call.service.timeline.now_s()
    rows = call.service.database.read_now(lambda db: deliveries.list_deliveries(db, request.id, now_s))
    records = [answers.delivery_record(row) for row in rows]
    return 200, shapes.DeliveryList(records)


async def grant(call: Exchange) -> Answer:
    """Return the signed grant of an approved request."""
    request = _find_visible(call)
    if request.status not in ("approved", "auto_approved"):
        raise HttpRefusal(409, f"it is {request.status}, not approved", more={"status": request.status})
    return 200, answers.build_answer(shapes.GrantAnswer, request, grant=build_grant(call.service, request))


async def listing(call: Exchange) -> Answer:
    """List requests. Newest first, paged with ?before=; a submitter sees its own."""
    query = call.query
    status_filter = query.get("status", "")
    if status_filter and status_filter not in STATUSES:
        raise HttpRefusal(400, f"status must be one of: {', '.join(STATUSES)}")
    limit = read_limit(query)
    owner = call.caller.name if call.caller.role == "submit" else ""
    requests = call.service.list(RequestFilter(status_filter, owner, read_before(query), limit))
    length = sum(request.length for request in requests)
    assessments = await sight.assess_all(call.service, requests)
    records = await run_off_loop(length, lambda: [*map(answers.record, requests, assessments)])
    return 200, shapes.RequestList(len(requests), records, answers.next_page(requests, limit))


async def audit(call: Exchange) -> Answer:
    """List requests, newest first. In the contract's format, paged with ?before=."""
    limit = read_limit(call.query)
    requests = call.service.list(RequestFilter(before_seq=read_before(call.query), limit=limit))
    entries = [answers.audit_entry(request) for request in requests]
    return 200, shapes.AuditPage(len(requests), entries, answers.next_page(requests, limit))


async def health(call: Exchange) -> Answer:
    """Return the service's health."""
    service, now_s = call.service, call.service.timeline.now_s()
    unreached = await service.database.read_long(lambda db: deliveries.count_unreached(db, now_s))
    return 200, shapes.HealthAnswer("ok", service.count_pending(), now_s, unreached)


async def metrics(call: Exchange) -> Answer:
    """Return Prometheus metrics."""
    text = await call.backend.metrics.render(call.service)
    return 200, text.encode(), _PLAIN


def _find_visible(call: Exchange) -> ConfirmRequest:
    """Return the request if the caller may see it; a submitter sees only its own. Raises HttpRefusal (404).

    Must be called before anything is awaited, so that `is_cache_current` still holds.
    """
    request = call.service.get(call.request_id, is_cache_current=call.is_cache_current)
    if request is None or (call.caller.role == "submit" and request.principal != call.caller.name):
        raise HttpRefusal(404, "there is no such request")
    return request


def read_wait_s(query: dict[str, str]) -> float:
    """Parse ?wait=SECONDS, at most five minutes. Text that is not a number means no wait."""
    try:
        return max(0.0, min(float(query.get("wait", "")), LONGEST_WAIT_S))
    except ValueError:
        return 0.0


def read_limit(query: dict[str, str]) -> int:
    try:
        return max(1, min(int(query.get("limit", _PAGE)), _LARGEST_PAGE))
    except ValueError:
        return _PAGE


def read_before(query: dict[str, str]) -> int:
    return parse_typed_number(query.get("before", "")) or 0
