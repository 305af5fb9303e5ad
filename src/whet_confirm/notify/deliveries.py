"""The delivery state of each notice on each channel, in rows that survive a crash and that people can see.

queued: to be sent. failed: will be retried. sent. dead: given up. dropped: no longer relevant. A row that
is taken is postponed by a lease, so that if a notifier dies, the next one takes it. `ref` identifies the
channel's message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
import msgspec

from whet.contract.errors import StoreCorrupt
from whet_confirm.records import ApprovalPlan
from whet_confirm.requests import decode_plan, log_unreadable, select_rows

LEASE_S = 60.0
LOG = "log"
NEWS = ("submitted", "escalated")
_COLUMNS = "id, event_id, kind, request_id, channel, status, attempts, run_after, error, ref, updated_at"
_OPEN = "status IN ('queued', 'failed')"
PROGRESS = ("vote", "replanned")
_IS_NEWS = (
    "kind IN ('submitted', 'escalated', 'amended', 'vote', 'replanned', 'decided', 'expired', 'cancelled')"
)
_NEWS_CELLS = "e.id, e.kind, e.request_id, r.status, r.plan, r.escalated_at"
_NEWS_FROM = ("events e JOIN requests r ON r.id = e.request_id", "e.id")
_NEXT = f"e.id > ? AND e.{_IS_NEWS} ORDER BY e.id LIMIT ?"


class NotifyDelivery(msgspec.Struct, frozen=True):
    """One row. Times are Unix seconds."""

    id: int
    event_id: int
    kind: str
    request_id: str
    channel: str
    status: str
    attempts: int
    run_after: float
    error: str
    ref: str
    updated_at: float


ChannelsOf = Callable[[str, ApprovalPlan, bool], Sequence[str]]


class QueueResult(msgspec.Struct, frozen=True):
    """The result of queueing: the last event covered, and the requests that no channel serves."""

    up_to: int
    unheard: tuple[str, ...]


def has_news(db: apsw.Connection, after_id: int) -> bool:
    """Return whether people must be notified about any event after `after_id`."""
    return (
        db.execute(f"SELECT 1 FROM events WHERE id > ? AND {_IS_NEWS} LIMIT 1", (after_id,)).fetchone()
        is not None
    )


def last_queued_event(db: apsw.Connection) -> int:
    """Return the event up to which deliveries have been queued."""
    row = db.execute("SELECT value FROM facts WHERE name = 'told_to'").fetchone()
    return int(row[0]) if row else 0


def count_pending_events(db: apsw.Connection) -> int:
    """Return the number of events for which deliveries are not yet queued."""
    row = db.execute(
        f"SELECT count(*) FROM events WHERE id > ? AND {_IS_NEWS}", (last_queued_event(db),)
    ).fetchone()
    return int(row[0]) if row else 0


def queue_deliveries(db: apsw.Connection, now_s: float, limit: int, channels_of: ChannelsOf) -> QueueResult:
    """Turn the next events that people must know about, at most `limit`, into one delivery per channel.

    `channels_of` returns the channels for a kind, a plan and whether the request was escalated. An outcome
    goes to the channels that got the request. A request that was already decided is not announced. All in
    one transaction: an event is either still to be handled or in the deliveries. Without a channel, a row
    records that the notice went to the log; the caller must log it.
    """
    newest = db.execute("SELECT max(id) FROM events").fetchone()
    items = select_rows(db, _NEWS_CELLS, _NEWS_FROM, _NEXT, (last_queued_event(db), limit))
    without_channel: list[str] = []
    for event_id, *news in items:
        if not news:
            log_unreadable(f"of event {event_id}", "a text of it can't be read")
            continue
        kind, request_id, status, plan, escalated_at = news
        if kind in PROGRESS and status != "pending":
            continue  # the outcome says more
        if kind not in NEWS:
            channels = _notified_channels(db, request_id)
        elif status == "pending":
            try:
                channels = channels_of(kind, decode_plan(plan), escalated_at is not None)
            except StoreCorrupt as error:  # its channels are unknown; other requests' events continue
                log_unreadable(request_id, error.message)
                continue
            if not channels:
                add(db, (event_id, kind, request_id, LOG), now_s, status="sent")
                without_channel.append(request_id)
        else:
            continue
        for channel in channels:
            add(db, (event_id, kind, request_id, channel), now_s)
    up_to = items[-1][0] if len(items) == limit else (newest[0] or 0) if newest else 0
    db.execute("INSERT OR REPLACE INTO facts VALUES ('told_to', ?)", (str(up_to),))
    return QueueResult(up_to, tuple(without_channel))


def _notified_channels(db: apsw.Connection, request_id: str) -> list[str]:
    """Return the channels that were notified about a request, or are about to be."""
    rows = db.execute(
        "SELECT DISTINCT channel FROM deliveries WHERE request_id = ? AND channel <> ?", (request_id, LOG)
    )
    return [str(row[0]) for row in rows]


def add(db: apsw.Connection, key: tuple[int, str, str, str], now_s: float, *, status: str = "queued") -> None:
    """Queue (event id, kind, request id, channel). Repeating it has no effect."""
    db.execute(
        "INSERT OR IGNORE INTO deliveries"
        " (event_id, kind, request_id, channel, status, run_after, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, status, now_s, now_s),
    )


def lease_next(db: apsw.Connection, channel: str, now_s: float) -> NotifyDelivery | None:
    """Lease the channel's oldest due row for `LEASE_S`."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM deliveries WHERE channel = ? AND {_OPEN} AND run_after <= ?"
        " ORDER BY run_after, id LIMIT 1",
        (channel, now_s),
    ).fetchone()
    if row is None:
        return None
    db.execute(
        "UPDATE deliveries SET run_after = ?, attempts = attempts + 1 WHERE id = ?", (now_s + LEASE_S, row[0])
    )
    delivery = NotifyDelivery(*row)
    return msgspec.structs.replace(delivery, attempts=delivery.attempts + 1)


def next_due(db: apsw.Connection, channel: str) -> float | None:
    """Return when the channel's next row is due, or None if none is open."""
    row = db.execute(
        f"SELECT min(run_after) FROM deliveries WHERE channel = ? AND {_OPEN}", (channel,)
    ).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def close(
    db: apsw.Connection,
    delivery: NotifyDelivery,
    status: str,
    now_s: float,
    *,
    error: str = "",
    ref: str = "",
) -> None:
    """Close a row as sent, dead or dropped."""
    db.execute(
        "UPDATE deliveries SET status = ?, error = ?, ref = ?, updated_at = ? WHERE id = ?",
        (status, error[:300], ref, now_s, delivery.id),
    )


def schedule_retry(
    db: apsw.Connection, delivery: NotifyDelivery, run_after_s: float, now_s: float, error: str
) -> None:
    """Record a failure that will be retried."""
    db.execute(
        "UPDATE deliveries SET status = 'failed', error = ?, run_after = ?, updated_at = ? WHERE id = ?",
        (error[:300], run_after_s, now_s, delivery.id),
    )


def has_no_delivery(db: apsw.Connection, event_id: int) -> bool:
    """Return whether no channel has delivered an event."""
    row = db.execute(
        "SELECT 1 FROM deliveries WHERE event_id = ? AND status = 'sent' LIMIT 1", (event_id,)
    ).fetchone()
    return row is None


def message_refs(db: apsw.Connection, request_id: str, channel: str) -> list[str]:
    """Return the refs of the channel's messages about a request, which are edited when it changes."""
    rows = db.execute(
        "SELECT DISTINCT ref FROM deliveries WHERE request_id = ? AND channel = ? AND ref <> '' ORDER BY ref",
        (request_id, channel),
    )
    return [str(row[0]) for row in rows]


def list_deliveries(db: apsw.Connection, request_id: str) -> list[NotifyDelivery]:
    """Return a request's deliveries, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE request_id = ? ORDER BY id", (request_id,))
    return [NotifyDelivery(*row) for row in rows]
