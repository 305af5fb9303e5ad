"""How far each channel got with each piece of news: rows that survive a crash, and that people can see.

queued: to be sent. failed: will be tried again. sent. dead: given up. dropped: no longer news. A row that is
taken is put off by a lease, so that a notifier that dies in the middle leaves it to the next one. `ref` is
where the channel's message is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

LEASE_S = 60.0
LOG = "log"
_COLUMNS = "id, outbox_id, kind, request_id, channel, status, attempts, run_after, error, ref, updated_at"
_OPEN = "status IN ('queued', 'failed')"


class Delivery(msgspec.Struct, frozen=True):
    """One row. Times are Unix seconds."""

    id: int
    outbox_id: int
    kind: str
    request_id: str
    channel: str
    status: str
    attempts: int
    run_after: float
    error: str
    ref: str
    updated_at: float


ChannelsOf = Callable[[apsw.Connection, str, str], Sequence[str]]


def spread(db: apsw.Connection, now_s: float, limit: int, channels_of: ChannelsOf) -> int:
    """Turn up to `limit` outbox items into one delivery for each channel; gives how many items there were.

    `channels_of` gives the channels for a kind and a request. One transaction: an item is either still in
    the outbox or in the deliveries.
    """
    items = db.execute("SELECT id, kind, request_id FROM outbox ORDER BY id LIMIT ?", (limit,)).fetchall()
    for item_id, kind, request_id in items:
        for channel in channels_of(db, kind, request_id) or (LOG,):
            add(db, (item_id, kind, request_id, channel), now_s)
        db.execute("DELETE FROM outbox WHERE id = ?", (item_id,))
    return len(items)


def add(db: apsw.Connection, what: tuple[int, str, str, str], now_s: float) -> None:
    """Queue (outbox id, kind, request id, channel); once, however often it is asked for."""
    db.execute(
        "INSERT OR IGNORE INTO deliveries"
        " (outbox_id, kind, request_id, channel, status, run_after, updated_at)"
        " VALUES (?, ?, ?, ?, 'queued', ?, ?)",
        (*what, now_s, now_s),
    )


def take(db: apsw.Connection, channel: str, now_s: float) -> Delivery | None:
    """Take the channel's oldest row that is due, for `LEASE_S`."""
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
    taken = Delivery(*row)
    return msgspec.structs.replace(taken, attempts=taken.attempts + 1)


def next_due(db: apsw.Connection, channel: str) -> float | None:
    """When the channel's next row is due; None where nothing waits."""
    row = db.execute(
        f"SELECT min(run_after) FROM deliveries WHERE channel = ? AND {_OPEN}", (channel,)
    ).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def end(
    db: apsw.Connection, delivery: Delivery, status: str, now_s: float, *, error: str = "", ref: str = ""
) -> None:
    """Close a row as sent, dead or dropped."""
    db.execute(
        "UPDATE deliveries SET status = ?, error = ?, ref = ?, updated_at = ? WHERE id = ?",
        (status, error[:300], ref, now_s, delivery.id),
    )


def again(db: apsw.Connection, delivery: Delivery, run_after_s: float, now_s: float, error: str) -> None:
    """Note a failure that is tried again."""
    db.execute(
        "UPDATE deliveries SET status = 'failed', error = ?, run_after = ?, updated_at = ? WHERE id = ?",
        (error[:300], run_after_s, now_s, delivery.id),
    )


def nobody_was_told(db: apsw.Connection, outbox_id: int) -> bool:
    """Whether no channel has got an item through."""
    row = db.execute(
        "SELECT 1 FROM deliveries WHERE outbox_id = ? AND status = 'sent' LIMIT 1", (outbox_id,)
    ).fetchone()
    return row is None


def where_sent(db: apsw.Connection, request_id: str, channel: str) -> list[str]:
    """Give the channel's messages about a request, to be changed when it changes."""
    rows = db.execute(
        "SELECT DISTINCT ref FROM deliveries WHERE request_id = ? AND channel = ? AND ref <> '' ORDER BY ref",
        (request_id, channel),
    )
    return [str(row[0]) for row in rows]


def of_request(db: apsw.Connection, request_id: str) -> list[Delivery]:
    """Give a request's deliveries, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE request_id = ? ORDER BY id", (request_id,))
    return [_row(row) for row in rows]


def _row(row: tuple[Any, ...]) -> Delivery:
    return Delivery(*row)
