"""The outbox: what people are to be told, written with what causes it, leased by the notifier.

An item is leased for a while; a notifier that dies leaves it to the next one. How far each channel got is
in `deliveries`, the notifier's own table.
"""

from __future__ import annotations

import apsw

from whet.confirm.records import OutboxItem


def lease(db: apsw.Connection, now_s: float, owner: str, limit: int, lease_s: float) -> list[OutboxItem]:
    """Take up to `limit` items that are due and free, oldest first."""
    rows = db.execute(
        "SELECT id, kind, request_id, at, attempts FROM outbox WHERE run_after <= ? AND leased_until <= ?"
        " ORDER BY id LIMIT ?",
        (now_s, now_s, limit),
    ).fetchall()
    for row in rows:
        db.execute(
            "UPDATE outbox SET leased_until = ?, leased_by = ?, attempts = attempts + 1 WHERE id = ?",
            (now_s + lease_s, owner, row[0]),
        )
    return [OutboxItem(*row) for row in rows]


def finish(db: apsw.Connection, ids: list[int]) -> None:
    """Take items off: everybody who could be told was told, or was given up on."""
    db.executemany("DELETE FROM outbox WHERE id = ?", [(item,) for item in ids])


def postpone(db: apsw.Connection, item_id: int, run_after_s: float) -> None:
    """Give an item back, to be tried again at `run_after_s`."""
    db.execute("UPDATE outbox SET leased_until = 0, run_after = ? WHERE id = ?", (run_after_s, item_id))


def depth(db: apsw.Connection) -> int:
    """How many items wait."""
    row = db.execute("SELECT count(*) FROM outbox").fetchone()
    return int(row[0]) if row else 0
