"""Store texts once, by their hash: the prompts and tools of sessions, and instructions that a notice named.

Those of no session are removed when a session is deleted.
"""

from __future__ import annotations

import hashlib

import apsw

from whet.store import rows


def freeze(connection: apsw.Connection, first: str, second: str) -> tuple[bytes, bytes]:
    """Store two texts unless they are stored, and return their hashes. Others may store them at the same
    time."""
    digests = _digest(first), _digest(second)
    pairs = sorted(zip(digests, (first, second), strict=True))  # sorted, so that writers can't deadlock
    insert = "INSERT INTO frozen_texts (hash, text) VALUES (?, ?), (?, ?) ON CONFLICT (hash) DO NOTHING"
    is_team = rows.is_team(connection)
    connection.execute("SELECT whet_freeze_texts(?, ?, ?, ?)" if is_team else insert, (*pairs[0], *pairs[1]))
    return digests


def is_frozen(connection: apsw.Connection, text: str) -> bool:
    """Return whether a text is stored."""
    record = connection.execute("SELECT 1 FROM frozen_texts WHERE hash = ?", (_digest(text),)).fetchone()
    return record is not None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
