"""Builds notices, the messages about requests to people, and logs the requests that no channel serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from whet.contract.errors import StoreCorrupt
from whet_confirm import sight
from whet_confirm.notify import deliveries
from whet_confirm.notify.faults import UnservedCount
from whet_confirm.notify.notice import RequestNotice
from whet_confirm.notify.notice_text import build_notice
from whet_confirm.notify.one_way import Log
from whet_confirm.records import ConfirmRequest
from whet_confirm.requests import log_unreadable
from whet_confirm.service import ConfirmService, run_off_loop

_LOG = logging.getLogger(__name__)


class NoticeReader:
    """Builds notices. `page_url` is the address of the page, or empty."""

    def __init__(self, service: ConfirmService, page_url: str) -> None:
        self._service = service
        self._page_url = page_url.rstrip("/")

    async def read(
        self, request_id: str, kind: str, is_news: Callable[[ConfirmRequest], bool]
    ) -> tuple[ConfirmRequest, RequestNotice] | None:
        """Return a request with its notice, or None if there is nothing to announce.

        A request that can't be read is skipped, so that it does not block others.
        """
        try:
            request = self._service.get(request_id)
            if request is None or not is_news(request):
                return None
            return request, await run_off_loop(request.length, self._build, request, kind)
        except StoreCorrupt as error:
            log_unreadable(request_id, error.message)
            return None

    def _build(self, request: ConfirmRequest, kind: str) -> RequestNotice:
        service = self._service
        link = f"{self._page_url}/r/{request.id}" if self._page_url else ""
        redacted = service.policy_file.policy.redact
        assessment = sight.assess(service, request)
        return build_notice(request, assessment, link=link, redacted=redacted, kind=kind)


class UnservedLog:
    """The log as the last channel: at most one request a minute in full, and the number of the others."""

    def __init__(self, notices: NoticeReader) -> None:
        self.channel: Log = Log(deliveries.LOG)
        self._notices = notices
        self._count = UnservedCount()

    async def report(self, request_ids: Sequence[str]) -> None:
        """Log the requests that no channel serves."""
        count = self._count.add(len(request_ids), asyncio.get_running_loop().time())
        if not count:
            return
        for request_id in request_ids:  # the first that can be read
            announced = await self._notices.read(request_id, "submitted", lambda request: request.is_pending)
            if announced is not None:
                _, notice = announced
                await self.channel.send(notice)
                break
        if count > 1:
            _LOG.warning("no channel reached a person about %d requests: whet confirm list", count)
