"""Full-text search over everything said, and the index behind it.

The index holds no text of its own and is filled in batches behind the writes: after a turn, and before a
search. A word that stands nearly everywhere is not ranked over a million rows; then the newest messages
win. Private sessions, reviews and undone turns are found only when their session is asked for by id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import apsw
import msgspec

from whet.clock import iso
from whet.contract.errors import StoreError
from whet.contract.messages import Message, Role, ToolCall
from whet.contract.texts import NOT_JSON
from whet.log import mask
from whet.store import query as words
from whet.store import rows, sessions
from whet.store.database import StateDatabase

RANKED_MAX = 2_000
MARK_OPEN, MARK_CLOSE = "«", "»"
_BATCH_MESSAGES = 300
_BATCH_CHARS = 300_000
_MESSAGE_CHARS_MAX = 2_000_000
_ROUNDS_MAX = 5
_LOOK_AT_ONCE = 200
_SNIPPET_BEFORE, _SNIPPET_CHARS = 60, 240
_BEFORE_CHARS, _AFTER_CHARS = 3_400, 2_000  # as far as a secret reaches: an RSA key of 4,096 bits, a JWT


class Hit(msgspec.Struct, frozen=True):
    """A message found: `seq` is its number in the session, `score` is higher for a better fit (0 where
    hits are simply the newest); `snippet` has the match between « and »."""

    session_id: str
    seq: int
    role: Role
    turn: int
    when: str
    title: str
    snippet: str
    score: float


class SearchScope(TypedDict, total=False):
    """Where to look: one session, one role, messages since an ISO time, one person's sessions (`profile`,
    None for everybody's); private sessions only on demand."""

    session_id: str | None
    role: Role | None
    since: str | None
    profile: str | None
    include_private: bool


async def find(db: StateDatabase, query: str, limit: int = 20, **scope: Unpack[SearchScope]) -> list[Hit]:
    """Bring the index up to date and search."""
    while await db.read(_has_unindexed) and await db.write(index_batch):
        pass
    return await db.read(lambda connection: search(connection, query, limit, **scope))


def find_now(db: StateDatabase, query: str, limit: int = 20, **scope: Unpack[SearchScope]) -> list[Hit]:
    """Bring the index up to date and search; for synchronous callers."""
    while db.read_now(_has_unindexed) and db.write_now(index_batch):
        pass
    return db.read_now(lambda connection: search(connection, query, limit, **scope))


def index_soon(db: StateDatabase) -> None:
    """Index what was said lately on the writer lane, without waiting for it. A failure is tried again by
    the next call or search."""

    def go_on(done: Any) -> None:
        if done.exception() is None and done.result():
            try:
                index_soon(db)
            except StoreError:
                return  # the database is being closed

    db.submit(index_batch).add_done_callback(go_on)


def search(
    connection: apsw.Connection, query: str, limit: int = 20, **scope: Unpack[SearchScope]
) -> list[Hit]:
    """Search the index as it is. Any text is a valid query: words must all occur (if no message has them
    all, any of the rarer ones), "quoted words" in that order. Best first. Raises NotFound for the session.
    """
    terms = words.terms(query)
    if not terms or limit <= 0:
        return []
    finder = _Finder(connection, scope)
    found = finder.all_of(terms, limit)
    if not found and len(terms) > 1:
        found = finder.any_of(terms, limit)
    wanted = words.pieces(query)
    return [_hit(connection, row, wanted) for row in found[:limit]]


def around(
    connection: apsw.Connection, session_id: str, seq: int, before: int = 3, after: int = 3
) -> list[tuple[int, Message]]:
    """Give the messages around one, as (seq, message), ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    first, here, last = key << rows.SEQ_BITS, rows.row_id(key, seq), (key + 1) << rows.SEQ_BITS
    columns = "id, role, content, extra"
    earlier = connection.execute(
        f"SELECT {columns} FROM messages WHERE id > ? AND id < ? ORDER BY id DESC LIMIT ?",
        (first, here, before),
    ).fetchall()
    later = connection.execute(
        f"SELECT {columns} FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (here, last, after + 1),
    ).fetchall()
    return [(row[0] & (rows.SEQ_LIMIT - 1), rows.unpack(*row[1:])) for row in (*reversed(earlier), *later)]


def span(
    connection: apsw.Connection, session_id: str, first: int, last: int, limit: int = 100
) -> list[tuple[int, Message]]:
    """Give the messages numbered first to last, as (seq, message), ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    top = rows.SEQ_LIMIT - 1
    found = connection.execute(
        "SELECT id, role, content, extra FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?",
        (
            key << rows.SEQ_BITS | min(max(first, 1), top),
            key << rows.SEQ_BITS | min(max(last, 0), top),
            limit,
        ),
    )
    return [(row[0] & top, rows.unpack(*row[1:])) for row in found]


def call_of(connection: apsw.Connection, session_id: str, seq: int) -> tuple[int, ToolCall] | None:
    """Give the call that tool result `seq` answers, with the number of its message; None without one."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute(
        "SELECT position FROM tool_calls WHERE session = ? AND seq = ?", (key, seq)
    ).fetchone()
    if row is None:
        return None
    position: int = row[0]
    asked = span(connection, session_id, seq - 1 - position, seq - 1 - position, 1)
    if not asked or len(asked[0][1].tool_calls) <= position:
        return None
    return asked[0][0], asked[0][1].tool_calls[position]


def index_batch(connection: apsw.Connection) -> bool:
    """Index some messages; True while there may be more. Runs as a write.

    Only messages below the last answer or user message are taken from a session with an open turn: tool
    results finish in any order, and their numbers are given out beforehand.
    """
    budget = [_BATCH_MESSAGES, _BATCH_CHARS]
    after = 0
    while some := connection.execute(
        "SELECT key, indexed_seq, EXISTS (SELECT 1 FROM turns WHERE session = key AND ended = '')"
        " FROM sessions WHERE dirty AND key > ? ORDER BY key LIMIT ?",
        (after, _LOOK_AT_ONCE),
    ).fetchall():
        for key, done, is_open in some:
            until = _safe_limit(connection, key, done, is_open)
            reached = _index_session(connection, key, done, until, budget)
            if reached > done:
                connection.execute("UPDATE sessions SET indexed_seq = ? WHERE key = ?", (reached, key))
            if reached < until:
                return True
            if not is_open:
                connection.execute("UPDATE sessions SET dirty = 0 WHERE key = ?", (key,))
        after = some[-1][0]
    return False


def _has_unindexed(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sessions WHERE dirty LIMIT 1").fetchone() is not None


def _safe_limit(connection: apsw.Connection, key: int, done: int, is_open: int) -> int:
    """Give the number below which a session's messages can be indexed for good."""
    row = connection.execute(
        "SELECT id FROM messages WHERE id >= ? AND id < ? AND role <> ? ORDER BY id DESC LIMIT 1",
        (key << rows.SEQ_BITS | done, (key + 1) << rows.SEQ_BITS, rows.TOOL if is_open else -1),
    ).fetchone()
    return done if row is None else (row[0] & (rows.SEQ_LIMIT - 1)) + 1


def _index_session(connection: apsw.Connection, key: int, begin: int, until: int, budget: list[int]) -> int:
    """Index messages begin..until-1 as far as the budget goes; give the number reached."""
    base = key << rows.SEQ_BITS
    for id_, role, content, extra in connection.execute(
        "SELECT id, role, content, extra FROM messages WHERE id >= ? AND id < ? ORDER BY id",
        (base | begin, base | until),
    ):
        if budget[0] <= 0 or budget[1] <= 0:
            return id_ - base
        text = _text(role, content, extra)[:_MESSAGE_CHARS_MAX]
        connection.execute(
            "INSERT INTO messages_fts (rowid, body) VALUES (?, ?)", (id_, words.indexable(text))
        )
        budget[0] -= 1
        budget[1] -= len(text)
    return until


def _text(role: int, content: str, extra: str | None) -> str:
    """Give what of a message can be found: its text, and the names and arguments of its calls."""
    if extra is None or (role == rows.TOOL and content):
        return content
    message = rows.unpack(role, content, extra)
    if not message.tool_calls:
        return message.text
    return "\n".join(
        (message.text, *(f"{call.name} {_plain(call.arguments)}" for call in message.tool_calls))
    )


def _plain(arguments: str) -> str:
    """Give the texts in a call's JSON arguments without its escapes."""
    if "\\" not in arguments:
        return arguments
    try:
        return "\n".join(_leaves(msgspec.json.decode(arguments)))
    except NOT_JSON:
        return arguments


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *_leaves(item))]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] JSON of any shape
    if isinstance(value, list):
        return [text for item in value for text in _leaves(item)]  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    return [str(value)]


_Row = tuple[int, int, int, int, str, str, float]
"""id, turn, role, at, session id, title, score"""


class _Finder:
    """One search: which rows match, which of them may be shown, which are best."""

    def __init__(self, connection: apsw.Connection, scope: SearchScope) -> None:
        self._connection = connection
        self._counts: dict[str, int] = {}
        self._where = ["1"]
        self._values: list[Any] = []
        self._first, self._last = 0, (1 << 63) - 1
        session_id, role, since = scope.get("session_id"), scope.get("role"), scope.get("since")
        if session_id is not None:
            key = sessions.key_of(connection, session_id)
            self._first, self._last = key << rows.SEQ_BITS, ((key + 1) << rows.SEQ_BITS) - 1
        else:
            self._where += ["t.undone = ''", "s.kind <> 'review'"]
            if not scope.get("include_private"):
                self._where.append("NOT s.private")
        if (profile := scope.get("profile")) is not None:
            self._where.append("s.profile = ?")
            self._values.append(profile)
        if role is not None:
            self._where.append("m.role = ?")
            self._values.append(rows.ROLES.index(role))
        if since is not None:
            self._where.append("m.at >= ?")
            self._values.append(_parse_ms(since))

    def all_of(self, terms: Sequence[str], limit: int) -> list[_Row]:
        """Give messages that have all terms."""
        expression = " ".join(terms)
        ids = self._newest(expression, self._last)
        if len(ids) > RANKED_MAX:
            return self._newest_visible(expression, ids, limit)
        rare = [term for term in terms if len(terms) == 1 or self._is_rare(term)]
        scores = self._scores(" ".join(rare)) if rare and ids else {}
        return self._best_visible(ids, scores, limit)

    def any_of(self, terms: Sequence[str], limit: int) -> list[_Row]:
        """Give messages that have at least one term, of the rarer terms if there are any."""
        present = [term for term in terms if self._count(term)]
        if not present:
            return []
        rare = [term for term in present if self._is_rare(term)]
        expression = " OR ".join(rare or present)
        ids = self._newest(expression, self._last)
        if not rare or len(ids) > RANKED_MAX:
            return self._newest_visible(expression, ids, limit)
        return self._best_visible(ids, self._scores(expression), limit)

    def _newest(self, expression: str, last: int) -> list[int]:
        found = self._connection.execute(
            "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? AND rowid BETWEEN ? AND ?"
            " ORDER BY rowid DESC LIMIT ?",
            (expression, self._first, last, RANKED_MAX + 1),
        )
        return [row[0] for row in found]

    def _is_rare(self, term: str) -> bool:
        return self._count(term) <= RANKED_MAX

    def _count(self, term: str) -> int:
        """Count the matches of a term, as far as it matters."""
        if term not in self._counts:
            row = self._connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM messages_fts WHERE messages_fts MATCH ?"
                " AND rowid BETWEEN ? AND ? LIMIT ?)",
                (term, self._first, self._last, RANKED_MAX + 1),
            ).fetchone()
            self._counts[term] = row[0] if row else 0
        return self._counts[term]

    def _scores(self, expression: str) -> dict[int, float]:
        found = self._connection.execute(
            "SELECT rowid, -bm25(messages_fts) FROM messages_fts"
            " WHERE messages_fts MATCH ? AND rowid BETWEEN ? AND ?",
            (expression, self._first, self._last),
        )
        return {row[0]: row[1] for row in found}

    def _best_visible(self, ids: list[int], scores: dict[int, float], limit: int) -> list[_Row]:
        """Give the best that may be shown, the newer one of equals."""
        found: list[_Row] = []
        ids.sort(key=lambda id_: (scores.get(id_, 0.0), id_), reverse=True)
        for begin in range(0, len(ids), _LOOK_AT_ONCE):
            found += self._visible(ids[begin : begin + _LOOK_AT_ONCE], scores)
            if len(found) >= limit:
                break
        return sorted(found, key=lambda row: (row[6], row[3]), reverse=True)

    def _newest_visible(self, expression: str, ids: list[int], limit: int) -> list[_Row]:
        """Give the newest that may be shown; looks at a bounded number of rows."""
        found: list[_Row] = []
        for _ in range(_ROUNDS_MAX):
            last = ids[-1] if ids else 0
            found += self._best_visible(ids, {}, limit - len(found))
            if len(found) >= limit or len(ids) <= RANKED_MAX:
                break
            ids = self._newest(expression, last - 1)
        return found

    def _visible(self, ids: list[int], scores: dict[int, float]) -> list[_Row]:
        found = self._connection.execute(
            "SELECT m.id, m.turn, m.role, m.at, s.id, s.title FROM json_each(?) j"
            " CROSS JOIN messages m ON m.id = j.value"
            f" CROSS JOIN sessions s ON s.key = m.id >> {rows.SEQ_BITS}"
            " CROSS JOIN turns t ON t.session = s.key AND t.number = m.turn"
            f" WHERE {' AND '.join(self._where)}",
            (json.dumps(ids), *self._values),
        )
        return [(*row[:6], scores.get(row[0], 0.0)) for row in found]


def _hit(connection: apsw.Connection, found: _Row, wanted: list[str]) -> Hit:
    id_, turn, role, at, session_id, title, score = found
    row = connection.execute("SELECT role, content, extra FROM messages WHERE id = ?", (id_,)).fetchone()
    return Hit(
        session_id=session_id,
        seq=id_ & (rows.SEQ_LIMIT - 1),
        role=rows.ROLES[role],
        turn=turn,
        when=iso(datetime.fromtimestamp(at / 1000, UTC)),
        title=title,
        snippet=_snippet(_text(*row), wanted) if row else "",
        score=round(score, 4),
    )


def _snippet(text: str, wanted: list[str]) -> str:
    """Give one line of text around the match, the match marked.

    Secrets are masked first: a mark inside one, or a cut through it, would hide its shape afterwards.
    """
    at = (words.find(text, wanted) or (0, 0))[0]
    low, high = max(0, at - _BEFORE_CHARS), at + _AFTER_CHARS
    near = mask(text[low:high])
    place = min(at - low, len(near))  # what fitted may be in a secret, and gone
    begin, end = words.find(near, wanted) or (place, place)
    end = min(end, begin + _SNIPPET_CHARS)
    left = max(0, begin - _SNIPPET_BEFORE)
    right = max(min(len(near), left + _SNIPPET_CHARS), end)
    marked = (MARK_OPEN, near[begin:end], MARK_CLOSE) if begin < end else ()
    cut = ("…" if low or left else "", "…" if right < len(near) or high < len(text) else "")
    return cut[0] + _line("".join((near[left:begin], *marked, near[end:right]))) + cut[1]


def _line(text: str) -> str:
    return " ".join(text.split())


def _parse_ms(moment: str) -> int:
    """Give milliseconds of an ISO time; one without a zone is UTC."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError as error:
        raise StoreError(f"{moment!r} is not a date", hint="write it like 2026-11-21") from error
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
