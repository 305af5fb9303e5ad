"""The search index behind the messages: filled in batches after a turn and before a search.

The index holds no text of its own. With a message's words stand marks: whose it is, of which folder, role,
day and month, so that a search for one person's or one week's messages never looks at the others. Newest
sessions come first, so that a store whose index is rebuilt can be searched from its newest end; each batch
and how far it came are one transaction.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import msgspec

from whet.contract.texts import NOT_JSON
from whet.store import query as words
from whet.store import rows
from whet.store.database import StateDatabase, is_team

_BATCH_MESSAGES = 300
_BATCH_CHARS = 300_000
_MESSAGE_CHARS_MAX = 2_000_000
_SESSIONS_AT_ONCE = 64
_PROFILE, _WORKSPACE, _ROLE, _DAY, _MONTH = "\ue001", "\ue002", "\ue003", "\ue004", "\ue005"
_DAY_MS = 86_400_000
_DAYS_MAX, _MONTHS_MAX = 40, 40


def profile_mark(profile: str) -> str:
    """Give the token that stands in every message of a person's sessions."""
    return f"{_PROFILE}{zlib.crc32(profile.encode()):08x}"


def workspace_mark(workspace: str) -> str:
    """Give the token that stands in every message of a folder's sessions."""
    return f"{_WORKSPACE}{zlib.crc32(workspace.encode()):08x}"


def role_mark(role: int) -> str:
    """Give the token that stands in every message of a role."""
    return f"{_ROLE}{role}"


def time_marks(begin_ms: int, end_ms: int) -> list[str]:
    """Give tokens of which one stands in each message of that time, and maybe around it; none where there
    would be too many. Days are those of UTC."""
    first, last = _moment(begin_ms), _moment(max(begin_ms, end_ms - 1))
    if (last - first).days <= _DAYS_MAX:
        days = (last.date() - first.date()).days
        return [f"{_DAY}{first + timedelta(days=n):%Y%m%d}" for n in range(days + 1)]
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    if months > _MONTHS_MAX:
        return []
    whole = [divmod(first.year * 12 + first.month - 1 + n, 12) for n in range(months)]
    return [f"{_MONTH}{year:04}{month + 1:02}" for year, month in whole]


def index_soon(db: StateDatabase) -> None:
    """Index what was said lately in the background, a moment later: what is said until then goes with it.
    A failure is tried again by the next call or search."""
    db.submit_later(index_batch)


def has_new(connection: apsw.Connection) -> bool:
    """Say whether there may be new messages to index."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty = 1 LIMIT 1").fetchone() is not None


def has_unindexed(connection: apsw.Connection) -> bool:
    """Say whether there may be messages to index, those of an index that is rebuilt among them."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty LIMIT 1").fetchone() is not None


def count_unindexed(connection: apsw.Connection) -> int:
    """Count the sessions that are missing from an index that is rebuilt."""
    row = connection.execute("SELECT count(*) FROM sessions WHERE dirty AND dirty = 2").fetchone()
    return row[0] if row else 0


def missing(session_id: str | None, profile: str | None) -> Callable[[apsw.Connection], bool]:
    """Give a write that indexes some of what is missing, of one session or person where one is named; True
    while there may be more."""
    if session_id is not None:
        return lambda connection: _newest_first(connection, "dirty AND id = ?", session_id)
    if profile is not None:
        return lambda connection: _newest_first(connection, "dirty AND profile = ?", profile)
    return lambda connection: _newest_first(connection, "dirty")


def index_new(connection: apsw.Connection) -> bool:
    """Index some new messages; True while there may be more. Runs as a write."""
    return _newest_first(connection, "dirty = 1")


def index_batch(connection: apsw.Connection) -> bool:
    """Index some messages, new ones first; True while there may be more. Runs as a write."""
    return index_new(connection) or _newest_first(connection, "dirty")


def _newest_first(connection: apsw.Connection, condition: str, *values: str) -> bool:
    budget = [_BATCH_MESSAGES, _BATCH_CHARS]
    before = 1 << 62
    while some := connection.execute(
        f"{_OPEN_ENDS} {condition} AND key < ? ORDER BY key DESC LIMIT ?",
        (*values, before, _SESSIONS_AT_ONCE),
    ).fetchall():
        some = _enough(some)
        before = some[-1][0]
        if _index(connection, some[::-1], budget):
            return True
    return False


def _enough(newest: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Give as many of these sessions as one batch may hold: they are indexed in the order of their numbers,
    for FTS5 writes out what it gathered whenever a smaller one comes."""
    size = 0
    for count, session in enumerate(newest, 1):
        size += session[-1]
        if size >= _BATCH_MESSAGES:
            return newest[:count]
    return newest


def index_in_order(connection: apsw.Connection) -> bool:
    """As `index_batch`, oldest sessions first: the quicker way to index many at once."""
    budget = [_BATCH_MESSAGES, _BATCH_CHARS]
    after = 0
    while some := connection.execute(
        f"{_OPEN_ENDS} dirty AND key > ? ORDER BY key LIMIT ?", (after, _SESSIONS_AT_ONCE)
    ).fetchall():
        after = some[-1][0]
        if _index(connection, some, budget):
            return True
    return False


_OPEN_ENDS = (
    "SELECT key, indexed_seq, EXISTS (SELECT 1 FROM turns WHERE session = key AND ended = ''),"
    " CASE kind WHEN 'review' THEN NULL ELSE profile END, workspace, messages - indexed_seq + 1"
    " FROM sessions WHERE"
)


def _index(connection: apsw.Connection, some: list[tuple[Any, ...]], budget: list[int]) -> bool:
    """Index these sessions as far as the budget goes; True where it ended before them.

    Only messages below the last answer or user message are taken from a session with an open turn: tool
    results finish in any order, and their numbers are given out beforehand.
    """
    for key, done, is_open, profile, workspace, _ in some:
        until = _safe_limit(connection, key, done, is_open)
        marks = workspace_mark(workspace)
        if profile is not None:  # what a review wrote is nobody's
            marks += f" {profile_mark(profile)}"
        reached = _index_session(connection, key, range(done, until), marks, budget)
        if reached > done:
            connection.execute("UPDATE sessions SET indexed_seq = ? WHERE key = ?", (reached, key))
        if reached < until:
            return True
        if not is_open:
            connection.execute("UPDATE sessions SET dirty = 0 WHERE key = ?", (key,))
    return False


def _safe_limit(connection: apsw.Connection, key: int, done: int, is_open: int) -> int:
    """Give the number below which a session's messages can be indexed for good."""
    row = connection.execute(
        "SELECT id FROM messages WHERE id >= ? AND id < ? AND role <> ? ORDER BY id DESC LIMIT 1",
        (key << rows.SEQ_BITS | done, (key + 1) << rows.SEQ_BITS, rows.TOOL if is_open else -1),
    ).fetchone()
    return done if row is None else (row[0] & (rows.SEQ_LIMIT - 1)) + 1


def _index_session(
    connection: apsw.Connection, key: int, wanted: range, marks: str, budget: list[int]
) -> int:
    """Index messages of these numbers as far as the budget goes; give the number reached."""
    base = key << rows.SEQ_BITS
    put = _put
    if is_team(connection):
        from whet.store.team_words import put  # noqa: PLC0415 - a home's own file does without
    days = dict[int, str]()
    for id_, role, at, content, extra in connection.execute(
        "SELECT id, role, at, content, extra FROM messages WHERE id >= ? AND id < ? ORDER BY id",
        (base | wanted.start, base | wanted.stop),
    ):
        if budget[0] <= 0 or budget[1] <= 0:
            return id_ - base
        text = plain_text(role, content, extra)[:_MESSAGE_CHARS_MAX]
        day = at // _DAY_MS
        if day not in days:
            days[day] = " ".join(_days_marks(at))
        put(connection, id_, f"{marks} {role_mark(role)} {days[day]}\n{words.indexable(text)}")
        budget[0] -= 1
        budget[1] -= len(text)
    return wanted.stop


def _put(connection: apsw.Connection, id_: int, body: str) -> None:
    connection.execute("INSERT INTO messages_fts (rowid, body) VALUES (?, ?)", (id_, body))


def _days_marks(at_ms: int) -> Iterator[str]:
    moment = _moment(at_ms)
    yield f"{_DAY}{moment:%Y%m%d}"
    yield f"{_MONTH}{moment:%Y%m}"


def _moment(at_ms: int) -> datetime:
    low, high = -62_135_596_800_000, 253_402_300_799_000  # the years 1 to 9999
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(at_ms, low), high))


def plain_text(role: int, content: str, extra: str | None) -> str:
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
