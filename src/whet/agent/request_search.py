"""Find the list of messages that a model's server takes, if it refuses the first one.

A refusal that no repetition mends is followed by the list without the item at fault, or by a smaller view. A
failure that may pass, twice in a row, can be either: some servers answer a picture that they can't read with
500. The request is then tried without all that the server has not taken before. If that is taken and the
whole list fails again, the failure was a refusal; else it is an outage, and is waited out. Decides by what
the server does, not by a status or by words. This module knows no wire format.
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
    """An attempt was ended instead of waiting longer."""


class ProbeTaken(Exception):
    """The server began to answer a request that was sent to see whether it does.

    `usage` is that of a whole answer, None if the request was ended at its first item.
    """

    def __init__(self, usage: Usage | None) -> None:
        super().__init__()
        self.usage = usage


class RequestSearch:
    """The search of one model call. `view` is the list to send next.

    `_stage` is what the next request is for. "first": the answer. "probe": to see whether the server takes
    the list without all suspects. "check": whether it still fails on the whole list. "search": to find the
    item at fault. "wait": the answer, however long the outage lasts.
    """

    def __init__(self, session: Session, view: Sequence[Message], emit: Emit) -> None:
        self.view: Sequence[Message] = view
        self._session = session
        self._emit = emit
        self._tried = [view]
        self._compacts = True
        self._stage: Literal["first", "probe", "check", "search", "wait"] = "first"
        self._status = self._failures = 0
        self._last_failure: ProviderError | None = None

    def look(self, item: StreamItem) -> None:
        """See what comes of the request. Raises GaveUp before a wait that may be in vain, and ProbeTaken."""
        if isinstance(item, Retry):
            if self._has_to_end(item):
                raise GaveUp(item.reason, hint=item.hint, status=item.status or None)
        elif self._stage == "probe" and not isinstance(item, AttemptLost):
            raise ProbeTaken(item.usage if isinstance(item, ModelReply) else None)

    def _has_to_end(self, retry: Retry) -> bool:
        if self._stage == "wait" or not (retry.status or retry.wait_s):
            return False
        if self._stage != "first":
            return True
        self._failures = self._failures + 1 if retry.status and retry.status == self._status else 1
        self._status = retry.status
        return bool(retry.status) and self._failures >= _FAILURES_BEFORE_DOUBT

    async def check_whole(self) -> None:
        """Send the whole list again, as the server has taken it without the suspects."""
        self._stage, self.view = "check", self._tried[0]

    async def change(self, failure: ProviderError) -> bool:
        """Choose the list for the next request; False if the call has failed with `failure`."""
        if isinstance(failure, Unavailable) or self._stage not in ("first", "wait"):
            return await self._doubt(failure)
        if not isinstance(failure, _SEARCHED):
            return False
        changed = await self._changed(failure)
        if changed is not None:
            self._tried.append(changed)
            self.view = changed
        return changed is not None

    async def settle(self) -> None:
        """Forget what was left out if the whole list was answered: it was an outage after all."""
        if self._stage == "check":
            await self._forget()

    async def _changed(self, refusal: ProviderError) -> Sequence[Message] | None:
        context, emit = self._session.context, self._emit
        too_long = self._compacts and _is_too_long(refusal)
        changed = None
        if not too_long:
            changed = await context.without_refused(refusal, emit, may_shorten=not self._compacts)
        if changed is None and self._compacts and isinstance(refusal, ContextOverflow):
            self._compacts = False
            changed = await context.view(
                self._session.log.messages, emit, overflow_limit_tokens=refusal.limit_tokens or 0
            )
            if any(changed is view for view in self._tried):  # it is as small as compactions can make it
                changed = await context.without_refused(refusal, emit, may_shorten=True)
        return changed

    async def _doubt(self, failure: ProviderError) -> bool:
        """Go on after a failure that may pass, or after one of a request that was changed because of one."""
        changed = None
        if self._stage not in ("wait", "probe") and _may_be_refusal(failure):
            changed = await self._session.context.without_refused(failure, self._emit)
        if changed is None:
            return await self._wait_out(failure)
        if self._stage == "first":
            self._last_failure = None if isinstance(failure, GaveUp) else failure
        self._stage = "probe" if self._stage == "first" else "search"
        self.view = changed
        return True

    async def _wait_out(self, failure: ProviderError) -> bool:
        """Send the whole list again and wait out the outage, unless that was done before this search."""
        if self._stage == "wait" or (self._stage == "first" and not isinstance(failure, GaveUp)):
            return False
        if self._stage != "first":
            await self._forget()
        self._stage = "wait"
        if self._last_failure is not None:
            raise self._last_failure
        return True

    async def _forget(self) -> None:
        self.view = await self._session.context.view(self._session.log.messages, self._emit)


def _may_be_refusal(failure: ProviderError) -> bool:
    """Return whether the server answered, and named no time after which it will be back."""
    is_named_outage = isinstance(failure, Unavailable) and failure.retry_after_s is not None
    return failure.status is not None and not is_named_outage


def _is_too_long(refusal: ProviderError) -> bool:
    """Return whether a refusal is about the conversation's length in tokens, not about one item or about
    bytes."""
    return isinstance(refusal, ContextOverflow) and refusal.status != 413 and not refusal.part
