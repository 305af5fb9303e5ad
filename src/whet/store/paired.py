"""Store the people of chat platforms who were admitted by a pairing code or by the owner, and those who wait.

A code is stored as a digest, is valid for minutes, and works once. Every function takes a connection inside a
transaction.
"""

from __future__ import annotations

import hashlib

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.store import rows

MAX_WAITING = 20


class PairedPerson(msgspec.Struct, frozen=True):
    """A person who was admitted. `since` is an ISO time."""

    channel: str
    user: str
    name: str
    since: str


class PairingRequest(msgspec.Struct, frozen=True):
    """A person who received a code and waits to be admitted."""

    channel: str
    user: str
    name: str
    made_ms: int
    expires_ms: int


def is_paired(connection: apsw.Connection, channel: str, user: str) -> bool:
    """Return whether a person was admitted."""
    sql = "SELECT 1 FROM gateway_people WHERE channel = ? AND user = ?"
    return rows.read_value(connection, sql, channel, user) is not None


def store_code(connection: apsw.Connection, request: PairingRequest, chat_id: int, code: str) -> bool:
    """Store a code for a person. Return False if they have one already, or if too many people wait on the
    channel."""
    connection.execute("DELETE FROM gateway_codes WHERE expires_ms <= ?", (request.made_ms,))
    row = connection.execute(
        "SELECT count(*), coalesce(sum(user = ?), 0) FROM gateway_codes WHERE channel = ?",
        (request.user, request.channel),
    ).fetchone()
    if row is not None and (row[1] or row[0] >= MAX_WAITING):
        return False
    connection.execute(
        "INSERT INTO gateway_codes (channel, user, name, made_ms, expires_ms, chat, digest)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*msgspec.structs.astuple(request), chat_id, _digest(code)),
    )
    return True


def accept(connection: apsw.Connection, code: str, now_ms: int, now: str) -> tuple[PairedPerson, int]:
    """Admit the person with this code and return them with the number of their conversation. The code does
    not work again. Raises NotFound."""
    row = connection.execute(
        "SELECT channel, user, name, chat FROM gateway_codes WHERE digest = ? AND expires_ms > ?",
        (_digest(code), now_ms),
    ).fetchone()
    if row is None:
        raise NotFound(
            "there is no such pairing code", hint="codes last ten minutes; a new message gets a new one"
        )
    channel, user, name, chat_id = row
    connection.execute("DELETE FROM gateway_codes WHERE channel = ? AND user = ?", (channel, user))
    connection.execute(
        "INSERT OR REPLACE INTO gateway_people VALUES (?, ?, ?, ?)", (channel, user, name, now)
    )
    return PairedPerson(channel, user, name, now), chat_id


def add_person(connection: apsw.Connection, person: PairedPerson) -> bool:
    """Admit a person without a code, by the owner's decision. Return False if they were admitted before."""
    connection.execute(
        "INSERT OR IGNORE INTO gateway_people VALUES (?, ?, ?, ?)",
        msgspec.structs.astuple(person),
    )
    return bool(connection.changes())


def remove(connection: apsw.Connection, channel: str, user: str) -> None:
    """Remove a person. Raises NotFound."""
    connection.execute("DELETE FROM gateway_people WHERE channel = ? AND user = ?", (channel, user))
    if not connection.changes():
        raise NotFound(f"nobody with the id {user} was paired on {channel}", hint="whet gateway pair list")


def list_people(connection: apsw.Connection) -> list[PairedPerson]:
    """Return all admitted people, oldest first."""
    cursor = connection.execute("SELECT channel, user, name, since FROM gateway_people ORDER BY since")
    return [PairedPerson(*row) for row in cursor]


def list_requests(connection: apsw.Connection, now_ms: int) -> list[PairingRequest]:
    """Return all requests whose code is still valid."""
    cursor = connection.execute(
        "SELECT channel, user, name, made_ms, expires_ms FROM gateway_codes WHERE expires_ms > ?"
        " ORDER BY made_ms",
        (now_ms,),
    )
    return [PairingRequest(*row) for row in cursor]


def _digest(code: str) -> str:
    folded = "".join(character for character in code.upper() if character.isalnum())
    return hashlib.sha256(folded.encode()).hexdigest()
