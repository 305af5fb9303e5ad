"""The audit log as a stream: publish and count newly committed events, read older ones again.

Used on one event loop's thread. The ledger writes events; `audit.py` checks the hash chain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import apsw

from whet_confirm.database import ConfirmDatabase
from whet_confirm.hub import Hub
from whet_confirm.records import AuditEvent, AuditState
from whet_confirm.timeline import Timeline
from whet_confirm.watermark import Watermark

_COLUMNS = "id, at, kind, request_id, principal, owner, data, hash"
_PAGE = 500
_LOG = logging.getLogger("whet_confirm.events")


class EventLog:
    """Every event of the service.

    `pending_by` is the number of pending requests by principal, `event_counts` the number of events by
    kind since the start.
    """

    def __init__(self, database: ConfirmDatabase) -> None:
        self._database = database
        self.hub: Hub = Hub(database.read_now(_last_id), self._read_range)
        self.watermark: Watermark | None = None
        self._newest: AuditEvent | None = None
        database.committed = self._update_watermark
        self.event_counts: Counter[str] = Counter()
        sql = "SELECT principal, count(*) FROM requests WHERE status = 'pending' GROUP BY principal"
        self.pending_by: dict[str, int] = database.read_now(lambda db: dict(db.execute(sql).fetchall()))

    def read_after(self, after_id: int) -> Sequence[AuditEvent]:
        """Return the next events after `after_id`, from memory if possible, otherwise from the database."""
        recent = self.hub.recent_after(after_id)
        return self.history(after_id=after_id) if recent is None else recent

    def history(self, *, request_id: str = "", after_id: int = 0, limit: int = _PAGE) -> list[AuditEvent]:
        """Return events, oldest first, after `after_id`: of one request, or of all."""
        where = "request_id = ? AND request_id != '' AND id > ?" if request_id else "id > ?"
        values = (request_id, after_id, limit) if request_id else (after_id, limit)
        sql = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY id LIMIT ?"
        return self._database.read_now(lambda db: [AuditEvent(*row) for row in db.execute(sql, values)])

    def state(self) -> AuditState:
        """Return how far the log and its signed checkpoints go."""

        def read(db: apsw.Connection) -> AuditState:
            last = db.execute("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
            mark = db.execute("SELECT size, at FROM checkpoints ORDER BY size DESC LIMIT 1").fetchone()
            size, head = (last[0], last[1].hex()) if last else (0, "")
            marked, marked_at = mark or (0, None)
            return AuditState(size, head, marked, marked_at)

        return self._database.read_now(read)

    def checkpoints_after(self, size: int) -> Sequence[dict[str, object]]:
        """Return the signed checkpoints of more than `size` events, oldest first."""
        names = ("size", "head", "at", "key_id", "signature")
        sql = f"SELECT {', '.join(names)} FROM checkpoints WHERE size > ? ORDER BY size LIMIT 1000"
        return self._database.read_now(
            lambda db: [dict(zip(names, row, strict=True)) for row in db.execute(sql, (size,))]
        )

    def newest_checkpoint(self) -> dict[str, object] | None:
        """Return the newest signed checkpoint, or None."""
        names = ("size", "head", "at", "key_id", "signature")
        sql = f"SELECT {', '.join(names)} FROM checkpoints ORDER BY size DESC LIMIT 1"
        row = self._database.read_one(sql, ())
        return dict(zip(names, row, strict=True)) if row else None

    def catch_up(self, timeline: Timeline) -> None:
        """Publish the events that other processes wrote, and advance the clock past them."""
        events = self.history(after_id=self.hub.last_id)
        if events:
            timeline.raise_floor(events[-1].at)
            self._publish(events)

    def publish(self, result: tuple[object, list[AuditEvent]] | None, error: BaseException | None) -> None:
        """Publish the events that a finished write committed, or nothing if it failed."""
        if error is None and result is not None and result[1]:
            self._newest = result[1][-1]
            self._publish(result[1])

    def _update_watermark(self) -> None:
        """Update the watermark, once per commit."""
        newest, self._newest = self._newest, None
        if newest is not None and self.watermark is not None:
            try:
                self.watermark.write(newest)
            except OSError as error:  # the events are committed; the next commit tries again
                _LOG.error("the log's end could not be stored: %s", error.strerror)

    def _publish(self, events: Sequence[AuditEvent]) -> None:
        for event in self.hub.publish(events):
            self._count(event)

    def _count(self, event: AuditEvent) -> None:
        self.event_counts[event.kind] += 1
        if event.kind == "submitted":
            self.pending_by[event.owner] = self.pending_by.get(event.owner, 0) + 1
        elif event.kind in ("decided", "expired", "cancelled"):
            remaining = self.pending_by.get(event.owner, 0) - 1
            if remaining > 0:
                self.pending_by[event.owner] = remaining
            else:
                self.pending_by.pop(event.owner, None)

    def _read_range(self, after_id: int, before_id: int) -> list[AuditEvent]:
        sql = f"SELECT {_COLUMNS} FROM events WHERE id > ? AND id < ? ORDER BY id"
        return self._database.read_now(
            lambda db: [AuditEvent(*row) for row in db.execute(sql, (after_id, before_id))]
        )


def _last_id(db: apsw.Connection) -> int:
    row = db.execute("SELECT id FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return int(row[0]) if row else 0
