"""One write transaction: the rows that it changes and the events that record it, chained by hash.

The hash of an event covers its fields and the previous hash; an event about a request contains the hash of
its whole row. Every hundredth event adds a signed checkpoint (number of events, newest hash) in the same
transaction. This module does not know the meaning of events.
"""

from __future__ import annotations

import hashlib

import apsw
import msgspec

from whet_confirm.keys import SigningKey, base64url
from whet_confirm.records import AuditEvent
from whet_confirm.sealer import NO_EVENT, Sealer, sealer_of

GENESIS = NO_EVENT[1]
CHECKPOINT_EVERY = 100
_encode = msgspec.json.Encoder().encode
_INSERT = (
    "INSERT INTO events (id, at, kind, request_id, principal, owner, data, hash) VALUES (?,?,?,?,?,?,?,?)"
)


def event_hash(before: bytes, fields: tuple[object, ...]) -> bytes:
    """Return the hash of an event with these `fields` (all columns but the hash) after the hash `before`."""
    return hashlib.sha256(before + _encode(fields)).digest()


def checkpoint_message(size: int, head: str, at_s: float) -> bytes:
    """Return the bytes that a checkpoint's signature covers."""
    return f"whet-checkpoint/1\n{size}\n{head}\n{at_s!r}".encode()


class Tx:
    """The context of a write: the connection inside a transaction, the time, and the end of the audit log."""

    __slots__ = ("_head", "_size", "connection", "events", "key", "now_s", "sealer")

    def __init__(self, connection: apsw.Connection, now_s: float, key: SigningKey) -> None:
        self.connection: apsw.Connection = connection
        self.now_s: float = now_s
        self.key: SigningKey = key
        self.events: list[AuditEvent] = []
        self.sealer: Sealer = sealer_of(connection)
        self._size, self._head = self.sealer.log_end()

    def record(
        self,
        kind: str,
        request_id: str = "",
        principal: str = "",
        owner: str = "",
        data: dict[str, object] | None = None,
    ) -> AuditEvent:
        """Append an event, with the hash of the request's whole row if that was just written.

        The event is durable once the transaction is.
        """
        self._size = size = self._size + 1
        if request_id and (written := self.sealer.newest.pop("requests", None)):
            data = data or {}
            data["record"] = written.hex()
        text = _encode(data).decode() if data else "{}"
        fields = (size, self.now_s, kind, request_id, principal, owner, text)
        self._head = head = event_hash(self._head, fields)
        cells = (*fields, head)
        self.sealer.append(_INSERT, cells)
        event = AuditEvent(*cells)
        self.events.append(event)
        if size % CHECKPOINT_EVERY == 0:
            self.checkpoint()
        return event

    def checkpoint(self) -> None:
        """Sign the log's length and newest hash, and the seal."""
        self.sealer.sign()
        head = self._head.hex()
        signature = base64url(self.key.sign(checkpoint_message(self._size, head, self.now_s)))
        self.connection.execute(
            "INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?, ?, ?)",
            (self._size, head, self.now_s, self.key.id, signature),
        )
