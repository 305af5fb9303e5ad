"""The delivery state of each notice on each channel, in rows that survive a crash and that people can see.

queued: to be sent. failed: will be retried. sent: the channel has accepted it. dead: given up. dropped: no
longer relevant. A notifier leases the row that it sends, so that another takes over if it dies. `ref`
identifies the channel's message. A device acknowledges the requests that it shows, with receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import apsw
import msgspec

from whet.contract.errors import StoreCorrupt
from whet_confirm.on_call import find_person
from whet_confirm.records import ApprovalPlan
from whet_confirm.requests import decode_plan, log_unreadable, select_rows

LEASE_S = 60.0
LOG = "log"
DEVICE_PREFIX = "push/"  # of the channel of a device
NEWS = ("submitted", "escalated")
_COLUMNS = "id, event_id, kind, request_id, channel, status, attempts, run_after, error, ref, updated_at"
_OPEN = "status IN ('queued', 'failed')"
_ADD = (
    "INSERT OR IGNORE INTO deliveries (event_id, kind, request_id, channel, status, run_after, updated_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
PROGRESS = ("vote", "replanned")
_IS_NEWS = (
    "kind IN ('submitted', 'escalated', 'amended', 'vote', 'replanned', 'decided', 'expired', 'cancelled',"
    " 'whitelist_removed')"
)
_NEWS_CELLS = "e.id, e.kind, e.request_id, r.status, r.plan, r.escalated_at, e.data"
_NEWS_FROM = ("events e JOIN requests r ON r.id = e.request_id", "e.id")
_NEXT_EVENTS = f"e.id > ? AND e.{_IS_NEWS} ORDER BY e.id LIMIT ?"


class NotifyDelivery(msgspec.Struct, frozen=True):
    """One row. Times are Unix seconds.

    The fields from `label` on are set only in lists: about the device, its receipts, and the reason why the
    row waits before its first attempt (`waits`).
    """

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
    label: str = ""
    delivered_at: float | None = None
    seen_at: float | None = None
    timezone: str = ""
    waits: str = ""

    @property
    def state(self) -> str:
        """Its status, or `delivered` or `seen` once a device has acknowledged the request."""
        if self.kind not in NEWS or self.delivered_at is None:
            return self.status
        return "delivered" if self.seen_at is None else "seen"


class Escalation(msgspec.Struct, frozen=True):
    """The group to which a request was escalated, and the person on call of a rota, or ""."""

    group: str
    person: str = ""


ChannelsOf = Callable[[ApprovalPlan, Escalation | None], Sequence[tuple[str, float]]]
"""Returns the channels for a request with this plan and escalation, each with the seconds to wait."""


class QueueResult(msgspec.Struct, frozen=True):
    """The result of queueing: the last event covered, and the requests that no channel serves."""

    queued_to: int
    unserved: tuple[str, ...]


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


def queue_deliveries(
    db: apsw.Connection, now_s: float, limit: int, channels_of: ChannelsOf, served: Container[str]
) -> QueueResult:
    """Turn up to `limit` of the next events that people must know about into one delivery per channel.

    An outcome goes to the channels that got the request and are still `served`. A request that was already
    decided is not announced. In the same transaction, the events are marked as queued. Without a channel, a
    row records that the notice went to the log; the caller must log it.
    """
    newest = db.execute("SELECT max(id) FROM events").fetchone()
    items = select_rows(db, _NEWS_CELLS, _NEWS_FROM, _NEXT_EVENTS, (last_queued_event(db), limit))
    without_channel: list[tuple[int, str, str]] = []
    for event_id, *news in items:
        if not news:
            log_unreadable(f"of event {event_id}", "a text of it can't be read")
            continue
        kind, request_id, status, plan, escalated_at, data = news
        if kind in PROGRESS and status != "pending":
            continue  # the outcome's notice follows
        if kind not in NEWS:
            channels = [(name, 0.0) for name in _notified_channels(db, request_id) if name in served]
        elif status == "pending":
            try:
                decoded = decode_plan(plan)
                person = find_person(data) if kind == "escalated" else ""
                was_escalated = kind == "escalated" or escalated_at is not None
                escalation = Escalation(decoded.escalate_to, person) if was_escalated else None
                channels = channels_of(decoded, escalation)
            except StoreCorrupt as error:  # its channels are unknown; other requests' events continue
                log_unreadable(request_id, error.message)
                continue
            if not channels:
                without_channel.append((event_id, kind, request_id))
        else:
            continue
        for channel, wait_s in channels:
            add(db, (event_id, kind, request_id, channel), now_s, wait_s=wait_s)
    if without_channel:
        db.executemany(_ADD, [(*event, LOG, "sent", now_s, now_s) for event in without_channel])
    queued_to = items[-1][0] if len(items) == limit else (newest[0] or 0) if newest else 0
    db.execute("INSERT OR REPLACE INTO facts VALUES ('told_to', ?)", (str(queued_to),))
    return QueueResult(queued_to, tuple(request_id for _, _, request_id in without_channel))


def _notified_channels(db: apsw.Connection, request_id: str) -> list[str]:
    """Return the channels that were notified about a request, or are about to be."""
    rows = db.execute(
        "SELECT DISTINCT channel FROM deliveries WHERE request_id = ? AND channel <> ?", (request_id, LOG)
    )
    return [str(row[0]) for row in rows]


def add(
    db: apsw.Connection,
    key: tuple[int, str, str, str],
    now_s: float,
    *,
    wait_s: float = 0.0,
) -> None:
    """Queue (event id, kind, request id, channel), to be sent after `wait_s`. Repeating it has no effect."""
    db.execute(_ADD, (*key, "queued", now_s + wait_s, now_s))


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


def has_receipt(db: apsw.Connection, request_id: str) -> bool:
    """Return whether a device has acknowledged a request."""
    sql = "SELECT 1 FROM receipts WHERE request_id = ? LIMIT 1"
    return db.execute(sql, (request_id,)).fetchone() is not None


def end_wait(db: apsw.Connection, request_id: str, now_s: float) -> None:
    """Let the channels that wait for a device send a request now, if no device can still get it."""
    devices = f"channel LIKE '{DEVICE_PREFIX}%'"
    hopeful = (
        f"SELECT 1 FROM deliveries WHERE request_id = ? AND {devices} AND status NOT IN ('dead', 'dropped')"
    )
    if db.execute(f"{hopeful} LIMIT 1", (request_id,)).fetchone() is None:
        db.execute(
            f"UPDATE deliveries SET run_after = ? WHERE request_id = ? AND NOT {devices} AND {_OPEN}"
            " AND attempts = 0 AND run_after > ?",
            (now_s, request_id, now_s),
        )


_REACHED = (
    "EXISTS (SELECT 1 FROM deliveries d WHERE d.request_id = r.id AND d.status = 'sent'"
    " AND d.channel <> 'log')"
    " OR EXISTS (SELECT 1 FROM views v WHERE v.request_id = r.id)"
)
_ACKNOWLEDGED = "EXISTS (SELECT 1 FROM receipts c WHERE c.request_id = r.id)"


def count_unreached(db: apsw.Connection, now_s: float) -> int:
    """Return the number of pending requests that no channel delivered and that nobody opened."""
    sql = f"SELECT count(*) FROM requests r WHERE status = 'pending' AND expires_at > ? AND NOT ({_REACHED})"
    return _count(db, sql, now_s)


def count_unacknowledged(db: apsw.Connection, now_s: float) -> int:
    """Return the number of pending requests that were sent to devices, none of which acknowledged it."""
    sent = f"SELECT 1 FROM deliveries d WHERE d.request_id = r.id AND d.channel LIKE '{DEVICE_PREFIX}%'"
    sql = (
        "SELECT count(*) FROM requests r WHERE status = 'pending' AND expires_at > ?"
        f" AND EXISTS ({sent}) AND NOT {_ACKNOWLEDGED}"
    )
    return _count(db, sql, now_s)


def count_states(db: apsw.Connection, now_s: float) -> list[tuple[str, str, int]]:
    """Return (channel, status, number) of the deliveries of pending requests.

    Those of devices count as channel `push`, with status `delivered` and `seen` once acknowledged.
    """
    status = "CASE WHEN c.seen_at IS NOT NULL THEN 'seen' WHEN c.channel IS NOT NULL THEN 'delivered'"
    name = f"CASE WHEN d.channel LIKE '{DEVICE_PREFIX}%' THEN 'push' ELSE d.channel END"
    rows = db.execute(
        f"SELECT {name} AS name, {status} ELSE d.status END AS state, count(*) FROM requests r"
        " JOIN deliveries d ON d.request_id = r.id"
        " LEFT JOIN receipts c ON c.request_id = d.request_id AND c.channel = d.channel"
        " WHERE r.status = 'pending' AND r.expires_at > ? GROUP BY 1, 2 ORDER BY 1, 2",
        (now_s,),
    )
    return [(str(channel), str(state), int(count)) for channel, state, count in rows]


def count_undecided(db: apsw.Connection, after_s: float) -> list[tuple[str, int]]:
    """Return (reason, number) of the requests that expired after a time: unreached or unanswered."""
    reason = f"CASE WHEN NOT ({_REACHED}) THEN 'unreached' ELSE 'unanswered' END"
    rows = db.execute(
        f"SELECT {reason}, count(*) FROM requests r WHERE status = 'expired' AND resolved_at > ?"
        " GROUP BY 1 ORDER BY 1",
        (after_s,),
    )
    return [(str(name), int(count)) for name, count in rows]


def _count(db: apsw.Connection, sql: str, *values: float) -> int:
    row = db.execute(sql, values).fetchone()
    return int(row[0]) if row else 0


def drop_unserved(
    db: apsw.Connection, served: Collection[str], now_s: float, *, is_trial: bool = False
) -> int:
    """Drop the deliveries to devices that are not `served`: removed, or their person may no longer decide.

    Returns the number of rows. `is_trial` only counts them.
    """
    rows = db.execute(f"SELECT id, channel FROM deliveries WHERE channel LIKE '{DEVICE_PREFIX}%' AND {_OPEN}")
    ids = [(now_s, row[0]) for row in rows.fetchall() if row[1] not in served]
    if not is_trial:
        db.executemany("UPDATE deliveries SET status = 'dropped', updated_at = ? WHERE id = ?", ids)
    return len(ids)


def message_refs(db: apsw.Connection, request_id: str, channel: str) -> list[str]:
    """Return the refs of the channel's messages about a request, which are edited when it changes."""
    rows = db.execute(
        "SELECT DISTINCT ref FROM deliveries WHERE request_id = ? AND channel = ? AND ref <> '' ORDER BY ref",
        (request_id, channel),
    )
    return [str(row[0]) for row in rows]


def list_deliveries(db: apsw.Connection, request_id: str, now_s: float) -> list[NotifyDelivery]:
    """Return a request's deliveries at `now_s`, oldest first."""
    columns = ", ".join(f"d.{name}" for name in _COLUMNS.split(", "))
    rows = db.execute(
        f"SELECT {columns}, coalesce(v.label, ''), c.delivered_at, c.seen_at, coalesce(v.timezone, '')"
        " FROM deliveries d"
        " LEFT JOIN receipts c ON c.request_id = d.request_id AND c.channel = d.channel"
        f" LEFT JOIN devices v ON '{DEVICE_PREFIX}' || v.id = d.channel WHERE d.request_id = ? ORDER BY d.id",
        (request_id,),
    )
    deliveries = [NotifyDelivery(*row) for row in rows]
    return [msgspec.structs.replace(row, waits=_describe_wait(row, deliveries, now_s)) for row in deliveries]


def _describe_wait(row: NotifyDelivery, deliveries: Sequence[NotifyDelivery], now_s: float) -> str:
    """Describe why a row waits before its first attempt: quiet hours, or devices that may answer first."""
    if row.status != "queued" or row.attempts or row.run_after <= now_s:
        return ""
    if row.channel.startswith(DEVICE_PREFIX):
        zone = row.timezone or "UTC"
        return (
            f"waits: quiet hours until {datetime.fromtimestamp(row.run_after, ZoneInfo(zone)):%H:%M} {zone}"
        )
    labels = [
        other.label
        for other in deliveries
        if other.event_id == row.event_id and other.label and other.status not in ("dead", "dropped")
    ]
    until = f"{datetime.fromtimestamp(row.run_after, UTC):%H:%M:%S} UTC"
    return f"waits for {', '.join(labels)} until {until}" if labels else f"waits until {until}"
