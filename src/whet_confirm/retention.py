"""Delete old requests and old events without breaking the proof of the audit log.

Events are deleted up to a signed checkpoint, which then vouches for them; they can first be exported as
JSON lines. Pending requests and everything newer stay.
"""

from __future__ import annotations

import apsw
import msgspec

from whet_confirm.ledger import Tx

_BATCH = 1000


class PruningPlan(msgspec.Struct, frozen=True):
    """The planned deletion: requests that ended before `before_s`, events up to `size` (a checkpoint)."""

    before_s: float
    size: int
    events: int
    requests: int


def plan_pruning(db: apsw.Connection, before_s: float) -> PruningPlan:
    """Find the data older than `before_s`."""
    row = db.execute("SELECT value FROM facts WHERE name = 'pruned_to'").fetchone()
    base = int(row[0]) if row else 0
    ((mark,),) = db.execute("SELECT coalesce(max(size), 0) FROM checkpoints WHERE at < ?", (before_s,))
    size = max(base, mark)
    ((count,),) = db.execute(
        "SELECT count(*) FROM requests WHERE status != 'pending' AND resolved_at < ?", (before_s,)
    )
    return PruningPlan(before_s, size, size - base, count)


def record_pruning(tx: Tx, plan: PruningPlan, by: str) -> None:
    """Record the deletion in the log before it happens."""
    data: dict[str, object] = {"before": plan.before_s, "events_to": plan.size, "requests": plan.requests}
    tx.record("pruned", principal=by, data=data)
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('pruned_to', ?)", (str(plan.size),))
    tx.connection.execute("INSERT OR REPLACE INTO facts VALUES ('pruned_before', ?)", (repr(plan.before_s),))


def prune_batch(db: apsw.Connection, plan: PruningPlan) -> int:
    """Delete one batch and return the number of rows, or 0 when all is done."""
    ids = db.execute(
        "SELECT id FROM requests WHERE status != 'pending' AND resolved_at < ? LIMIT ?",
        (plan.before_s, _BATCH),
    ).fetchall()
    for table in ("votes", "views", "deliveries", "receipts", "callbacks"):
        db.executemany(f"DELETE FROM {table} WHERE request_id = ?", ids)
    db.executemany("DELETE FROM requests WHERE id = ?", ids)
    db.execute(
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id <= ? LIMIT ?)", (plan.size, _BATCH)
    )
    count = db.changes()
    db.execute("DELETE FROM checkpoints WHERE size < ?", (plan.size,))
    return len(ids) + count
