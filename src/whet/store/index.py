"""Fill the messages' search index, in batches after a turn and before a search.

The index stores no text of its own. A message's words are stored with marks: tokens for its person, folder,
role, day and month. So a search for one person's or one week's messages never reads the others. The newest
sessions are indexed first, so that a search can begin with them while the index is rebuilt. Each batch and
its position are stored in one transaction.

SQLite's index numbers a message by minus twice its id, because FTS5 reads forwards only and searches begin
with the newest message. The numbers in between belong to no message. Some are beats, at which a reader
checks whether its time is spent (see `postings.py`).
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
_SESSIONS_PER_QUERY = 64
_PROFILE, _WORKSPACE, _ROLE, _DAY, _MONTH = "\ue001", "\ue002", "\ue003", "\ue004", "\ue005"
BEAT = "\ue006"
_BEAT_SESSIONS, _BEAT_MESSAGES = 16, 1_024
_DAY_MS = 86_400_000
_DAYS_MAX, _MONTHS_MAX = 40, 40


def profile_mark(profile: str) -> str:
    """Return the token that marks every message of a person's sessions."""
    return f"{_PROFILE}{zlib.crc32(profile.encode()):08x}"


def workspace_mark(workspace: str) -> str:
    """Return the token that marks every message of a folder's sessions."""
    return f"{_WORKSPACE}{zlib.crc32(workspace.encode()):08x}"


def role_mark(role: int) -> str:
    """Return the token that marks every message of a role."""
    return f"{_ROLE}{role}"


def time_marks(begin_ms: int, end_ms: int) -> list[str]:
    """Return the days or months (UTC) of a period as tokens, or an empty list if there are too many.

    Every message of the period has one of them; messages just outside may have one too.
    """
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
    """Index the stored messages in the background after a short delay.

    After a failure the next call or search tries again.
    """
    db.submit_later(_INDEX_BATCH)


def has_new(connection: apsw.Connection) -> bool:
    """Return whether there may be new messages to index."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty = 1 LIMIT 1").fetchone() is not None


def has_backlog(connection: apsw.Connection) -> bool:
    """Return whether there may be messages to index, also because the index is being rebuilt."""
    return connection.execute("SELECT 1 FROM sessions WHERE dirty LIMIT 1").fetchone() is not None


def count_backlog(connection: apsw.Connection) -> int:
    """Count the sessions that are still missing while the index is rebuilt."""
    return rows.number(connection, "SELECT count(*) FROM sessions WHERE dirty AND dirty = 2")


def backlog_write(session_id: str | None, profile: str | None) -> Callable[[apsw.Connection], bool]:
    """Return a write that indexes some missing messages of a session, of a person, or of all.

    The write returns True while there may be more.
    """
    if session_id is not None:
        return lambda connection: _index_newest(connection, "dirty AND id = ?", session_id).is_full
    if profile is not None:
        return lambda connection: _index_newest(connection, "dirty AND profile = ?", profile).is_full
    return lambda connection: _index_newest(connection, "dirty").is_full


def index_new(connection: apsw.Connection) -> bool:
    """Index some new messages. Return True while there may be more. Runs as a write."""
    return _index_newest(connection, "dirty = 1").is_full


def index_batch(connection: apsw.Connection) -> bool:
    """Index some messages, new ones first. Return True while there may be more. Runs as a write."""
    batch = _index_newest(connection, "dirty = 1")
    return batch.is_full or (batch.has_backlog and _index_newest(connection, "dirty").is_full)


_INDEX_BATCH = ScopedWrite("the search index", index_batch)


def _index_newest(connection: apsw.Connection, condition: str, *values: str) -> _Batch:
    batch, before, has_more = _Batch(), 1 << 62, True
    while has_more and not batch.is_full:
        records = connection.execute(
            f"{_UNINDEXED_SESSIONS} {condition} AND key < ? ORDER BY key DESC LIMIT ?",
            (*values, before, _SESSIONS_PER_QUERY),
        ).fetchall()
        has_more = len(records) == _SESSIONS_PER_QUERY
        for key, has_backlog, *fields in records:
            before, batch.has_backlog = key, has_backlog
            if not batch.is_full:
                _read_session(connection, batch, key, *fields)
    if batch.texts:
        _insert_texts(connection, batch.texts)
    return batch


_UNINDEXED_SESSIONS = (
    "SELECT key, EXISTS (SELECT 1 FROM sessions WHERE dirty AND dirty = 2), indexed_seq, turns,"
    " EXISTS (SELECT 1 FROM turns WHERE session = key AND ended = ''),"
    " CASE kind WHEN 'review' THEN NULL ELSE profile END, workspace FROM sessions WHERE"
)


class _Batch:
    """The texts to index in one write, by message id. `has_backlog`: more messages may be missing."""

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

    In a session with an open turn, tool results after the last other message are left for later: they come in
    any order, and their numbers are assigned beforehand.
    """
    is_open, profile, workspace = session_fields
    marks = workspace_mark(workspace)
    if profile is not None:  # None for a review, whose messages belong to no person
        marks += f" {profile_mark(profile)}"
    base, reached = rows.row_id(key, 0), done
    days: dict[int, str] = {}
    last_role = rows.TOOL if is_open else -1
    records = connection.execute(_UNINDEXED, (base | done, rows.ids_of(key)[1], last_role))
    for id_, role, at, content, extra in records:
        if batch.is_full:
            turn_count = -1
            break
        day = at // _DAY_MS
        if day not in days:
            days[day] = " ".join(_day_marks(at))
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
    """Insert texts into the index.

    They are sorted by the index's numbers, because FTS5 flushes its buffer when a smaller number follows.
    """
    if is_team(connection):
        from whet.store import team_words  # noqa: PLC0415 - a home's own file does without

        return team_words.store_message_words(connection, texts)
    numbered = [(-2 * id_, text) for id_, text in texts.items()]
    numbered += [(-2 * id_ - 1, BEAT) for id_ in texts if _has_beat(id_)]
    connection.executemany("INSERT INTO messages_fts (rowid, body) VALUES (?, ?)", sorted(numbered))


def _has_beat(id_: int) -> bool:
    """Return whether a beat follows a message: one in a thousand of each session, and the first of some."""
    key, seq = divmod(id_, rows.SEQ_LIMIT)
    return seq % _BEAT_MESSAGES == 0 or (seq == 1 and key % _BEAT_SESSIONS == 0)


def remove_messages(connection: apsw.Connection, first: int, last: int) -> None:
    """Remove the messages from `first` to before `last` from the index."""
    if is_team(connection):
        from whet.store import team_words  # noqa: PLC0415 - as in _insert_texts

        return team_words.take_out(connection, first, last)
    connection.execute("DELETE FROM messages_fts WHERE rowid > ? AND rowid <= ?", (-2 * last, -2 * first))


def _day_marks(at_ms: int) -> Iterator[str]:
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
