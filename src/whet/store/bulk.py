"""Store whole past sessions of other programs, and recognise them when they are imported again.

A session's messages come in the order of this store: the results of an answer follow it in the order of its
calls. Each import is recorded under its origin and id, so that importing again adds only new messages.
Every function takes a connection inside a transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import apsw
import msgspec

from whet.clock import iso
from whet.contract.messages import Message, Usage
from whet.store import compactions, rows, session_deletion, sessions
from whet.store.live import LiveList

Stored = Literal["new", "grown", "same", "changed"]
"""The result of storing a session. `changed`: the part stored earlier differs now, so nothing was stored."""


class PastMessage(msgspec.Struct, frozen=True):
    """A message and its time.

    An answer has the model and usage of its call, a result how its call ended (`error_kind` as in
    ToolOutput).
    """

    message: Message
    at_ms: int
    usage: Usage | None = None
    model: str = ""
    error_kind: str = ""
    exit_code: int | None = None


class PastSession(msgspec.Struct, frozen=True):
    """A session of another program.

    `header.id` is its id there, which it keeps here if that is free, and `header.parent_session_id` its
    parent's id there. `ended_ms` is 0 if it is open. `live` are the indices of the messages that the model
    still saw, None for all.
    """

    header: sessions.NewSession
    messages: Sequence[PastMessage]
    started_ms: int
    ended_ms: int = 0
    end_reason: str = ""
    live: tuple[int, ...] | None = None


def store_session(connection: apsw.Connection, origin: str, past: PastSession, now: str) -> Stored:
    """Store a session, or the messages added to it since it was last stored."""
    import_row = connection.execute(
        "SELECT session, messages, digest FROM imports WHERE origin = ? AND foreign_id = ?",
        (origin, past.header.id),
    ).fetchone()
    digest = _digest(past.messages)
    if import_row is None:
        key = _create(connection, origin, past, now)
        _append(connection, key, past, 0, 0)
        _record_import(connection, origin, past, key, digest, now)
        return "new"
    key, count, before = import_row
    if count == len(past.messages) and before == digest:
        return "same"
    first = _find_last_turn(connection, key, count)
    if first is None or len(past.messages) < count:
        return "changed"
    if _digest(past.messages[:count]) != before:
        if _digest(_restore_placeholders(connection, key, past.messages[:count])) != before:
            return "changed"
        session_deletion.drop(connection, key)  # calls that had no result then have one now
        key, count, first = _create(connection, origin, past, now), 0, 0
    elif len(past.messages) == count:
        return "changed"
    _append(connection, key, past, count, first)
    _record_import(connection, origin, past, key, digest, now)
    return "grown"


def is_known(connection: apsw.Connection, origin: str, foreign_id: str) -> bool:
    """Return whether a session of the program `origin` was stored before."""
    sql = "SELECT 1 FROM imports WHERE origin = ? AND foreign_id = ?"
    return rows.read_value(connection, sql, origin, foreign_id) is not None


def prepend_messages(connection: apsw.Connection, session_id: str, messages: Sequence[PastMessage]) -> None:
    """Insert messages from elsewhere at the beginning of a session that has no messages yet."""
    key = sessions.key_of(connection, session_id)
    _append(connection, key, PastSession(sessions.NewSession(session_id), messages, 0), 0, 0)


def _create(connection: apsw.Connection, origin: str, past: PastSession, now: str) -> int:
    header = past.header
    same_id = connection.execute("SELECT 1 FROM sessions WHERE id = ?", (header.id,)).fetchone()
    parent = connection.execute(
        "SELECT s.id FROM imports i JOIN sessions s ON s.key = i.session"
        " WHERE i.origin = ? AND i.foreign_id = ?",
        (origin, header.parent_session_id),
    ).fetchone()
    new = msgspec.structs.replace(
        header,
        id=f"{origin}-{header.id}" if same_id else header.id,
        parent_session_id=parent[0] if parent else "",
    )
    row = sessions.create(connection, new, _iso(past.started_ms) if past.started_ms else now)
    return sessions.key_of(connection, row.id)


def _append(connection: apsw.Connection, key: int, past: PastSession, index: int, turn: int) -> None:
    """Store the messages from `index` on, in turns after `turn`, and update the session's sums."""
    stored: list[tuple[Any, ...]] = []
    results: list[tuple[Any, ...]] = []
    turns: list[_Turn] = []
    for seq, entry in enumerate(past.messages[index:], index + 1):
        message = rows.to_storable(entry.message)
        if message.role == "user" or not turns:
            turns.append(_Turn(turn + len(turns) + 1, entry.at_ms))
        turns[-1].add(entry)
        packed = rows.pack(message, entry.at_ms, entry.usage, entry.model)
        stored.append((rows.row_id(key, seq), turns[-1].number, *packed))
        if message.role == "tool":
            results.append(_call_row(past, key, seq, turns[-1]))
    connection.executemany(
        "INSERT INTO messages (id, turn, role, at, content, extra) VALUES (?, ?, ?, ?, ?, ?)", stored
    )
    connection.executemany(
        "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, started, finished,"
        " error_kind, exit_code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        results,
    )
    connection.executemany(
        "INSERT INTO turns (session, number, id, started, ended, reason, steps, usage)"
        " VALUES (?, ?, ?, ?, ?, 'answered', ?, ?)",
        [(key, *new_turn.row()) for new_turn in turns],
    )
    _sum_up(connection, key, past, turns)
    if past.live is not None:
        at = _iso(past.messages[-1].at_ms) if past.messages else ""
        last_turn = turns[-1].number if turns else turn
        live: LiveList = [position + 1 for position in past.live]
        new = compactions.NewCompaction(last_turn, len(past.messages), live, "import", 0, 0, at)
        compactions.insert_compaction(connection, key, new)


class _Turn:
    """A turn while its messages are read."""

    def __init__(self, number: int, at_ms: int) -> None:
        self.number = number
        self._first_ms = self._last_ms = at_ms
        self.steps = self.messages = self.calls = 0
        self.usage = Usage()

    def add(self, entry: PastMessage) -> None:
        self.messages += 1
        self._last_ms = max(self._last_ms, entry.at_ms)
        if entry.message.role == "assistant":
            self.steps += 1
            self.calls += len(entry.message.tool_calls)
            self.usage += entry.usage or Usage(cost_usd=None)

    def row(self) -> tuple[Any, ...]:
        """Return number, id, started, ended, steps, usage."""
        when = _iso(self._first_ms), _iso(self._last_ms)
        usage = msgspec.json.encode(self.usage).decode()
        return self.number, f"import-{self.number}", *when, self.steps, usage


def _call_row(past: PastSession, key: int, seq: int, turn: _Turn) -> tuple[Any, ...]:
    """Return the row of the call that message `seq` answers. The call's message comes directly before its
    results."""
    position = 0
    while past.messages[seq - 2 - position].message.role == "tool":
        position += 1
    request, result = past.messages[seq - 2 - position], past.messages[seq - 1]
    call = request.message.tool_calls[position]
    ended = (request.at_ms, result.at_ms, result.error_kind, result.exit_code)
    return key, seq, position, turn.number, turn.steps, call.id, call.name, *ended


def _sum_up(connection: apsw.Connection, key: int, past: PastSession, turns: Sequence[_Turn]) -> None:
    usage = sum((turn.usage for turn in turns), Usage())
    sums = ", ".join(f"{column} = {column} + ?" for column in rows.USAGE_COLUMNS)
    last = max((entry.at_ms for entry in past.messages), default=past.started_ms)
    connection.execute(
        "UPDATE sessions SET dirty = 1, turns = turns + ?, messages = messages + ?,"
        f" tool_calls = tool_calls + ?, {sums}, last_active = ?, ended = ?, end_reason = ? WHERE key = ?",
        (
            len(turns),
            sum(turn.messages for turn in turns),
            sum(turn.calls for turn in turns),
            *msgspec.structs.astuple(usage),
            _iso(max(last, past.ended_ms)),
            _iso(past.ended_ms) if past.ended_ms else "",
            past.end_reason,
            key,
        ),
    )


def _find_last_turn(connection: apsw.Connection, key: int, count: int) -> int | None:
    """Return the last turn's number if the session holds exactly the imported messages, else None."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM messages WHERE id > ? AND id < ?),"
        " (SELECT max(number) FROM turns WHERE session = ?)",
        (*rows.ids_of(key), key),
    ).fetchone()
    return (row[1] or 0) if row and row[0] == count else None


def _restore_placeholders(
    connection: apsw.Connection, key: int, messages: Sequence[PastMessage]
) -> list[PastMessage]:
    """Return the messages as they were stored: with placeholders for results that were missing then."""
    restored = list(messages)
    missing: list[tuple[int]] = connection.execute(
        "SELECT seq FROM tool_calls WHERE session = ? AND error_kind = 'interrupted'", (key,)
    ).fetchall()
    for (seq,) in missing:
        row = connection.execute(
            "SELECT content FROM messages WHERE id = ?", (rows.row_id(key, seq),)
        ).fetchone()
        if row is not None and seq <= len(restored) and restored[seq - 1].message.role == "tool":
            message = msgspec.structs.replace(restored[seq - 1].message, content=row[0])
            restored[seq - 1] = msgspec.structs.replace(restored[seq - 1], message=message)
    return restored


def _record_import(
    connection: apsw.Connection, origin: str, past: PastSession, key: int, digest: bytes, now: str
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO imports (origin, foreign_id, session, messages, digest, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (origin, past.header.id, key, len(past.messages), digest, now),
    )


def _digest(messages: Sequence[PastMessage]) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in _parts(messages):
        hasher.update(part.encode("utf-8", "surrogatepass"))
        hasher.update(b"\0")
    return hasher.digest()


def _parts(messages: Sequence[PastMessage]) -> Iterator[str]:
    for entry in messages:
        message = entry.message
        yield message.role
        yield message.text
        yield message.tool_call_id
        for call in message.tool_calls:
            yield call.id
            yield call.arguments


def _iso(at_ms: int) -> str:
    return iso(datetime.fromtimestamp(at_ms / 1000, UTC))
