"""What compactions did to a session, as sums for reports. Recording them is `transcript.py`'s business."""

from __future__ import annotations

import apsw
import msgspec

from whet.store import sessions


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
