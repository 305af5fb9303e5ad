"""Find messages that a model's server accepts after it has refused a request.

After a permanent refusal the item at fault is left out, or the view is compacted. A temporary failure that
comes twice in a row may also be a refusal: some servers answer a picture that they can't read with 500. Then
a probe is sent without any item that the server has not accepted before. If the probe is accepted and the
whole list fails again, the failure was a refusal; otherwise it is an outage, and is waited out. The decision
depends on the server's behaviour, not on statuses or messages. This module knows no wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from whet.agent.session import Session
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    Unavailable,
)
from whet.contract.events import Emit, Retry
from whet.contract.messages import Message, Usage
from whet.contract.protocols import AttemptLost, ModelReply, StreamItem

_SEARCHED = (AuthRejected, BadRequest, ContextOverflow, ModelRefused)
_FAILURES_BEFORE_DOUBT = 2


class GaveUp(Unavailable):
    """A request was ended instead of waiting for its next attempt."""


class ProbeAccepted(Exception):
    """The server began to answer a probe. `usage` is set if the answer was already complete."""

    def __init__(self, usage: Usage | None) -> None:
        super().__init__()
        self.usage = usage


class RequestSearch:
    """The search of one model call. `view` holds the messages to send next.

    `_stage` is the purpose of the next request. "first": get the answer. "probe": see whether the server
    accepts the list without its suspects. "check": see whether it still fails on the whole list. "search":
    find the item at fault. "wait": get the answer, however long the outage lasts.
    """

    def __init__(self, session: Session, view: Sequence[Message], emit: Emit) -> None:
        self.view: Sequence[Message] = view
        self._session = session
        self._emit = emit
        self._tried = [view]
        self._may_compact = True
        self._stage: Literal["first", "probe", "check", "search", "wait"] = "first"
        self._status = self._failures = 0
        self._last_failure: ProviderError | None = None

    def check_item(self, item: StreamItem) -> None:
        """Check an item of the request's stream. Raises GaveUp if waiting for a retry may be useless, and
        ProbeAccepted."""
        if isinstance(item, Retry):
            if self._should_give_up(item):
                raise GaveUp(item.reason, hint=item.hint, status=item.status or None)
        elif self._stage == "probe" and not isinstance(item, AttemptLost):
            raise ProbeAccepted(item.usage if isinstance(item, ModelReply) else None)

    def _should_give_up(self, retry: Retry) -> bool:
        if self._stage == "wait" or not (retry.status or retry.wait_s):
            return False
        if self._stage != "first":
            return True
        self._failures = self._failures + 1 if retry.status and retry.status == self._status else 1
        self._status = retry.status
        return bool(retry.status) and self._failures >= _FAILURES_BEFORE_DOUBT

    async def check_whole(self) -> None:
        """Make the next request send the whole list again, because the server has accepted the probe."""
        self._stage, self.view = "check", self._tried[0]

    async def choose_next(self, failure: ProviderError) -> bool:
        """Choose the messages of the next request. Returns False if the call has failed with `failure`."""
        if isinstance(failure, Unavailable) or self._stage not in ("first", "wait"):
            return await self._continue_after(failure)
        if not isinstance(failure, _SEARCHED):
            return False
        reduced = await self._reduce_view(failure)
        if reduced is None:
            return False
        self._tried.append(reduced)
        self.view = reduced
        return True

    async def finish(self) -> None:
        """Restore the items that were left out if the whole list was answered: it was only an outage."""
        if self._stage == "check":
            await self._restore_view()

    async def _reduce_view(self, refusal: ProviderError) -> Sequence[Message] | None:
        """Return the view without the item at fault, or compacted; None if neither is possible."""
        context, emit = self._session.context, self._emit
        reduced = None
        if not (self._may_compact and _is_too_long(refusal)):
            reduced = await context.without_refused(refusal, emit, may_shorten=not self._may_compact)
        if reduced is None and self._may_compact and isinstance(refusal, ContextOverflow):
            self._may_compact = False
            reduced = await context.view(
                self._session.log.messages, emit, overflow_limit_tokens=refusal.limit_tokens or 0
            )
            if any(reduced is view for view in self._tried):  # it is as small as compactions can make it
                reduced = await context.without_refused(refusal, emit, may_shorten=True)
        return reduced

    async def _continue_after(self, failure: ProviderError) -> bool:
        """Leave out suspects after a temporary failure, or after any failure of a reduced request; if there
        are none, wait out the outage. Returns False if the call has failed."""
        reduced = None
        if self._stage not in ("wait", "probe") and _may_be_refusal(failure):
            reduced = await self._session.context.without_refused(failure, self._emit)
        if reduced is None:
            return await self._wait_out(failure)
        if self._stage == "first":
            self._last_failure = None if isinstance(failure, GaveUp) else failure
        self._stage = "probe" if self._stage == "first" else "search"
        self.view = reduced
        return True

    async def _wait_out(self, failure: ProviderError) -> bool:
        """Send the whole list again and wait out the outage, unless the request has already done so."""
        if self._stage == "wait" or (self._stage == "first" and not isinstance(failure, GaveUp)):
            return False
        if self._stage != "first":
            await self._restore_view()
        self._stage = "wait"
        if self._last_failure is not None:
            raise self._last_failure
        return True

    async def _restore_view(self) -> None:
        self.view = await self._session.context.view(self._session.log.messages, self._emit)


def _may_be_refusal(failure: ProviderError) -> bool:
    """Return whether the server answered, without naming a time after which it will be available."""
    is_named_outage = isinstance(failure, Unavailable) and failure.retry_after_s is not None
    return failure.status is not None and not is_named_outage


def _is_too_long(refusal: ProviderError) -> bool:
    """Return whether the server refused the conversation's length in tokens, not one item or the bytes."""
    return isinstance(refusal, ContextOverflow) and refusal.status != 413 and not refusal.part
