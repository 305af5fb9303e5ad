"""Search all messages for words: update the index, rank the matches, and build the hits.

`index.py` fills the index, and `ranking.py` decides which messages match best. Reviews and undone turns are
found only if their session is named by id, private sessions also on request.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Unpack

import apsw
import msgspec

from whet.clock import SystemClock, iso, local_time
from whet.contract.messages import Message, Role, ToolCall
from whet.contract.texts import flat
from whet.log import mask
from whet.store import index, rows, sessions, time_words
from whet.store import query as words
from whet.store.database import StateDatabase
from whet.store.ranking import MatchRow, Ranking, SearchScope

MARK_OPEN, MARK_CLOSE = "«", "»"
_ANEW_BATCHES = 20
_SNIPPET_BEFORE, _SNIPPET_CHARS = 60, 240
_BEFORE_CHARS, _AFTER_CHARS = 3_400, 2_000  # the longest secrets: an RSA key of 4,096 bits, a JWT


class Hit(msgspec.Struct, frozen=True):
    """A matching message. `seq` is its number in the session, and `snippet` has the match between « and ».

    `score` is higher for a better match, and 0 if the hits are simply the newest.
    """

    session_id: str
    seq: int
    role: Role
    turn: int
    when: str
    title: str
    snippet: str
    score: float


async def find(db: StateDatabase, query: str, limit: int = 20, **scope: Unpack[SearchScope]) -> list[Hit]:
    """Update the index and search.

    While the index is rebuilt, a part of the missing messages is indexed first, those of the given session or
    person if there is one. The rest is indexed in the background.
    """
    while await db.read(index.has_new) and await db.write(index.index_new):
        pass
    if await db.read(index.has_backlog):
        missing = index.backlog_write(scope.get("session_id"), scope.get("profile"))
        for _ in range(_ANEW_BATCHES):
            if not await db.write(missing):
                break
        index.schedule_indexing(db)
    return await db.read(lambda connection: search(connection, query, limit, **scope))


def find_now(db: StateDatabase, query: str, limit: int = 20, **scope: Unpack[SearchScope]) -> list[Hit]:
    """Do the same as `find` for synchronous callers."""
    while db.read_now(index.has_new) and db.write_now(index.index_new):
        pass
    if db.read_now(index.has_backlog):
        missing = index.backlog_write(scope.get("session_id"), scope.get("profile"))
        for _ in range(_ANEW_BATCHES):
            if not db.write_now(missing):
                break
        index.schedule_indexing(db)
    return db.read_now(lambda connection: search(connection, query, limit, **scope))


def search(
    connection: apsw.Connection, query: str, limit: int = 20, **scope: Unpack[SearchScope]
) -> list[Hit]:
    """Search the index as it is. Any text is a valid query. Raises NotFound for the session.

    Messages with more and rarer words of the query come first. "Quoted words" must occur in that order. A
    time in the query ("last week") counts too.
    """
    if limit <= 0:
        return []
    span, text_query = time_words.parse_time(query, scope.get("now") or local_time(SystemClock().now()))
    terms = words.parse_terms(text_query)
    if not terms and span is None:
        return []
    matches = Ranking(connection, scope, span).find_best(terms, limit)
    return _build_hits(connection, matches, words.split_pieces(text_query))


def read_messages_around(
    connection: apsw.Connection, session_id: str, seq: int, before: int, after: int
) -> list[tuple[int, Message]]:
    """Return the messages around one, as (seq, message), ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    (first, last), message_id = rows.ids_of(key), rows.row_id(key, seq)
    columns = "id, role, content, extra"
    earlier = connection.execute(
        f"SELECT {columns} FROM messages WHERE id > ? AND id < ? ORDER BY id DESC LIMIT ?",
        (first, message_id, before),
    ).fetchall()
    later = connection.execute(
        f"SELECT {columns} FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (message_id, last, after + 1),
    ).fetchall()
    return [(row[0] & (rows.SEQ_LIMIT - 1), rows.unpack(*row[1:])) for row in (*reversed(earlier), *later)]


def read_span(
    connection: apsw.Connection, session_id: str, first: int, last: int, limit: int = 100
) -> list[tuple[int, Message]]:
    """Return the messages numbered first to last, as (seq, message), ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    top = rows.SEQ_LIMIT - 1
    cursor = connection.execute(
        "SELECT id, role, content, extra FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?",
        (
            rows.row_id(key, min(max(first, 1), top)),
            rows.row_id(key, min(max(last, 0), top)),
            limit,
        ),
    )
    return [(row[0] & top, rows.unpack(*row[1:])) for row in cursor]


def find_call(connection: apsw.Connection, session_id: str, seq: int) -> tuple[int, ToolCall] | None:
    """Return the call that tool result `seq` answers, with the number of its message, or None."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute(
        "SELECT position FROM tool_calls WHERE session = ? AND seq = ?", (key, seq)
    ).fetchone()
    if row is None:
        return None
    position: int = row[0]
    requests = read_span(connection, session_id, seq - 1 - position, seq - 1 - position, 1)
    if not requests or len(requests[0][1].tool_calls) <= position:
        return None
    return requests[0][0], requests[0][1].tool_calls[position]


def _build_hits(connection: apsw.Connection, matches: list[MatchRow], searched: list[str]) -> list[Hit]:
    stored = connection.execute(
        "SELECT m.id, m.role, m.content, m.extra FROM json_each(?) j"
        " CROSS JOIN messages m ON m.id = CAST(j.value AS bigint)",
        (json.dumps([row.id for row in matches]),),
    )
    texts = {id_: index.plain_text(*values) for id_, *values in stored}
    return [_build_hit(row, texts.get(row.id, ""), searched) for row in matches]


def _build_hit(match_row: MatchRow, text: str, searched: list[str]) -> Hit:
    return Hit(
        session_id=match_row.session_id,
        seq=match_row.id & (rows.SEQ_LIMIT - 1),
        role=rows.ROLES[match_row.role],
        turn=match_row.turn,
        when=iso(datetime.fromtimestamp(match_row.at_ms / 1000, UTC)),
        title=match_row.title,
        snippet=_build_snippet(text, searched) if text else "",
        score=round(match_row.score, 4),
    )


def _build_snippet(text: str, searched: list[str]) -> str:
    """Return one line of text around the match, with the match marked.

    Secrets are masked first: a mark inside one, or a cut through it, would hide its shape afterwards.
    """
    at = (words.find_match(text, searched) or (0, 0))[0]
    low, high = max(0, at - _BEFORE_CHARS), at + _AFTER_CHARS
    near = mask(text[low:high])
    position = min(at - low, len(near))  # the match may be inside a secret that is masked now
    begin, end = words.find_match(near, searched) or (position, position)
    end = min(end, begin + _SNIPPET_CHARS)
    start = max(0, begin - _SNIPPET_BEFORE)
    right = max(min(len(near), start + _SNIPPET_CHARS), end)
    marked = (MARK_OPEN, near[begin:end], MARK_CLOSE) if begin < end else ()
    cut = ("…" if low or start else "", "…" if right < len(near) or high < len(text) else "")
    return cut[0] + flat("".join((near[start:begin], *marked, near[end:right]))) + cut[1]
