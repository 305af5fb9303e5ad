"""The confirmation service as calls: the base of the HTTP API, the web page and the channels.

Every change is one transaction and is durable when the call returns. All calls are made on one event loop's
thread. `authenticate` returns the `Caller` that the other calls trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import apsw
import msgspec

from whet.contract.errors import StoreCorrupt
from whet.web.connection import WebConnection
from whet.web.tokens import hash_secret
from whet_confirm import decide, requests, submit, tokens
from whet_confirm.attendance import Attendance
from whet_confirm.audit_records import request_problem
from whet_confirm.canonical import canonical
from whet_confirm.database import ConfirmDatabase
from whet_confirm.decide import Amendment, DecisionInput
from whet_confirm.events import EventLog
from whet_confirm.hub import Hub, wake
from whet_confirm.keys import PublicKey, SigningKey
from whet_confirm.ledger import Tx
from whet_confirm.people import is_still_valid
from whet_confirm.policy_file import PolicyFile
from whet_confirm.records import AuditEvent, Caller, ConfirmRequest, RequestOutcome, Vote
from whet_confirm.requests import RequestFilter
from whet_confirm.risk import RiskReadings
from whet_confirm.running_grants import list_offers, pick_offer
from whet_confirm.sealer import HINT
from whet_confirm.submit import Submission, SubmissionResult
from whet_confirm.timeline import Timeline

T = TypeVar("T")
P = ParamSpec("P")
_CACHE_SIZE = 256
_TOKEN_ENDS = tokens.ConfirmTokenRow.__struct_fields__.index("expires_at")
_APPROVED = ("approved", "auto_approved")
LARGE_BYTES = 32 * 1024  # larger texts are processed off the loop


async def run_off_loop(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function`, on another thread if its input is large (`size`), so that the loop is not blocked."""
    if size <= LARGE_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def _is_small(row: tuple[Any, ...]) -> bool:
    return sum(len(cell) for cell in row if isinstance(cell, str)) <= LARGE_BYTES


class CallerLimits(msgspec.Struct, frozen=True):
    """The limits of one caller: submissions of one action per hour, and pending requests.

    `pending` 0 means a thousand, or ten times the rate limit if that is more.
    """

    rate: int = 10
    pending: int = 0

    @property
    def max_pending(self) -> int:
        """The number of pending requests that one principal may have."""
        return self.pending or max(1000, 10 * self.rate)


class ConfirmService:
    """Requests and decisions; `open_service` creates it.

    `log` holds the events. `public_keys` holds every key that was ever used, the current one last.
    """

    def __init__(
        self,
        database: ConfirmDatabase,
        key: SigningKey,
        policy_file: PolicyFile,
        *,
        limits: CallerLimits,
        timeline: Timeline,
    ) -> None:
        self.database = database
        self.key = key
        self.policy_file = policy_file
        self.limits = limits
        self.timeline = timeline
        self.log: EventLog = EventLog(database)
        self.hub: Hub = self.log.hub
        self.public_keys: Mapping[str, PublicKey] = {key.id: key.public}
        self.risks: RiskReadings = RiskReadings()
        self.attendance: Attendance = Attendance(self.cancel)
        self._last_end: tuple[AuditEvent, ConfirmRequest | None] | None = None
        self._request_cache: dict[str, tuple[tuple[Any, ...], ConfirmRequest]] = {}
        self._caller_cache: dict[bytes, tuple[Any, Caller]] = {}
        self._rows: dict[str | bytes, tuple[Any, ...]] = {}
        self._rows_version = -1

    def authenticate(self, secret: str, *, is_from_cache: bool = False) -> Caller | None:
        """Return the caller of a bearer token, or None if it is unknown, revoked or expired.

        `is_from_cache` accepts a cached caller without reading the database. Only for calls whose
        transaction checks the caller again.
        """
        key = hash_secret(secret)
        cached_row, caller = self._caller_cache.get(key, (None, None))
        if is_from_cache and caller is not None:
            return caller
        row = self._row(tokens.TOKENS.by_hash, key)
        if caller is not None and row is not None and row is cached_row and row[_TOKEN_ENDS] is None:
            return caller  # the same row, of a token without an end
        caller = tokens.as_principal(row, self.timeline.now_s())
        if caller is None or len(self._caller_cache) >= _CACHE_SIZE:
            self._caller_cache.clear()
        if caller is not None:
            self._caller_cache[key] = row, caller
        return caller

    async def submit(self, caller: Caller, submission: Submission) -> SubmissionResult:
        """Store a submission, or return why not. Raises ValueError for details that are not JSON."""
        policy, now_s = self.policy_file.policy, self.timeline.now_s()
        if submission.size_bytes <= LARGE_BYTES:
            draft = submit.judge_submission(submission, caller, policy, now_s)
        else:
            draft = await asyncio.to_thread(submit.judge_submission, submission, caller, policy, now_s)
        room = self.limits.max_pending - self.log.pending_by.get(caller.name, 0)
        return await self.change(
            lambda tx: (
                submit.store(tx, draft, self.limits.rate, room, self.risks)
                if is_still_valid(tx, caller)
                else submit.NO_LONGER_VALID
            )
        )

    def get(self, request_id: str, *, is_cache_current: bool = False) -> ConfirmRequest | None:
        """Return one request in its current state, or None.

        `is_cache_current` means that `authenticate` has compared the cache with the database in this step of
        the loop. Raises StoreCorrupt for an approval that another program wrote.
        """
        row = self._row(requests.BY_ID, request_id, is_cache_current=is_cache_current)
        return self._read(row) if row else None

    def _row(self, sql: str, key: str | bytes, *, is_cache_current: bool = False) -> tuple[Any, ...] | None:
        """Return the current row of a key, from the cache if nothing was committed since it was read."""
        database = self.database
        if not database.has_cheap_change_counter:
            return database.read_one(sql, (key,))
        now = self._rows_version if is_cache_current else database.change_counter()
        if now != self._rows_version or len(self._rows) >= _CACHE_SIZE:
            self._rows.clear()
            self._rows_version = now
        row = self._rows.get(key)
        if row is None:
            row = database.read_one(sql, (key,))
            if row is not None and _is_small(row):
                self._rows[key] = row
        return row

    def _read(self, row: tuple[Any, ...]) -> ConfirmRequest:
        """Convert a row to a request. Returns the same object as before if the row has not changed."""
        request_id, now_s = row[1], self.timeline.now_s()
        before, request = self._request_cache.get(request_id, (None, None))
        if request is None or row != before or (request.is_pending and now_s >= request.expires_at):
            request = requests.as_request(row, now_s)
            if request.status in _APPROVED:
                self._check(request_id)
            if len(request.details_json) < LARGE_BYTES:
                if len(self._request_cache) >= _CACHE_SIZE:
                    self._request_cache.clear()
                self._request_cache[request_id] = (row, request)
        return request

    def _check(self, request_id: str) -> None:
        if problem := self.database.read_now(lambda db: request_problem(db, request_id)):
            message = f"the database was changed from outside: request {request_id}: {problem}"
            raise StoreCorrupt(message, hint=HINT)

    def votes(self, request_id: str) -> list[Vote]:
        """Return the votes on a request, oldest first."""
        return self.database.read_now(lambda db: requests.list_votes(db, request_id))

    def list(self, criteria: RequestFilter) -> list[ConfirmRequest]:
        """Return requests, newest first. For the next page pass the last one's seq as `before_seq`."""
        now_s = self.timeline.now_s()
        return self.database.read_now(lambda db: [*requests.select(db, criteria, now_s)])

    def count_pending(self) -> int:
        """Return the number of requests that can be decided now: pending, and before their deadline."""
        self.log.catch_up(self.timeline)
        now_s = self.timeline.now_s()
        overdue = self.database.read_now(lambda db: requests.count_overdue(db, now_s))
        return sum(self.log.pending_by.values()) - overdue

    async def decide(self, ballot: DecisionInput, caller: Caller) -> RequestOutcome:
        """Approve or deny. `caller` must have the role approve; this is not checked here."""
        if ballot.is_one_of_many and (refusal := self._refuse_joint_decision(ballot.request_id)):
            return refusal
        if ballot.grant and (refusal := self._refuse_grant(ballot)):
            return refusal
        return await self.change(lambda tx: decide.decide(tx, ballot, caller, self.policy_file.policy))

    def _refuse_joint_decision(self, request_id: str) -> RequestOutcome | None:
        """Refuse to decide a dangerous command together with others."""
        request = self.get(request_id)
        reading = self.risks.read(request) if request is not None and request.is_pending else None
        if reading is None or not reading.is_alarming:
            return None
        message = f"this one is decided by itself, not together with others: {reading.line}"
        return RequestOutcome("not_allowed", message, request)

    def _refuse_grant(self, ballot: DecisionInput) -> RequestOutcome | None:
        """Refuse a grant (an approval for a while) for a dangerous command, or one that the rule forbids."""
        request = self.get(ballot.request_id)
        if request is None or not request.is_pending or ballot.verdict != "approve":
            return None
        if pick_offer(request, ballot.grant, self.risks.read(request)) is not None:
            return None
        kinds = ", ".join(offer.kind for offer in list_offers(request, self.risks.read(request)))
        message = f"its rule allows no grant {ballot.grant[:40]!r}; allowed: {kinds or 'none'}"
        return RequestOutcome("not_allowed", message, request)

    async def amend(
        self, target: tuple[str, str], caller: Caller, details: dict[str, Any], reason: str = ""
    ) -> RequestOutcome:
        """Change a pending request's details if its submitter accepts edits. Votes so far are void.

        `target` is its id and the digest that was viewed. Raises ValueError for details that are not JSON.
        """
        text = await asyncio.to_thread(canonical, details)  # their size is not known in advance
        change = Amendment(*target, details, text.decode(), reason)
        return await self.change(lambda tx: decide.amend(tx, change, caller, self.policy_file.policy))

    async def cancel(self, request_id: str, caller: Caller, reason: str = "") -> RequestOutcome:
        """Cancel a request."""
        return await self.change(lambda tx: decide.cancel(tx, request_id, caller, reason))

    async def consume(self, request_id: str, caller: Caller, digest: str, key: str = "") -> RequestOutcome:
        """Consume an approval, exactly once.

        Repeating the call with the same non-empty `key` returns the same answer.
        """
        valid_s = self.policy_file.policy.approval_valid_s
        return await self.change(lambda tx: decide.consume(tx, request_id, caller, (digest, key), valid_s))

    async def report(self, request_id: str, caller: Caller, result: str, note: str = "") -> RequestOutcome:
        """Record the result of the action: `result` is executed or failed."""
        return await self.change(lambda tx: decide.report(tx, request_id, caller, result, note))

    async def mark_viewed(self, request: ConfirmRequest, caller: Caller) -> None:
        """Record that a possible approver viewed this version of the request. Only the first view counts."""
        first_view = self.database.read_now(lambda db: requests.viewed_at(db, request.id, caller.name))
        if first_view is None:
            await self.change(lambda tx: decide.record_view(tx, request, caller))

    async def wait(
        self, request_id: str, timeout_s: float, line: WebConnection | None = None
    ) -> ConfirmRequest | None:
        """Wait until the request has ended, `timeout_s` has passed or `line` is cut, and return its state.

        Returns None if it does not exist.
        """
        request = self.get(request_id)
        if request is None or not request.is_pending or timeout_s <= 0 or (line and line.is_cut):
            return request
        future = self.hub.listen_for_end(request_id)

        def end_wait() -> None:
            wake((future,))

        # The deadline ends the wait even if no sweeper runs.
        left_s = request.expires_at - self.timeline.now_s()
        limit_s = max(0.0, min(timeout_s, left_s + 0.002))
        timer = asyncio.get_running_loop().call_later(limit_s, end_wait)
        if line is not None:
            line.listen(end_wait)
        try:
            event = await future
        finally:
            timer.cancel()
            self.hub.stop_listening(future, request_id)
            if line is not None:
                line.stop_listening(end_wait)
        return self.get(request_id) if event is None else self._final_request(event)

    def _final_request(self, event: AuditEvent) -> ConfirmRequest | None:
        """Return the request as `event` ended it, read once for all waiters."""
        if self._last_end is None or self._last_end[0] is not event:
            self._last_end = (event, self.get(event.request_id))
        return self._last_end[1]

    async def record(
        self, kind: str, request_id: str = "", principal: str = "", data: dict[str, object] | None = None
    ) -> None:
        """Append an event that changes no request, such as notified or login_failed."""
        request = self.get(request_id) if request_id else None
        owner = request.principal if request else ""
        await self.change(lambda tx: tx.record(kind, request_id, principal, owner, data))

    async def change(self, operation: Callable[[Tx], T]) -> T:
        """Run `operation` in a transaction. Once it is durable, wake the waiters and return its result."""

        def run(connection: apsw.Connection) -> tuple[T, list[AuditEvent]]:
            tx = Tx(connection, self.timeline.now_s(), self.key)
            return operation(tx), tx.events

        result, _ = await self.database.append(run, self.log.publish)
        return result
