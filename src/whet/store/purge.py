"""Takes texts of learning out of the store for good: rows keep their numbers and dates, their words are gone.

Every function takes a connection inside a transaction. What may go is for the memory layer to say; that the
bytes go too is `Database.scrub`'s business.
"""

from __future__ import annotations

from collections.abc import Collection

import apsw

PURGED = "(purged)"
"""Stands where a purged text stood."""


def blank_row(
    connection: apsw.Connection,
    row_id: int,
    *,
    before: bool = False,
    after: bool = False,
    proof: bool = False,
) -> None:
    """Take out a row's texts; with `proof` its quotes and its reason too."""
    for column, wanted in (("before", before), ("after", after)):
        if wanted:
            connection.execute(f"UPDATE ledger SET {column} = ? WHERE id = ?", (PURGED, row_id))
    if proof:
        connection.execute("UPDATE ledger SET evidence = '[]', reason = '' WHERE id = ?", (row_id,))


def drop_texts(connection: apsw.Connection, keys: Collection[str]) -> int:
    """Delete kept files' texts by hash, those that a file holds or should hold excepted; gives how many."""
    count = 0
    for key in keys:
        connection.execute(
            "DELETE FROM learned_texts WHERE hash = ?1"
            " AND NOT EXISTS (SELECT 1 FROM learned_files WHERE wanted = ?1 OR written = ?1)",
            (key,),
        )
        count += connection.changes()
    return count


def texts_with(connection: apsw.Connection, words: Collection[str]) -> list[str]:
    """Give the hashes of kept files' texts in which one of these stands."""
    found: dict[str, None] = {}
    for text in words:
        rows = connection.execute(
            "SELECT hash FROM learned_texts WHERE instr(content, CAST(? AS BLOB))", (text,)
        )
        found |= dict.fromkeys(row[0] for row in rows)
    return list(found)


def has_text(connection: apsw.Connection, key: str) -> bool:
    """Whether a kept text is still there; the empty hash is no text, and always is."""
    return not key or bool(
        connection.execute("SELECT 1 FROM learned_texts WHERE hash = ?", (key,)).fetchone()
    )


def drop_index_remains(connection: apsw.Connection) -> None:
    """Write the search index anew without the words of deleted sessions."""
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('optimize')")


def drop_labels(connection: apsw.Connection, labels: Collection[str]) -> None:
    """Take what items said out of the records of what sessions began with."""
    for label in labels:
        connection.execute("UPDATE context_items SET label = '' WHERE label = ?", (label,))


def prompts_with(connection: apsw.Connection, words: Collection[str]) -> list[str]:
    """Give the sessions in whose system prompt one of these stands, oldest first."""
    found: dict[str, None] = {}
    for text in words:
        rows = connection.execute(
            "SELECT s.id FROM sessions s JOIN frozen_texts f ON f.id = s.system_text"
            " WHERE instr(f.text, ?) ORDER BY s.key",
            (text,),
        )
        found |= dict.fromkeys(row[0] for row in rows)
    return list(found)
