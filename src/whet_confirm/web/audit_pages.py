"""Past requests with search, and the state of the audit log."""

from __future__ import annotations

import apsw
import msgspec
from starlette.requests import Request as Http
from starlette.responses import Response

from whet.contract.texts import parse_typed_number
from whet.web.pages import SiteTemplates
from whet.web.sessions import Visit
from whet_confirm import requests, sight
from whet_confirm.records import STATUSES, ConfirmRequest
from whet_confirm.service import ConfirmService
from whet_confirm.web import view
from whet_confirm.web.audit import AuditWatch

_PAGE, _STEP = 50, 500
_MAX_QUERY = 100
_FIELDS = ("id", "action", "description", "requester", "principal", "resolved_by", "reason", "details_json")


class AuditPages:
    """The read-only pages."""

    def __init__(self, service: ConfirmService, pages: SiteTemplates, audit: AuditWatch) -> None:
        self._service = service
        self._pages = pages
        self._audit = audit

    async def history(self, request: Http, visit: Visit) -> Response:
        """Show requests, newest first: all, or those with a status or containing some words."""
        params = request.query_params
        query = params.get("q", "").strip()[:_MAX_QUERY]
        status = params.get("status", "")
        status = status if status in STATUSES else ""
        before_seq = parse_typed_number(params.get("before", "")) or 0
        now_s = self._service.timeline.now_s()
        matches = await self._service.database.read_long(
            lambda db: search(db, query, requests.RequestFilter(status, "", before_seq, _PAGE + 1), now_s)
        )
        shown = matches[:_PAGE]
        assessments = await sight.assess_all(self._service, shown)
        cards = [
            view.build_request_card(match, now_s, each)
            for match, each in zip(shown, assessments, strict=True)
        ]
        return self._pages.answer(
            "history.html",
            visit=visit,
            count=self._service.count_pending(),
            cards=cards,
            q=query,
            wanted=status,
            statuses=STATUSES,
            more=matches[_PAGE - 1].seq if len(matches) > _PAGE else 0,
            is_first=not before_seq,
        )

    async def log(self, request: Http, visit: Visit) -> Response:
        """Show how far the audit log is verified, and its newest events. A POST verifies it now."""
        verified = await self._audit.latest_check(is_asked=request.method == "POST")
        state = self._service.log.state()
        newest = self._service.log.history(after_id=max(state.size - 40, 0))
        return self._pages.answer(
            "log.html",
            visit=visit,
            count=self._service.count_pending(),
            state=state,
            key_id=self._service.key.id,
            verified=verified.report if verified else None,
            verified_at=view.format_moment(verified.at_s) if verified else "",
            checkpoint_at=view.format_moment(state.checkpoint_at),
            events=[(event.id, view.describe_event(event), event.request_id) for event in reversed(newest)],
        )


def search(
    db: apsw.Connection, query: str, criteria: requests.RequestFilter, now_s: float
) -> list[ConfirmRequest]:
    """Return the requests whose fields contain every word of `query`, ignoring case."""
    words = query.casefold().split()[:8]
    if not words:
        return [*requests.select(db, criteria, now_s)]
    matches: list[ConfirmRequest] = []
    step = msgspec.structs.replace(criteria, limit=_STEP)
    while len(matches) < criteria.limit:
        page = [*requests.select(db, step, now_s)]
        matches += [request for request in page if _contains_words(request, words)]
        if len(page) < _STEP:
            break
        step = msgspec.structs.replace(step, before_seq=page[-1].seq)
    return matches[: criteria.limit]


def _contains_words(request: ConfirmRequest, words: list[str]) -> bool:
    text = "\n".join(getattr(request, name) for name in _FIELDS).casefold()
    return all(word in text for word in words)
