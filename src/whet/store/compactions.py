"""What compactions did to a session, as sums for reports. Recording them is `transcript.py`'s business."""

from __future__ import annotations

import apsw
import msgspec

from whet.store import sessions
from whet.store.rows import ASSISTANT, SEQ_BITS, SEQ_LIMIT, unpack_with_usage


class CompactionSums(msgspec.Struct, frozen=True):
    """How often a session was compacted, what that saved in all, and by which engine last."""

    count: int
    saved_tokens: int
    engine: str


def of_session(connection: apsw.Connection, session_id: str) -> CompactionSums:
    """Sum up a session's compactions that were not undone. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute(
        "SELECT count(*), coalesce(sum(max(tokens_before - tokens_after, 0)), 0), coalesce(max(engine), '')"
        " FROM (SELECT tokens_before, tokens_after,"
        "  last_value(engine) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
        "  AS engine FROM compactions WHERE session = ? AND undone = '')",
        (key,),
    ).fetchone()
    assert row is not None  # an aggregate always has a row
    return CompactionSums(int(row[0]), int(row[1]), str(row[2]))


def counts_after(connection: apsw.Connection, key: int, most: int) -> list[int]:
    """Give the prompt tokens of the first answer after each of the last `most` compactions that were not
    undone, oldest first; one that no answer followed yet is left out."""
    found: list[int] = []
    last = "SELECT after_seq FROM compactions WHERE session = ? AND undone = '' ORDER BY id DESC LIMIT ?"
    for (after_seq,) in connection.execute(last, (key, most)).fetchall():
        begin = key << SEQ_BITS
        row = connection.execute(
            "SELECT content, extra FROM messages WHERE id > ? AND id < ? AND role = ? ORDER BY id LIMIT 1",
            (begin | after_seq, begin + SEQ_LIMIT, ASSISTANT),
        ).fetchone()
        usage = None if row is None else unpack_with_usage(ASSISTANT, *row)[1]
        if usage is not None and usage.prompt_tokens:
            found.append(usage.prompt_tokens)
    return found[::-1]
