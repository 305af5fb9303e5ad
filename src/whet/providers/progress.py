"""Give up an answer that makes no progress, although bytes keep coming."""

from __future__ import annotations

import asyncio

from whet.contract.errors import Unavailable
from whet.contract.protocols import ModelInfo
from whet.providers.http import Http

_CONTENT_TIMES = 5  # a model with hidden reasoning sends events without content for some minutes


class AnswerProgress:
    """The time of an answer's last progress. Comments and blank lines are no progress. Events without content
    are, but only for `_CONTENT_TIMES` the time limit."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._event_s = self._content_s = asyncio.get_running_loop().time()
        self._call_chars = 0

    def note(self, info: ModelInfo, *, has_events: bool, delta_count: int, call_chars: int) -> None:
        """Record received bytes. Raises Unavailable if there was no progress for too long."""
        now_s, limit_s = asyncio.get_running_loop().time(), self._http.timeout_s
        if has_events:
            self._event_s = now_s
        if delta_count or call_chars > self._call_chars:
            self._content_s, self._call_chars = now_s, call_chars
        if now_s - self._event_s <= limit_s and now_s - self._content_s <= _CONTENT_TIMES * limit_s:
            return
        idle_s = now_s - self._content_s
        raise Unavailable(
            f"{info.provider}: {self._http.where} sent nothing of an answer for {idle_s:.0f} s",
            hint="model.timeout_s sets the limit",
            provider=info.provider,
            model=info.model,
        )
