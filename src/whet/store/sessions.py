"""Create, find, rename, hide and count sessions.

Every function takes a connection inside a transaction. `transcript.py` stores a session's messages. The
system prompt and the tool array are stored with the session, because a resume must send the same bytes; equal
texts are stored once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import apsw
import msgspec

from whet.contract.errors import NotFound, StoreError
from whet.contract.messages import Usage
from whet.contract.texts import flat, replace_surrogates, short
from whet.late import late_pattern
from whet.log import mask
from whet.store import rows, titles
from whet.store.helper_rows import helper_usages
from whet.store.shared import read_size

SessionKind: TypeAlias = Literal["chat", "child", "review"]


class SessionRow(msgspec.Struct, frozen=True):
    """A session with its sums. Times are ISO, and `ended` is empty while it is open. `model` is the one that
    was configured when the session began or, with `model_chosen`, the one chosen for it."""

    id: str
    conversation_id: str
    parent_session_id: str
    kind: SessionKind
    source: str
    provider: str
    model: str
    title: str
    workspace: str
    private: bool
    started: str
    last_active: str
    ended: str
    end_reason: str
    turns: int
    messages: int
    tool_calls: int
    usage: Usage
    model_chosen: bool = False
    archived: bool = False


class NewSession(msgspec.Struct, frozen=True):
    """The fields of a new session. An empty `conversation_id` becomes the parent's, or the session's own id.
    `profile` is the person whose memory it reads and writes, empty for the owner. `prime_json` are messages
    that precede the first one in every request (`whet.warm`). A child has its parent's profile, and is
    private if the parent is. A review has its parent's prime, because it sends the same prefix."""

    id: str
    conversation_id: str = ""
    parent_session_id: str = ""
    kind: SessionKind = "chat"
    source: str = "cli"
    provider: str = ""
    model: str = ""
    workspace: str = ""
    private: bool = False
    title: str = ""
    system_prompt: str = ""
    tools_json: str = ""
    prime_json: str = ""
    profile: str = ""
    model_chosen: bool = False


class StoreStats(msgspec.Struct, frozen=True):
    """The totals of the store."""

    sessions: int
    private: int
    turns: int
    messages: int
    tool_calls: int
    failed_calls: int
    usage: Usage
    size_bytes: int
    first: str
    last: str


_BLOCKS = late_pattern(r"(?:\s*<([A-Za-z][\w-]*)(?:\s[^<>]*)?>.*?</\1>)*", re.DOTALL)
_GIVEN = "id, conversation_id, parent_session_id, kind, source, provider, model, title, workspace, private"
_USAGE_AND_STATE = ", ".join((*rows.USAGE_COLUMNS, "model_chosen", "archived"))
COLUMNS = (
    f"{_GIVEN}, started, last_active, ended, end_reason, turns, messages, tool_calls, {_USAGE_AND_STATE}"
)
# The concatenation stops SQLite from sorting by the index on time, which would visit every session.
_SORTED = "ORDER BY last_active || '' DESC, key DESC LIMIT ? OFFSET ?"
_NO_LIMIT = 1 << 40
_TEXT_ID = "(SELECT id FROM frozen_texts WHERE hash = ?)"
_NO_SESSION_HINT = "`whet sessions list` shows them"


def create(connection: apsw.Connection, new: NewSession, now: str) -> SessionRow:
    """Store a session as `insert` does, and return it."""
    insert(connection, new, now)
    return get(connection, new.id)


def insert(connection: apsw.Connection, new: NewSession, now: str) -> None:
    """Store a session, its title masked, and its frozen prefix. Raises NotFound for a missing parent."""
    conversation, private, prime, profile = new.conversation_id, new.private, new.prime_json, new.profile
    if new.parent_session_id:
        parent = get(connection, new.parent_session_id)
        conversation = conversation or parent.conversation_id
        private = private or parent.private
        profile = profile_of(connection, new.parent_session_id)
        if new.kind == "review":
            prime = prime or read_prime(connection, new.parent_session_id)
    connection.execute(
        f"INSERT INTO sessions ({_GIVEN}, started, last_active, system_text, tools_text, prime_text, profile,"
        f" model_chosen) VALUES ({', '.join('?' * 12)}, {_TEXT_ID}, {_TEXT_ID}, {_TEXT_ID}, ?, ?)",
        (
            *(new.id, conversation or new.id),
            new.parent_session_id,
            new.kind,
            new.source,
            new.provider,
            new.model,
            mask(new.title),
            new.workspace,
            int(private),
            *(now, now),
            *freeze_texts(connection, new.system_prompt, new.tools_json),
            freeze_texts(connection, prime, prime)[0] if prime else None,
            profile,
            int(new.model_chosen),
        ),
    )


def get(connection: apsw.Connection, session_id: str) -> SessionRow:
    """Return a session. Raises NotFound."""
    return read_row(read_columns(connection, COLUMNS, session_id))


def profile_of(connection: apsw.Connection, session_id: str) -> str:
    """Return the profile whose memory a session reads and writes, empty for the owner's. Raises NotFound."""
    return read_columns(connection, "profile", session_id)[0]


def key_of(connection: apsw.Connection, session_id: str) -> int:
    """Return the key of a session's rows. Raises NotFound."""
    return read_columns(connection, "key", session_id)[0]


def set_planning(connection: apsw.Connection, session_id: str, on: bool) -> None:
    """Set whether a session only reads until its plan is approved. Raises NotFound."""
    connection.execute("UPDATE sessions SET planning = ? WHERE id = ?", (int(on), session_id))
    _require_change(connection, session_id)


def is_planning(connection: apsw.Connection, session_id: str) -> bool:
    """Return whether a session only reads until its plan is approved. Raises NotFound."""
    return bool(read_columns(connection, "planning", session_id)[0])


def read_columns(connection: apsw.Connection, columns: str, session_id: str) -> tuple[Any, ...]:
    """Return columns of a session. Raises NotFound."""
    return select_columns(connection, columns, session_id)()


def select_columns(connection: apsw.Connection, columns: str, session_id: str) -> rows.ReadRow:
    """Run the query of `read_columns`, and return the function that reads its result."""
    cursor = connection.execute(f"SELECT {columns} FROM sessions WHERE id = ?", (session_id,))
    return rows.row_reader(cursor, f"there is no session {session_id}", _NO_SESSION_HINT)


class SessionFilter(TypedDict, total=False):
    """The sessions to list. Missing or empty fields do not restrict them, but `kinds` is ("chat",) unless
    set. `query` holds parts of the title or beginnings of the id. Archived sessions are listed only with a
    `query` or with `archived`, which lists no others. `token` restricts the list to sessions that an API
    client of this name began."""

    kinds: Sequence[SessionKind]
    source: str
    workspace: str
    parent_session_id: str
    query: str
    archived: bool
    token: str


def list_sessions(
    connection: apsw.Connection,
    limit: int,
    *,
    before: str = "",
    offset: int = 0,
    **filters: Unpack[SessionFilter],
) -> list[SessionRow]:
    """Return sessions, the last active first, with the usage of their helpers included. `before` is a
    `last_active` time to continue from."""
    listed = _list_rows(connection, limit, before, offset, filters)
    usages = helper_usages(connection, [row.id for row in listed])
    return [
        msgspec.structs.replace(row, usage=row.usage + usages[row.id]) if row.id in usages else row
        for row in listed
    ]


def _list_rows(
    connection: apsw.Connection, limit: int, before: str, offset: int, filters: SessionFilter
) -> list[SessionRow]:
    where, values = _conditions(filters)
    if before:
        where.append("last_active < ?")
        values.append(before)
    condition = " AND ".join(where)
    newest = f"SELECT {COLUMNS} FROM sessions WHERE {condition} ORDER BY last_active DESC, key DESC LIMIT ?"
    text = filters.get("query", "")
    if not text:
        if (few := titles.find_narrow_filter(connection, filters)) is None:
            return _rows(connection, f"{newest} OFFSET ?", *values, limit, offset)
        by_filter = f"SELECT {COLUMNS} FROM sessions WHERE {condition} AND key IN ({few[0]}) {_SORTED}"
        return _rows(connection, by_filter, *values, few[1], limit, offset)
    matches, parts = titles.build_condition(text)
    near = f"SELECT * FROM ({newest}) AS near WHERE {matches} LIMIT ? OFFSET ?"
    if (candidates := titles.build_index_condition(connection, text)) is None:
        return _rows(connection, near, *values, _NO_LIMIT, *parts, limit, offset)
    newest_rows = _rows(connection, near, *values, titles.NEWEST, *parts, limit, offset)
    if len(newest_rows) == limit:
        return newest_rows
    # Only the returned rows are read whole, because thousands may match.
    by_runs = (
        f"SELECT {COLUMNS} FROM sessions WHERE key IN (SELECT key FROM sessions WHERE {candidates[0]}"
        f" AND {matches} AND {condition} {_SORTED}) ORDER BY last_active || '' DESC, key DESC"
    )
    return _rows(connection, by_runs, *candidates[1], *parts, *values, limit, offset)


def _rows(connection: apsw.Connection, sql: str, *values: Any) -> list[SessionRow]:
    return [read_row(row) for row in connection.execute(sql, values)]


def _conditions(filters: SessionFilter) -> tuple[list[str], list[Any]]:
    archived = "archived <> ''" if filters.get("archived") else "1 = 1" if filters.get("query") else ""
    where = [archived or "archived = ''"]
    values: list[Any] = []
    if kinds := filters.get("kinds", ("chat",)):
        where.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values += kinds
    for column in ("source", "workspace", "parent_session_id"):
        if value := filters.get(column):
            where.append(f"{column} = ?")
            values.append(value)
    if token := filters.get("token"):
        where.append("EXISTS (SELECT 1 FROM api_sessions WHERE session = key AND token = ?)")
        values.append(token)
    return where, values


def find_latest(connection: apsw.Connection, *, source: str = "", workspace: str = "") -> SessionRow | None:
    """Return the chat that was active last, or None."""
    matches = list_sessions(connection, 1, source=source, workspace=workspace)
    return matches[0] if matches else None


def resolve_id(connection: apsw.Connection, name: str) -> str:
    """Return the id of the session with this id, beginning of an id, or title. Raises NotFound, which names
    the candidates if there are several."""
    name = name.strip()
    exact = connection.execute("SELECT id FROM sessions WHERE id = ?", (name,)).fetchone()
    if exact is not None or not name:
        if exact is not None:
            return exact[0]
        raise NotFound("no session was named", hint=_NO_SESSION_HINT)
    matches = connection.execute(
        r"SELECT id, title FROM sessions WHERE id LIKE ? ESCAPE '\' OR title = ? COLLATE NOCASE"
        " ORDER BY last_active DESC LIMIT 6",
        (f"{titles.escape_like(name)}%", name),
    ).fetchall()
    if not matches:
        raise NotFound(f"there is no session {name!r}", hint=_NO_SESSION_HINT)
    if len(matches) > 1:
        names = ", ".join(f"{id_} ({title})" if title else id_ for id_, title in matches[:5])
        more = ", ..." if len(matches) > 5 else ""
        raise NotFound(f"{name!r} fits several sessions: {names}{more}", hint="give more of the id")
    return matches[0][0]


def make_title(text: str) -> str:
    """Create a session's title from its first message: the first line, masked, at most 60 characters. Whole
    `<name>…</name>` blocks before the person's words, which coding clients add, are skipped."""
    words = text
    if "</" in text:
        from whet.contract.brought_text import drop_marks, unwrap_pastes  # noqa: PLC0415 - few messages have tags

        words = unwrap_pastes(drop_marks(text))
    stripped = _BLOCKS.sub("", words, count=1) if "</" in words else words
    lines = (stripped if stripped.strip() else words).strip().splitlines()
    first = lines[0][:4_000] if lines else ""
    return short(mask(replace_surrogates(flat(first))), 60)


def rename(connection: apsw.Connection, session_id: str, title: str) -> None:
    """Set the title, secrets masked. Raises NotFound."""
    values = mask(replace_surrogates(title)), session_id
    connection.execute("UPDATE sessions SET title = ? WHERE id = ?", values)
    _require_change(connection, session_id)


def choose_model(
    connection: apsw.Connection, session_id: str, provider: str, model: str, *, chosen: bool
) -> None:
    """Store the model that answers a session from now on. Without `chosen`, the model is the configured one.
    Raises NotFound."""
    connection.execute(
        "UPDATE sessions SET provider = ?, model = ?, model_chosen = ? WHERE id = ?",
        (provider, model, int(chosen), session_id),
    )
    _require_change(connection, session_id)


def set_archive_time(connection: apsw.Connection, session_id: str, at: str) -> None:
    """Archive a session at the time `at`, or restore it if `at` is empty. Raises NotFound. Lists leave
    archived sessions out, and search finds them."""
    connection.execute("UPDATE sessions SET archived = ? WHERE id = ?", (at, session_id))
    _require_change(connection, session_id)


def set_private(connection: apsw.Connection, session_id: str, private: bool) -> None:
    """Hide a session and its children from search, bulk export and learning, or show them again."""
    for key in family_keys(connection, session_id):
        connection.execute("UPDATE sessions SET private = ? WHERE key = ?", (int(private), key))


def end_session(connection: apsw.Connection, session_id: str, reason: str, now: str) -> None:
    """Mark a session as ended. It can still be continued. Raises NotFound."""
    connection.execute(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE id = ?", (now, reason, session_id)
    )
    _require_change(connection, session_id)


def count_chats(connection: apsw.Connection) -> int:
    """Count the chats."""
    return rows.number(connection, "SELECT count(*) FROM sessions WHERE kind = 'chat'")


def read_stats(connection: apsw.Connection) -> StoreStats:
    """Sum up the whole store."""
    sums = ", ".join(f"sum({column})" for column in rows.USAGE_COLUMNS if column != "cost_usd")
    row = connection.execute(
        "SELECT count(*), sum(private), sum(turns), sum(messages), sum(tool_calls),"
        f" min(started), max(last_active), count(*) = count(cost_usd), sum(cost_usd), {sums} FROM sessions"
    ).fetchone()
    failed = connection.execute("SELECT count(*) FROM tool_calls WHERE error_kind <> ''").fetchone()
    assert row is not None and failed is not None  # an aggregate always returns a row
    cost = (row[8] or 0.0) if row[7] else None
    return StoreStats(
        sessions=row[0],
        private=row[1] or 0,
        turns=row[2] or 0,
        messages=row[3] or 0,
        tool_calls=row[4] or 0,
        failed_calls=failed[0],
        usage=Usage(*(value or 0 for value in row[9:-1]), cost_usd=cost, estimated_tokens=row[-1] or 0),
        size_bytes=read_size(connection),
        first=row[5] or "",
        last=row[6] or "",
    )


def read_row(row: tuple[Any, ...]) -> SessionRow:
    """Return a session from its `COLUMNS`."""
    sums = Usage(*row[17:-2])
    return SessionRow(*row[:9], bool(row[9]), *row[10:17], sums, bool(row[-2]), bool(row[-1]))  # pyright: ignore[reportCallIssue] the columns are the fields


def family_keys(connection: apsw.Connection, session_id: str) -> list[int]:
    """Return the keys of a session and all its descendants."""
    records = connection.execute(
        "WITH RECURSIVE family (key, id) AS (SELECT key, id FROM sessions WHERE id = ?"
        " UNION SELECT s.key, s.id FROM sessions s JOIN family f ON s.parent_session_id = f.id"
        " WHERE s.parent_session_id <> '') SELECT key FROM family",
        (session_id,),
    ).fetchall()
    if not records:
        raise NotFound(f"there is no session {session_id}", hint=_NO_SESSION_HINT)
    return [row[0] for row in records]


def _require_change(connection: apsw.Connection, session_id: str) -> None:
    """Raise NotFound if the last statement changed no row, because there is no such session."""
    if not connection.changes():
        raise NotFound(f"there is no session {session_id}", hint=_NO_SESSION_HINT)


def read_prefix(connection: apsw.Connection, session_id: str) -> tuple[str, str]:
    """Return the system prompt and the tool array's JSON, exactly as they were at creation."""
    row = connection.execute(
        "SELECT a.text, b.text FROM sessions s JOIN frozen_texts a ON a.id = s.system_text"
        " JOIN frozen_texts b ON b.id = s.tools_text WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no session {session_id}", hint=_NO_SESSION_HINT)
    return row[0], row[1]


def read_prime(connection: apsw.Connection, session_id: str) -> str:
    """Return the JSON of the examples that a session was started with, or an empty string if it has none."""
    sql = "SELECT t.text FROM sessions s JOIN frozen_texts t ON t.id = s.prime_text WHERE s.id = ?"
    return rows.read_value(connection, sql, session_id) or ""


def set_prime(connection: apsw.Connection, session_id: str, system_prompt: str, prime_json: str) -> None:
    """Put examples into a session's prefix. Raises StoreError after its first turn."""
    connection.execute(
        f"UPDATE sessions SET system_text = {_TEXT_ID}, prime_text = {_TEXT_ID} WHERE id = ? AND turns = 0",
        (*freeze_texts(connection, system_prompt, prime_json), session_id),
    )
    if not connection.changes():
        raise StoreError("a session's prefix can't change once something was said", hint="start a new one")


def freeze_prefix(connection: apsw.Connection, session_id: str, prompt: str, tools_json: str) -> None:
    """Set the lasting prefix of a session that was stored without one."""
    connection.execute(
        f"UPDATE sessions SET system_text = {_TEXT_ID}, tools_text = {_TEXT_ID} WHERE id = ?",
        (*freeze_texts(connection, prompt, tools_json), session_id),
    )


def freeze_texts(connection: apsw.Connection, first: str, second: str) -> tuple[bytes, bytes]:
    """Store two texts unless they are stored, and return their hashes. Others may store them at the same
    time."""
    digests = hashlib.sha256(first.encode()).digest(), hashlib.sha256(second.encode()).digest()
    pairs = sorted(zip(digests, (first, second), strict=True))  # sorted, so that writers can't deadlock
    insert = "INSERT INTO frozen_texts (hash, text) VALUES (?, ?), (?, ?) ON CONFLICT (hash) DO NOTHING"
    is_team = rows.is_team(connection)
    connection.execute("SELECT whet_freeze_texts(?, ?, ?, ?)" if is_team else insert, (*pairs[0], *pairs[1]))
    return digests
