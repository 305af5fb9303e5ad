"""The search index of the messages, filled in batches after a turn and before a search.

The index stores no text of its own. Each message's words are stored with marks for its person, folder,
role, day and month, so that a search for one person's or one week's messages never reads the others. The
newest sessions come first, so that a store can be searched from its newest end while its index is rebuilt.
Each batch and its position are stored in one transaction.

SQLite's index numbers a message by minus twice its id: lists are read from the newest on, and FTS5 skips
only forwards in them. The numbers between belong to no message: now and then one is a beat, at which a
reader can check whether its time is spent (see `postings.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import msgspec

from whet.contract.texts import NOT_JSON
from whet.sqlite.lane import ScopedWrite
from whet.store import query as words
from whet.store import rows
from whet.store.database import StateDatabase, is_team

_BATCH_MESSAGES = 300
_BATCH_CHARS = 300_000
_MESSAGE_CHARS_MAX = 2_000_000
_SESSIONS_AT_ONCE = 64
_PROFILE, _WORKSPACE, _ROLE, _DAY, _MONTH = "\ue001", "\ue002", "\ue003", "\ue004", "\ue005"
BEAT = "\ue006"
_BEAT_SESSIONS, _BEAT_MESSAGES = 16, 1_024
_DAY_MS = 86_400_000
_DAYS_MAX, _MONTHS_MAX = 40, 40


def profile_mark(profile: str) -> str:
    """Return the token in every message of a person's sessions."""
    return f"{_PROFILE}{zlib.crc32(profile.encode()):08x}"


def workspace_mark(workspace: str) -> str:
    """Return the token in every message of a folder's sessions."""
    return f"{_WORKSPACE}{zlib.crc32(workspace.encode()):08x}"


def role_mark(role: int) -> str:
    """Return the token in every message of a role."""
    return f"{_ROLE}{role}"


def time_marks(begin_ms: int, end_ms: int) -> list[str]:
    """Return tokens of which each message of that time has one; messages just outside may have one too.
    Returns an empty list if there would be too many. Days are in UTC."""
    first, last = _moment(begin_ms), _moment(max(begin_ms, end_ms - 1))
    if (last - first).days <= _DAYS_MAX:
        days = (last.date() - first.date()).days
        return [f"{_DAY}{first + timedelta(days=n):%Y%m%d}" for n in range(days + 1)]
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    if months > _MONTHS_MAX:
        return []
    year_months = [divmod(first.year * 12 + first.month - 1 + n, 12) for n in range(months)]
    return [f"{_MONTH}{year:04}{month + 1:02}" for year, month in year_months]


def schedule_indexing(db: StateDatabase) -> None:
    """Index new messages in the background after a short delay, with those stored until then. After a failure
    the next call or search tries again."""
    db.submit_later(_INDEX_BATCH)


def has_new(connection: apsw.Connection) -> bool:
    """Return whether there may be new messages to index."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty = 1 LIMIT 1").fetchone() is not None


def has_backlog(connection: apsw.Connection) -> bool:
    """Return whether there may be messages to index, including those of an index that is being rebuilt."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty LIMIT 1").fetchone() is not None


def count_backlog(connection: apsw.Connection) -> int:
    """Count the sessions that are missing from an index that is being rebuilt."""
    return rows.number(connection, "SELECT count(*) FROM sessions WHERE dirty AND dirty = 2")


def backlog_write(session_id: str | None, profile: str | None) -> Callable[[apsw.Connection], bool]:
    """Return a write that indexes some of the missing messages, of one session or person if given. The write
    returns True while there may be more."""
    if session_id is not None:
        return lambda connection: _index_newest(connection, "dirty AND id = ?", session_id).is_full
    if profile is not None:
        return lambda connection: _index_newest(connection, "dirty AND profile = ?", profile).is_full
    return lambda connection: _index_newest(connection, "dirty").is_full


def index_new(connection: apsw.Connection) -> bool:
    """Index some new messages. Returns True while there may be more. Runs as a write."""
    return _index_newest(connection, "dirty = 1").is_full


def index_batch(connection: apsw.Connection) -> bool:
    """Index some messages, new ones first. Returns True while there may be more. Runs as a write."""
    batch = _index_newest(connection, "dirty = 1")
    return batch.is_full or (batch.has_backlog and _index_newest(connection, "dirty").is_full)


_INDEX_BATCH = ScopedWrite("the search index", index_batch)


def _index_newest(connection: apsw.Connection, condition: str, *values: str) -> _Batch:
    batch, before = _Batch(), 1 << 62
    some = [()] * _SESSIONS_AT_ONCE
    while not batch.is_full and len(some) == _SESSIONS_AT_ONCE:
        some = connection.execute(
            f"{_OPEN_ENDS} {condition} AND key < ? ORDER BY key DESC LIMIT ?",
            (*values, before, _SESSIONS_AT_ONCE),
        ).fetchall()
        for before, batch.has_backlog, *open_end in some:
            if not batch.is_full:
                _read_session(connection, batch, before, *open_end)
    if batch.texts:
        _insert_texts(connection, batch.texts)
    return batch


_OPEN_ENDS = (
    "SELECT key, EXISTS (SELECT 1 FROM sessions WHERE dirty AND dirty = 2), indexed_seq, turns,"
    " EXISTS (SELECT 1 FROM turns WHERE session = key AND ended = ''),"
    " CASE kind WHEN 'review' THEN NULL ELSE profile END, workspace FROM sessions WHERE"
)


class _Batch:
    """The texts to index in one write, by their messages' ids. `has_backlog`: others may be missing."""

    def __init__(self) -> None:
        self.has_backlog = True
        self.texts: dict[int, str] = {}
        self._chars = 0

    @property
    def is_full(self) -> bool:
        return len(self.texts) >= _BATCH_MESSAGES or self._chars >= _BATCH_CHARS

    def add(self, id_: int, marks: str, text: str) -> None:
        self.texts[id_] = f"{marks}\n{words.to_index_text(text)}"
        self._chars += len(text)


def _read_session(
    connection: apsw.Connection, batch: _Batch, key: int, done: int, turn_count: int, *session_fields: Any
) -> None:
    """Add a session's new messages to the batch, as far as they fit.

    From a session with an open turn only messages up to the last answer or user message are taken: tool
    results finish in any order, and their numbers are assigned beforehand.
    """
    is_open, profile, workspace = session_fields
    marks = workspace_mark(workspace)
    if profile is not None:  # messages of a review belong to no person
        marks += f" {profile_mark(profile)}"
    base, reached, days = rows.row_id(key, 0), done, dict[int, str]()
    last_role = rows.TOOL if is_open else -1
    records = connection.execute(_UNINDEXED, (base | done, rows.ids_of(key)[1], last_role))
    for id_, role, at, content, extra in records:
        if batch.is_full:
            turn_count = -1
            break
        day = at // _DAY_MS
        if day not in days:
            days[day] = " ".join(_days_marks(at))
        text = plain_text(role, content, extra)[:_MESSAGE_CHARS_MAX]
        batch.add(id_, f"{marks} {role_mark(role)} {days[day]}", text)
        reached = id_ - base + 1
    known_turns = -1 if is_open else turn_count  # in a team a turn may begin meanwhile
    if is_team(connection):
        connection.execute("SELECT whet_mark_indexed(?, ?, ?)", (key, reached, known_turns))
    else:
        connection.execute(_MARK_INDEXED, (reached, known_turns, key))


_MARK_INDEXED = (
    "UPDATE sessions SET indexed_seq = ?, dirty = CASE turns WHEN ? THEN 0 ELSE dirty END WHERE key = ?"
)
_UNINDEXED = (
    "SELECT id, role, at, content, extra FROM messages WHERE id >= ?1 AND id <= (SELECT id FROM messages"
    " WHERE id >= ?1 AND id < ?2 AND role <> ?3 ORDER BY id DESC LIMIT 1) ORDER BY id"
)


def _insert_texts(connection: apsw.Connection, texts: dict[int, str]) -> None:
    """Insert texts in ascending order of the index's numbers, because FTS5 flushes its buffer whenever a
    smaller number follows."""
    if is_team(connection):
        from whet.store import team_words  # noqa: PLC0415 - a home's own file does without

        return team_words.store_message_words(connection, texts)
    numbered = [(-2 * id_, text) for id_, text in texts.items()]
    numbered += [(-2 * id_ - 1, BEAT) for id_ in texts if _has_beat(id_)]
    connection.executemany("INSERT INTO messages_fts (rowid, body) VALUES (?, ?)", sorted(numbered))


def _has_beat(id_: int) -> bool:
    """Return whether a beat follows a message: one in a thousand of a long session, and the first of some
    others."""
    key, seq = divmod(id_, rows.SEQ_LIMIT)
    return seq % _BEAT_MESSAGES == 0 or (seq == 1 and key % _BEAT_SESSIONS == 0)


def remove_messages(connection: apsw.Connection, first: int, last: int) -> None:
    """Remove the messages from `first` to before `last` from the index."""
    if is_team(connection):
        from whet.store import team_words  # noqa: PLC0415 - as in _put

        return team_words.take_out(connection, first, last)
    connection.execute("DELETE FROM messages_fts WHERE rowid > ? AND rowid <= ?", (-2 * last, -2 * first))


def _days_marks(at_ms: int) -> Iterator[str]:
    moment = _moment(at_ms)
    yield f"{_DAY}{moment:%Y%m%d}"
    yield f"{_MONTH}{moment:%Y%m}"


def _moment(at_ms: int) -> datetime:
    low, high = -62_135_596_800_000, 253_402_300_799_000  # the years 1 to 9999
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(at_ms, low), high))


def plain_text(role: int, content: str, extra: str | None) -> str:
    """Return the searchable text of a message: its text, and the names and arguments of its calls."""
    if extra is None or (role == rows.TOOL and content):
        return content
    message = rows.unpack(role, content, extra)
    if not message.tool_calls:
        return message.text
    return "\n".join(
        (message.text, *(f"{call.name} {_plain_arguments(call.arguments)}" for call in message.tool_calls))
    )


def _plain_arguments(arguments: str) -> str:
    """Return the texts in a call's JSON arguments without its escapes."""
    if "\\" not in arguments:
        return arguments
    try:
        return "\n".join(_list_leaves(msgspec.json.decode(arguments)))
    except NOT_JSON:
        return arguments


def _list_leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *_list_leaves(item))]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] JSON of any shape
    if isinstance(value, list):
        return [text for item in value for text in _list_leaves(item)]  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    return [str(value)]
