"""Record which instructions of a folder a notice has named, so that each text is named once.

The texts are beside the prompts of sessions. Like those of no session, they are removed when a session is
deleted, and then named again.
"""

from __future__ import annotations

import hashlib

import apsw

from whet.store import rows
from whet.store.sessions import freeze_texts


def read_first_start(connection: apsw.Connection, workspace: str) -> str:
    """Return the time at which a workspace's first session began (ISO), or an empty string."""
    sql = "SELECT min(started) FROM sessions WHERE workspace = ?"
    return rows.read_value(connection, sql, workspace) or ""


def claim_text(connection: apsw.Connection, text: str) -> bool:
    """Record a text. Returns False if it was recorded before."""
    digest = hashlib.sha256(text.encode()).digest()
    if rows.read_value(connection, "SELECT 1 FROM frozen_texts WHERE hash = ?", digest):
        return False
    freeze_texts(connection, text, "")
    return True
