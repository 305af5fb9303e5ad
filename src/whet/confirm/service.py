"""The confirmation service as calls: what the HTTP API, the web page and the channels are built on.

Every change is one transaction and is on disk when the call returns. Used on one event loop's thread. It
does not know HTTP, and takes the caller's word for who `who` is: `authenticate` gives that.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar, cast

import apsw
import msgspec

from whet.confirm import decide, requests, submit, tokens
from whet.confirm.database import ConfirmDatabase
from whet.confirm.decide import DecisionInput
from whet.confirm.hub import Hub, wake
from whet.confirm.keys import SigningKey
from whet.confirm.ledger import Tx
from whet.confirm.policy_file import PolicyFile
from whet.confirm.records import AuditEvent, AuditState, Caller, ConfirmRequest, RequestOutcome, Vote
from whet.confirm.requests import RequestFilter
from whet.confirm.submit import Submission, Submitted
from whet.confirm.timeline import Timeline
from whet.web.line import WebConnection

T = TypeVar("T")
_EVENT_COLUMNS = "id, at, kind, request_id, principal, owner, data, hash"
_PAGE = 500


class CallerLimits(msgspec.Struct, frozen=True):
    """How much one caller may have: submissions of one action an hour, and pending at once (0: a
    thousand, or ten times the rate limit where that is more)."""

    rate: int = 10
    pending: int = 0

    @property
    def most_pending(self) -> int:
        """The pending requests that one principal may have."""
        return self.pending or max(1000, 10 * self.rate)


class ConfirmService:
    """Requests, decisions, events. Make it with `ConfirmService.start`."""

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
        self.hub = Hub(database.read(_last_event_id), self._events_between)
        self.pending_by: dict[str, int] = {}
        self.event_counts: Counter[str] = Counter()
        self._last_end: tuple[AuditEvent, ConfirmRequest | None] | None = None
        self.recount()

    # --- who is calling

    def authenticate(self, secret: str) -> Caller | None:
        """Give the principal of a bearer token, None for one that is unknown, revoked or too old."""
        row = self.database.read_one(tokens.LOOKUP, (tokens.hash_of(secret),))
        return tokens.as_principal(row, self.timeline.now_s())

    # --- requests

    async def submit(self, who: Caller, submission: Submission) -> Submitted:
        """Store a submission, or say why not. Raises ValueError for details that are not JSON."""
        made = submit.draft(submission, who, self.policy_file.policy, self.timeline.now_s())
        room = self.limits.most_pending - self.pending_by.get(who.name, 0)
        return await self.change(lambda tx: submit.store(tx, made, self.limits.rate, room))

    def get(self, request_id: str) -> ConfirmRequest | None:
        """Give one request as it is now."""
        row = self.database.read_one(requests.ONE, (request_id,))
        return requests.as_request(row, self.timeline.now_s()) if row else None

    def votes(self, request_id: str) -> list[Vote]:
        """Give the votes on a request, oldest first."""
        return self.database.read(lambda db: requests.votes_of(db, request_id))

    def list(self, wanted: RequestFilter) -> list[ConfirmRequest]:
        """Give requests, newest first; go on with `before_seq` of the last one."""
        now_s = self.timeline.now_s()
        return self.database.read(lambda db: [*requests.select(db, wanted, now_s)])

    def count_pending(self) -> int:
        """How many requests can be decided now."""
        now_s = self.timeline.now_s()
        return self.database.read(lambda db: requests.count_pending(db, now_s))

    async def decide(self, ballot: DecisionInput, who: Caller) -> RequestOutcome:
        """Approve or deny. `who` must hold the role approve; the caller has checked that."""
        return await self.change(lambda tx: decide.decide(tx, ballot, who, self.policy_file.policy))

    async def amend(
        self, request_id: str, who: Caller, details: dict[str, Any], reason: str = ""
    ) -> RequestOutcome:
        """Change a pending request's details (where its submitter accepts edits); votes so far are void."""
        return await self.change(lambda tx: decide.amend(tx, request_id, who, details, reason))

    async def cancel(self, request_id: str, who: Caller, reason: str = "") -> RequestOutcome:
        """Take a request back."""
        return await self.change(lambda tx: decide.cancel(tx, request_id, who, reason))

    async def consume(self, request_id: str, who: Caller, digest: str, key: str = "") -> RequestOutcome:
        """Use an approval up, exactly once; the same `key` (not "") gets the same answer again."""
        valid_s = self.policy_file.policy.approval_valid_s
        return await self.change(lambda tx: decide.consume(tx, request_id, who, (digest, key), valid_s))

    async def report(self, request_id: str, who: Caller, result: str, note: str = "") -> RequestOutcome:
        """Note what came of running it: `result` is executed or failed."""
        return await self.change(lambda tx: decide.report(tx, request_id, who, result, note))

    async def mark_viewed(self, request_id: str, who: Caller) -> None:
        """Note that somebody who may decide has looked at it; the first look counts."""
        seen = self.database.read(lambda db: requests.viewed_at(db, request_id, who.name))
        if seen is None:
            await self.change(lambda tx: decide.view(tx, request_id, who))

    async def wait(
        self, request_id: str, timeout_s: float, line: WebConnection | None = None
    ) -> ConfirmRequest | None:
        """Give the request when it has ended, or as it is after `timeout_s` or once `line` is cut; None where
        there is none."""
        request = self.get(request_id)
        if request is None or not request.is_pending or timeout_s <= 0 or (line and line.is_cut):
            return request
        future = self.hub.begin(request_id)

        def ring() -> None:
            wake((future,))

        # The deadline ends the wait also where no sweeper runs.
        left_s = request.expires_at - self.timeline.now_s()
        limit_s = max(0.0, min(timeout_s, left_s + 0.002))
        timer = asyncio.get_running_loop().call_later(limit_s, ring)
        if line is not None:
            line.listen(ring)
        try:
            event = await future
        finally:
            timer.cancel()
            self.hub.drop(future, request_id)
            if line is not None:
                line.forget(ring)
        return self.get(request_id) if event is None else self._ended(event)

    def _ended(self, event: AuditEvent) -> ConfirmRequest | None:
        """Give a request as it was when `event` ended it; read once for all who waited for that."""
        if self._last_end is None or self._last_end[0] is not event:
            self._last_end = (event, self.get(event.request_id))
        return self._last_end[1]

    # --- events

    async def events(self, after_id: int) -> AsyncIterator[AuditEvent]:
        """Give every event after `after_id` as it comes, in order; ends when the service stops."""
        while not self.hub.is_closed:
            found = self.newer(after_id)
            for event in found:
                after_id = event.id
                yield event
            if not found:
                future = self.hub.next_event()
                try:
                    await future
                finally:
                    self.hub.forget(future)

    def newer(self, after_id: int) -> Sequence[AuditEvent]:
        """Give the next events after `after_id`: from memory while they are there, else from the database."""
        kept = self.hub.after(after_id)
        return self.history(after_id=after_id) if kept is None else kept

    def history(self, *, request_id: str = "", after_id: int = 0, limit: int = _PAGE) -> list[AuditEvent]:
        """Give events, oldest first: of one request, or of all, after `after_id`."""
        where = "request_id = ? AND request_id != '' AND id > ?" if request_id else "id > ?"
        values = (request_id, after_id, limit) if request_id else (after_id, limit)
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE {where} ORDER BY id LIMIT ?"
        return self.database.read(lambda db: [AuditEvent(*row) for row in db.execute(sql, values)])

    async def record(
        self, kind: str, request_id: str = "", principal: str = "", data: dict[str, object] | None = None
    ) -> None:
        """Append an event of the caller's own: notified, login_failed and the like."""
        request = self.get(request_id) if request_id else None
        owner = request.principal if request else ""
        await self.change(lambda tx: tx.record(kind, request_id, principal, owner, data))

    def audit_state(self) -> AuditState:
        """How far the audit log and its signed checkpoints go."""

        def look(db: apsw.Connection) -> AuditState:
            last = db.execute("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
            mark = db.execute("SELECT size, at FROM checkpoints ORDER BY size DESC LIMIT 1").fetchone()
            size, head = (last[0], last[1].hex()) if last else (0, "")
            marked, marked_at = mark or (0, None)
            return AuditState(size, head, marked, marked_at, self.key.id)

        return self.database.read(look)

    # --- upkeep

    def has_due(self) -> bool:
        """Whether a request's deadline has passed and nobody has written that down."""
        sql = "SELECT 1 FROM requests WHERE status = 'pending' AND expires_at <= ? LIMIT 1"
        return self.database.read_one(sql, (self.timeline.now_s(),)) is not None

    def has_escalations(self) -> bool:
        """Whether the next group is to be told of a request."""
        sql = (
            "SELECT 1 FROM requests WHERE status = 'pending' AND escalates_at IS NOT NULL"
            " AND escalated_at IS NULL AND escalates_at <= ? LIMIT 1"
        )
        return self.database.read_one(sql, (self.timeline.now_s(),)) is not None

    def wants_checkpoint(self, after_s: float) -> bool:
        """Whether there are events that have waited `after_s` for a signed checkpoint."""
        sql = "SELECT at FROM events WHERE id = 1 + (SELECT coalesce(max(size), 0) FROM checkpoints)"
        row = self.database.read_one(sql, ())
        return row is not None and self.timeline.now_s() - cast("float", row[0]) >= after_s

    def next_time(self, checkpoint_after_s: float) -> float:
        """When the next deadline, escalation or checkpoint is due, by the timeline; infinity for never."""
        sql = (
            "SELECT (SELECT min(expires_at) FROM requests WHERE status = 'pending'),"
            " (SELECT min(escalates_at) FROM requests WHERE status = 'pending'"
            " AND escalates_at IS NOT NULL AND escalated_at IS NULL),"
            " (SELECT at + ? FROM events WHERE id = 1 + (SELECT coalesce(max(size), 0) FROM checkpoints))"
        )
        row = self.database.read_one(sql, (checkpoint_after_s,)) or ()
        return min((cast("float", at) for at in row if at is not None), default=math.inf)

    def checkpoints_after(self, size: int) -> Sequence[dict[str, object]]:
        """Give the signed checkpoints of more than `size` events, oldest first."""
        names = ("size", "head", "at", "key_id", "signature")
        sql = f"SELECT {', '.join(names)} FROM checkpoints WHERE size > ? ORDER BY size LIMIT 1000"
        return self.database.read(
            lambda db: [dict(zip(names, row, strict=True)) for row in db.execute(sql, (size,))]
        )

    def catch_up(self) -> None:
        """Publish what other processes have written."""
        found = self.history(after_id=self.hub.last_id)
        if found:
            self.timeline.raise_floor(found[-1].at)
            self._make_known(found)

    # --- inside

    async def change(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction; when it is on disk, tell those who wait, then give its result."""

        def run(connection: apsw.Connection) -> tuple[T, list[AuditEvent]]:
            tx = Tx(connection, self.timeline.now_s(), self.key)
            return work(tx), tx.events

        result, _ = await self.database.write(run, self._publish)
        return result

    def recount(self) -> None:
        """Count pending requests by principal anew."""
        sql = "SELECT principal, count(*) FROM requests WHERE status = 'pending' GROUP BY principal"
        self.pending_by = self.database.read(lambda db: dict(db.execute(sql).fetchall()))

    def _publish(self, result: tuple[object, list[AuditEvent]] | None, error: BaseException | None) -> None:
        if error is not None or result is None or not result[1]:
            return
        self._make_known(result[1])

    def _make_known(self, events: Sequence[AuditEvent]) -> None:
        for event in self.hub.publish(events):
            self._count(event)

    def _count(self, event: AuditEvent) -> None:
        self.event_counts[event.kind] += 1
        if event.kind == "submitted":
            self.pending_by[event.owner] = self.pending_by.get(event.owner, 0) + 1
        elif event.kind in ("decided", "expired", "cancelled"):
            left = self.pending_by.get(event.owner, 0) - 1
            if left > 0:
                self.pending_by[event.owner] = left
            else:
                self.pending_by.pop(event.owner, None)

    def _events_between(self, after_id: int, before_id: int) -> list[AuditEvent]:
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE id > ? AND id < ? ORDER BY id"
        values = (after_id, before_id)
        return self.database.read(lambda db: [AuditEvent(*row) for row in db.execute(sql, values)])


def _last_event_id(db: apsw.Connection) -> int:
    row = db.execute("SELECT id FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return int(row[0]) if row else 0
