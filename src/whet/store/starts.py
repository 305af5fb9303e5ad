"""The items that a new session starts with: learned items in its context, and the template that was
requested.

Every function takes a connection inside a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import apsw
import msgspec

from whet.store import sessions

ItemKind = Literal["memory", "user", "skill", "example"]
LABEL_CHARS = 120


class ContextItem(msgspec.Struct, frozen=True):
    """A learned item in a session's context. `name` and `hash` identify its version."""

    kind: ItemKind
    name: str
    hash: str
    label: str = ""


def record_items(
    connection: apsw.Connection,
    session_id: str,
    present: Iterable[ContextItem],
    held_out: Iterable[ContextItem] = (),
    *,
    randomised: bool = False,
) -> None:
    """Store the items a session began with, and those that were held out by chance. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    for items, is_out in ((present, 0), (held_out, 1)):
        for item in items:
            connection.execute(
                "INSERT OR IGNORE INTO context_items (kind, name, hash, label) VALUES (?, ?, ?, ?)",
                (item.kind, item.name, item.hash, item.label[:LABEL_CHARS]),
            )
            connection.execute(
                "INSERT OR REPLACE INTO session_items"
                " SELECT ?, id, ?, ? FROM context_items WHERE kind = ? AND name = ? AND hash = ?",
                (key, is_out, int(randomised), item.kind, item.name, item.hash),
            )


def list_held_out_names(connection: apsw.Connection, session_id: str) -> frozenset[str]:
    """Return the names of the items that were held out from a session by chance."""
    rows = connection.execute(
        "SELECT i.name FROM session_items u JOIN context_items i ON i.id = u.item"
        " WHERE u.session = ? AND u.held_out",
        (sessions.key_of(connection, session_id),),
    )
    return frozenset(name for (name,) in rows)


def set_next(connection: apsw.Connection, workspace: str, template: str, now: str) -> None:
    """Start the next new session in `workspace` with this template."""
    connection.execute(
        "INSERT OR REPLACE INTO warm_next (workspace, template, at) VALUES (?, ?, ?)",
        (workspace, template, now),
    )


def read_next(connection: apsw.Connection, workspace: str) -> str:
    """Return the template for the next session in `workspace`, or an empty string."""
    row = connection.execute("SELECT template FROM warm_next WHERE workspace = ?", (workspace,)).fetchone()
    return row[0] if row else ""


def forget_next(connection: apsw.Connection, workspace: str, template: str = "") -> None:
    """Undo `set_next`. With `template`, only if it is that one, in any workspace."""
    if template:
        connection.execute("DELETE FROM warm_next WHERE template = ?", (template,))
    else:
        connection.execute("DELETE FROM warm_next WHERE workspace = ?", (workspace,))
