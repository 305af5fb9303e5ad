"""Remove texts from the store for good. Rows of the ledger keep their numbers and dates.

Deleting alone leaves text in the search index until its parts are merged, in freed pages until they are
reused, and in the log until it is truncated. `erase` removes it from all three. Every other function takes a
connection inside a transaction. The layers above decide which texts to remove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import apsw

from whet.store.database import StateDatabase

_MERGED_PAGES = 1_000
PURGED = "(purged)"
"""The text in place of a purged one."""


def blank_row(
    connection: apsw.Connection,
    row_id: int,
    *,
    before: bool = False,
    after: bool = False,
    proof: bool = False,
) -> None:
    """Remove a row's text before or after the change, or (`proof`) its quotes and reason, and its remark."""
    for column, is_wanted in (("before", before), ("after", after)):
        if is_wanted:
            connection.execute("UPDATE ledger SET remark = '' WHERE id = ?", (row_id,))
            connection.execute(f"UPDATE ledger SET {column} = ? WHERE id = ?", (PURGED, row_id))
    if proof:
        connection.execute(
            "UPDATE ledger SET evidence = '[]', reason = '', remark = '' WHERE id = ?", (row_id,)
        )


def drop_texts(connection: apsw.Connection, keys: Collection[str]) -> int:
    """Delete stored file texts by hash, except those that a file has or should have. Return how many."""
    count = 0
    for key in keys:
        connection.execute(
            "DELETE FROM learned_texts WHERE hash = ?1"
            " AND NOT EXISTS (SELECT 1 FROM learned_files WHERE wanted = ?1 OR written = ?1)",
            (key,),
        )
        count += connection.changes()
    return count


def find_texts(connection: apsw.Connection, texts: Iterable[Sequence[str]]) -> list[str]:
    """Return the hashes of stored file texts that contain all parts of one of these texts."""
    keys: dict[str, None] = {}
    for text in texts:
        parts = [part.encode() for part in text]
        rows = connection.execute(
            "SELECT hash, content FROM learned_texts WHERE instr(content, ?)", (max(parts, key=len),)
        )
        keys |= dict.fromkeys(key for key, content in rows if all(part in content for part in parts))
    return list(keys)


def has_text(connection: apsw.Connection, key: str) -> bool:
    """Return whether a stored text still exists. The empty hash stands for no text and always does."""
    return not key or bool(
        connection.execute("SELECT 1 FROM learned_texts WHERE hash = ?", (key,)).fetchone()
    )


def erase(database: StateDatabase) -> None:
    """Remove deleted data from the search index, the file and its log.

    The index is merged in steps, between which others may write. Then the file is rewritten. Raises StoreBusy
    if other processes keep using the file, and StoreFull.
    """
    if database.is_team:
        return database.scrub()
    # A negative number starts a merge of all parts into one, and positive ones continue it.
    pages = -_MERGED_PAGES
    while database.write_now(lambda db, pages=pages: _merge_index(db, pages)):
        pages = _MERGED_PAGES
    database.scrub()


def _merge_index(connection: apsw.Connection, pages: int) -> bool:
    """Merge some of the search index. Return True while there may be more. Source: FTS5's documentation."""
    before = connection.total_changes()
    connection.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('merge', ?)", (pages,))
    return connection.total_changes() - before >= 2


def drop_traces(connection: apsw.Connection, session_id: str) -> None:
    """Remove a session's text from other tables.

    These are the focus of its reviews, the answers of schedules' runs, accepted messages, its helpers, and
    chat messages that were handled, which no code reads again.
    """
    connection.execute(
        "UPDATE jobs SET payload = json_set(payload, '$.focus', '') WHERE kind = 'review'"
        " AND json_valid(payload) AND json_extract(payload, '$.session_id') = ?",
        (session_id,),
    )
    connection.execute("UPDATE schedule_runs SET note = '', text = '' WHERE session_id = ?", (session_id,))
    connection.execute("DELETE FROM accepted_messages WHERE session = ?", (session_id,))
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
    """Remove the labels of learned items that were recorded with sessions."""
    for label in labels:
        connection.execute("UPDATE context_items SET label = '' WHERE label = ?", (label,))


def find_prompts(connection: apsw.Connection, words: Collection[str]) -> list[str]:
    """Return the sessions whose system prompt contains one of these texts, oldest first."""
    session_ids: dict[str, None] = {}
    for text in words:
        rows = connection.execute(
            "SELECT s.id FROM sessions s JOIN frozen_texts f ON f.id = s.system_text"
            " WHERE instr(f.text, ?) ORDER BY s.key",
            (text,),
        )
        session_ids |= dict.fromkeys(row[0] for row in rows)
    return list(session_ids)
