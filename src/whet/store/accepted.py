"""Messages that were accepted for a session and that no turn has stored yet.

A message is stored here before a person or a program reads that it is accepted. The transaction that stores
it in the transcript removes it. What is left of a process that has ended is read by the session's next turn.
Every function takes a connection inside a transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import apsw
import msgspec

from whet.contract.messages import Message
from whet.store import claims, rows
from whet.store.jobs import AtEnd, QueuedJob


class AcceptedMessage(msgspec.Struct, frozen=True):
    """An accepted message; `is_left` states that the process that accepted it has ended."""

    id: int
    message: Message
    is_left: bool


def add(connection: apsw.Connection, session_id: str, message: Message) -> int:
    """Store an accepted message and return its number."""
    _, _, content, extra = rows.pack(rows.to_storable(message), 0)
    connection.execute(
        "INSERT INTO accepted_messages (session, owner, content, extra) VALUES (?, ?, ?, ?)",
        (session_id, claims.owner_name("accepted"), content, extra),
    )
    return connection.last_insert_rowid()


def waiting(connection: apsw.Connection, session_id: str) -> list[AcceptedMessage]:
    """Return a session's accepted messages, oldest first."""
    stored = connection.execute(
        "SELECT id, owner, content, extra FROM accepted_messages WHERE session = ? ORDER BY id", (session_id,)
    ).fetchall()
    return [
        AcceptedMessage(id_, rows.unpack(rows.USER, content, extra), claims.is_gone(connection, owner))
        for id_, owner, content, extra in stored
    ]


def left(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the texts of the messages that an ended process accepted, oldest first."""
    return [entry.message.text for entry in waiting(connection, session_id) if entry.is_left]


def remove(connection: apsw.Connection, ids: Collection[int]) -> None:
    """Remove accepted messages."""
    connection.executemany("DELETE FROM accepted_messages WHERE id = ?", [(id_,) for id_ in ids])


def removing(ids: Collection[int], also: AtEnd) -> AtEnd:
    """Return the work of `also`, which removes these accepted messages as well."""

    def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
        remove(connection, ids)
        return also(connection)

    return work
