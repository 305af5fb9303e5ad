"""The prefix of a session's requests: its system prompt, tools and examples.

Each is stored once per distinct text, because resume must send the very same bytes.
"""

from __future__ import annotations

import hashlib

import apsw

from whet.contract.errors import NotFound, StoreError
from whet.store.session_keys import NO_SESSION_HINT, require_change


def prefix(connection: apsw.Connection, session_id: str) -> tuple[str, str]:
    """Return the system prompt and the tool array's JSON, exactly as they were at creation."""
    row = connection.execute(
        "SELECT a.text, b.text FROM sessions s JOIN frozen_texts a ON a.id = s.system_text"
        " JOIN frozen_texts b ON b.id = s.tools_text WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no session {session_id}", hint=NO_SESSION_HINT)
    return row[0], row[1]


def prime_of(connection: apsw.Connection, session_id: str) -> str:
    """Return the examples that a session was started with, as JSON, or an empty string if it was started
    cold."""
    row = connection.execute(
        "SELECT t.text FROM sessions s JOIN frozen_texts t ON t.id = s.prime_text WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    return row[0] if row else ""


def set_prime(connection: apsw.Connection, session_id: str, system_prompt: str, prime_json: str) -> None:
    """Put examples into a session's prefix before its first turn. Raises StoreError afterwards."""
    connection.execute(
        "UPDATE sessions SET system_text = ?, prime_text = ? WHERE id = ? AND turns = 0",
        (freeze_text(connection, system_prompt), freeze_text(connection, prime_json), session_id),
    )
    if not connection.changes():
        raise StoreError("a session's prefix can't change once something was said", hint="start a new one")


def freeze_prefix(connection: apsw.Connection, session_id: str, prompt: str, tools_json: str) -> None:
    """Set the lasting prefix of a session that was stored without one. Raises NotFound."""
    connection.execute(
        "UPDATE sessions SET system_text = ?, tools_text = ? WHERE id = ?",
        (freeze_text(connection, prompt), freeze_text(connection, tools_json), session_id),
    )
    require_change(connection, session_id)


def freeze_text(connection: apsw.Connection, text: str) -> int:
    """Store a text unless it is stored, and return its id."""
    digest = hashlib.sha256(text.encode()).digest()
    row = connection.execute("SELECT id FROM frozen_texts WHERE hash = ?", (digest,)).fetchone()
    if row is not None:
        return row[0]
    connection.execute("INSERT INTO frozen_texts (hash, text) VALUES (?, ?)", (digest, text))
    return connection.last_insert_rowid()
