"""One write transaction: the rows it changes and the events that say so, chained by hash.

The hash of an event covers its fields and the hash before it; an event about a request holds the hash of its
whole row as it then is. Every hundredth event brings a signed checkpoint (how many events, the newest hash)
in the same transaction. This module does not know what events mean.
"""

from __future__ import annotations

import hashlib

import apsw
import msgspec

from whet.confirm.keys import SigningKey, base64url
from whet.confirm.records import AuditEvent
from whet.confirm.sealer import NO_EVENT, Sealer, sealer_of

GENESIS = NO_EVENT[1]
CHECKPOINT_EVERY = 100
_encode = msgspec.json.Encoder().encode
_INSERT = (
    "INSERT INTO events (id, at, kind, request_id, principal, owner, data, hash) VALUES (?,?,?,?,?,?,?,?)"
)


def event_hash(before: bytes, fields: tuple[object, ...]) -> bytes:
    """Give the hash of an event whose columns but the last are `fields`, after an event hashed `before`."""
    return hashlib.sha256(before + _encode(fields)).digest()


def checkpoint_message(size: int, head: str, at_s: float) -> bytes:
    """Give the bytes that a checkpoint's signature covers."""
    return f"whet-checkpoint/1\n{size}\n{head}\n{at_s!r}".encode()


class Tx:
    """What a work is given: the connection inside a transaction, the time, and the audit log's end."""

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
        """Append an event, with the hash of the request's whole row where that was just written. It is on
        disk when the transaction is."""
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
