"""Takes words out of the store for good: rows of learning keep their numbers and dates, their words are gone.

Every function but `erase` takes a connection inside a transaction. What may go is for the layers above to
say. Deleting alone leaves words behind: in the search index until its parts are merged, in freed pages until
they are used again, in the log until it is cut. `erase` sees to all three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import apsw

from whet.store.database import StateDatabase

_MERGED_PAGES = 1_000
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
            connection.execute("UPDATE ledger SET remark = '' WHERE id = ?", (row_id,))
            connection.execute(f"UPDATE ledger SET {column} = ? WHERE id = ?", (PURGED, row_id))
    if proof:
        connection.execute(
            "UPDATE ledger SET evidence = '[]', reason = '', remark = '' WHERE id = ?", (row_id,)
        )


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


def texts_with(connection: apsw.Connection, texts: Iterable[Sequence[str]]) -> list[str]:
    """Give the hashes of kept files' texts in which one of these stands; of each, all parts."""
    found: dict[str, None] = {}
    for text in texts:
        parts = [part.encode() for part in text]
        rows = connection.execute(
            "SELECT hash, content FROM learned_texts WHERE instr(content, ?)", (max(parts, key=len),)
        )
        found |= dict.fromkeys(key for key, content in rows if all(part in content for part in parts))
    return list(found)


def has_text(connection: apsw.Connection, key: str) -> bool:
    """Whether a kept text is still there; the empty hash is no text, and always is."""
    return not key or bool(
        connection.execute("SELECT 1 FROM learned_texts WHERE hash = ?", (key,)).fetchone()
    )


def erase(database: StateDatabase) -> None:
    """Take what was deleted out of the search index, the file and its log. Once is as good as twice.

    The index is merged in steps, between which others may write; then the file is rewritten.
    Raises StoreBusy where others keep on using the file, StoreFull.
    """
    if database.is_team:
        return database.scrub()
    # Less than zero: all parts become one, those with deleted rows too. The others go on with that.
    pages = -_MERGED_PAGES
    while database.write_now(lambda db, pages=pages: _merge_index(db, pages)):
        pages = _MERGED_PAGES
    database.scrub()


def _merge_index(connection: apsw.Connection, pages: int) -> bool:
    """Merge some of the search index; True while there may be more to merge. Source: FTS5's documentation."""
    before = connection.total_changes()
    connection.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('merge', ?)", (pages,))
    return connection.total_changes() - before >= 2


def drop_traces(connection: apsw.Connection, session_id: str) -> None:
    """Take a session's words out of what is not its own rows: what a review of it was asked, the answer of a
    schedule's run, and chat messages that have been dealt with (nothing reads those again)."""
    connection.execute(
        "UPDATE jobs SET payload = json_set(payload, '$.focus', '') WHERE kind = 'review'"
        " AND json_valid(payload) AND json_extract(payload, '$.session_id') = ?",
        (session_id,),
    )
    connection.execute("UPDATE schedule_runs SET note = '', text = '' WHERE session_id = ?", (session_id,))
    connection.execute("DELETE FROM helpers WHERE parent = ? OR session = ?", (session_id, session_id))
    chats = "chat IN (SELECT id FROM gateway_chats WHERE session_id = ?)"
    connection.execute(
        f"UPDATE gateway_inbox SET body = '{{}}' WHERE {chats} AND state IN ('done', 'dropped')",
        (session_id,),
    )
    connection.execute(
        f"UPDATE gateway_outbox SET body = '{{}}' WHERE {chats} AND state NOT IN ('queued', 'sending')",
        (session_id,),
    )


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
