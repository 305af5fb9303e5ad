"""Store turns: accepted messages that wait for one, its begin and end, its undo, and changes of a session.

Every function takes a connection inside a transaction. `transcript.py` calls them for an open session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import apsw
import msgspec

from whet.contract.messages import Message, Usage
from whet.contract.texts import replace_surrogates
from whet.store import claims, rows, sessions
from whet.store.jobs import QueuedJob, TransactionWork

ERROR_CHARS = 4000


class TurnCall(msgspec.Struct, frozen=True):
    """One tool call of a turn, with its arguments as JSON text.

    `error_kind` is empty on success. `error` is the text of a failed call, up to `ERROR_CHARS` characters.
    """

    step: int
    name: str
    arguments: str
    error_kind: str = ""
    error: str = ""


class TurnRecord(msgspec.Struct):
    """A turn that this process holds.

    `steps` counts model calls, and `usage` sums them up. `is_new` is False for a turn that a crash left and
    that is being resumed. `error` is set at the end of a turn that failed.

    The others count only since this process holds the turn. `ran_tests`: a call ran tests. `said` are the
    person's texts, `calls` the calls by the numbers of their results. `context_tokens` is the size of the
    last request with its answer, and `cut_step` the last model call whose answer reached the output limit.
    """

    id: str
    session_id: str
    number: int
    started: str
    steps: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    is_new: bool = True
    messages: int = 1
    tool_calls: int = 0
    error: str = ""
    ran_tests: bool = False
    said: list[str] = msgspec.field(default_factory=list[str])
    calls: dict[int, TurnCall] = msgspec.field(default_factory=dict[int, TurnCall])
    context_tokens: int = 0
    cut_step: int = 0

    @property
    def may_have_tests(self) -> bool:
        """Whether a call of the turn may have run tests, here or before a crash."""
        return self.ran_tests or (not self.is_new and self.tool_calls > 0)


class OpenTurn(msgspec.Struct):
    """A turn without an end marker, with the sums of its stored rows."""

    id: str
    number: int
    started: str
    steps: int = 0
    messages: int = 0
    tool_calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)


class AcceptedMessage(msgspec.Struct, frozen=True):
    """A message that was accepted and that no turn has stored yet. `is_left`: the process that accepted it
    has ended."""

    id: int
    message: Message
    is_left: bool


def accept_message(connection: apsw.Connection, session_id: str, message: Message) -> int:
    """Store a message before it is reported as accepted, and return its number.

    The transaction that stores it in the transcript removes it.
    """
    _, _, content, extra = rows.pack(rows.to_storable(message), 0)
    connection.execute(
        "INSERT INTO accepted_messages (session, owner, content, extra) VALUES (?, ?, ?, ?)",
        (session_id, claims.owner_name("accepted"), content, extra),
    )
    return connection.last_insert_rowid()


def select_accepted(connection: apsw.Connection, session_id: str) -> Callable[[], list[AcceptedMessage]]:
    """Query a session's accepted messages, oldest first, and return the function that reads them.

    The session's next turn takes those of processes that have ended.
    """
    cursor = connection.execute(
        "SELECT id, owner, content, extra FROM accepted_messages WHERE session = ? ORDER BY id", (session_id,)
    )
    return lambda: [
        AcceptedMessage(id_, rows.unpack(rows.USER, content, extra), claims.is_gone(connection, owner))
        for id_, owner, content, extra in cursor.fetchall()
    ]


def list_accepted(connection: apsw.Connection, session_id: str) -> list[AcceptedMessage]:
    """Return what `select_accepted` reads."""
    return select_accepted(connection, session_id)()


def list_left_texts(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the texts of the messages that an ended process accepted, oldest first."""
    return [entry.message.text for entry in list_accepted(connection, session_id) if entry.is_left]


def remove_accepted(connection: apsw.Connection, ids: Collection[int]) -> None:
    """Remove accepted messages."""
    connection.executemany("DELETE FROM accepted_messages WHERE id = ?", [(id_,) for id_ in ids])


def remove_at_end(ids: Collection[int], also: TransactionWork) -> TransactionWork:
    """Return the work of `also`, extended to remove these accepted messages."""

    def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
        remove_accepted(connection, ids)
        return also(connection)

    return work


def begin_turn(connection: apsw.Connection, key: int, turn: TurnRecord) -> None:
    """Store a new turn. The turn before it is closed as crashed if it has no end marker."""
    if rows.is_team(connection):
        connection.execute("SELECT whet_open_turn(?, ?, ?, ?)", (key, turn.number, turn.id, turn.started))
        return
    connection.execute(
        "UPDATE turns SET ended = ?, reason = 'crashed' WHERE session = ? AND number = ? AND ended = ''",
        (turn.started, key, turn.number - 1),
    )
    connection.execute(
        "INSERT INTO turns (session, number, id, started) VALUES (?, ?, ?, ?)",
        (key, turn.number, turn.id, turn.started),
    )
    connection.execute(
        "UPDATE sessions SET last_active = ?, dirty = 1, turns = turns + 1, messages = messages + 1,"
        " ended = '', end_reason = '' WHERE key = ?",
        (turn.started, key),
    )


_END = (
    "UPDATE turns SET ended = ?, reason = ?, error = ?, steps = ?, usage = ? WHERE session = ? AND number = ?"
)
_SUMS = ", ".join(f"{column} = {column} + ?" for column in rows.USAGE_COLUMNS)
_ADD_SUMS = (
    "UPDATE sessions SET last_active = ?, dirty = 1, messages = messages + ?,"
    f" tool_calls = tool_calls + ?, {_SUMS} WHERE key = ? RETURNING {sessions.COLUMNS}"
)


def end_turn(
    connection: apsw.Connection, key: int, turn: TurnRecord, reason: str, error: str, now: str
) -> Callable[[], sessions.SessionRow | None]:
    """Store the end marker and add the turn's sums to the session's. Raises NotFound.

    Returns the function that reads the session after the commit. In a team it returns None if the commit's
    answer was lost.
    """
    usage = msgspec.json.encode(turn.usage).decode()
    marker = (now, reason, error, turn.steps, usage, key, turn.number)
    sums = (now, turn.messages - 1, turn.tool_calls, *msgspec.structs.astuple(turn.usage), key)
    if rows.is_team(connection):
        statement: Any = connection.execute(f"WITH ended_turn AS ({_END}) {_ADD_SUMS}", (*marker, *sums))

        def read() -> sessions.SessionRow | None:
            row = statement.received_row
            return None if row is None else sessions.read_row(row)

        return read
    connection.execute(_END, marker)
    session = sessions.read_row(rows.row_reader(connection.execute(_ADD_SUMS, sums), *_DELETED)())
    return lambda: session


LAST_TURN_OF = "SELECT id, number, started, ended FROM turns WHERE session = ? ORDER BY number DESC LIMIT 1"


def find_open_turn(connection: apsw.Connection, key: int) -> OpenTurn | None:
    """Return the turn that has no end marker, with its sums so far, or None."""
    return sum_open_turn(connection, key, connection.execute(LAST_TURN_OF, (key,)).fetchone())


def sum_open_turn(connection: apsw.Connection, key: int, row: tuple[Any, ...] | None) -> OpenTurn | None:
    """Return the turn of a row of `LAST_TURN_OF` with its sums so far, or None if it has ended."""
    if row is None or row[3]:
        return None
    turn = OpenTurn(*row[:3])
    for role, content, extra in connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ? AND turn = ?",
        (*rows.ids_of(key), turn.number),
    ):
        message, usage = rows.unpack_with_usage(role, content, extra)
        turn.messages += 1
        turn.tool_calls += len(message.tool_calls)
        turn.steps += role == rows.ASSISTANT
        turn.usage += usage or Usage()
    return turn


def title_session(connection: apsw.Connection, session_id: str, title: str) -> None:
    """Set the title of a session that has none."""
    values = replace_surrogates(title), session_id
    if rows.is_team(connection):
        connection.execute("SELECT whet_title_session(?, ?)", values)
    else:
        connection.execute("UPDATE sessions SET title = ? WHERE id = ? AND title = ''", values)


def find_last_turn(connection: apsw.Connection, key: int) -> int:
    """Return the number of the newest turn that has ended and was not undone, or 0."""
    return rows.number(
        connection,
        "SELECT coalesce(max(number), 0) FROM turns WHERE session = ? AND ended <> '' AND undone = ''",
        key,
    )


def read_last_reason(connection: apsw.Connection, key: int) -> str:
    """Return why the last turn ended, or an empty string if there is none or it has not ended."""
    sql = "SELECT reason FROM turns WHERE session = ? AND undone = '' ORDER BY number DESC LIMIT 1"
    return rows.read_value(connection, sql, key) or ""


def read_outcome(connection: apsw.Connection, key: int, number: int) -> tuple[str, str, str]:
    """Return why a turn ended (empty while it has not), its error, and the text of its last answer."""
    row = connection.execute(
        "SELECT reason, error FROM turns WHERE session = ? AND number = ?", (key, number)
    ).fetchone()
    last = connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ? AND turn = ?"
        " ORDER BY id DESC LIMIT 1",
        (*rows.ids_of(key), number),
    ).fetchone()
    message = rows.unpack(*last) if last else None
    reason, error = row or ("", "")
    return reason, error, message.text if message and message.role == "assistant" else ""


def undo_last(connection: apsw.Connection, key: int, now: str) -> tuple[int, str] | None:
    """Mark the last turn as undone, with the compactions made since it began.

    Returns its number and the user's text, or None if there is no turn.
    """
    last = connection.execute(
        "SELECT number FROM turns WHERE session = ? AND undone = '' ORDER BY number DESC LIMIT 1", (key,)
    ).fetchone()
    if last is None:
        return None
    connection.execute(
        "UPDATE turns SET undone = ?, ended = CASE ended WHEN '' THEN ? ELSE ended END,"
        " reason = CASE reason WHEN '' THEN 'crashed' ELSE reason END WHERE session = ? AND number = ?",
        (now, now, key, last[0]),
    )
    connection.execute(
        "UPDATE compactions SET undone = ? WHERE session = ? AND turn >= ? AND undone = ''",
        (now, key, last[0]),
    )
    connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (key,))
    user_row = connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ? AND turn = ? AND role = ?"
        " ORDER BY id LIMIT 1",
        (*rows.ids_of(key), last[0], rows.USER),
    ).fetchone()
    return last[0], rows.unpack(*user_row).text if user_row else ""


def select_with_version(
    connection: apsw.Connection, session_id: str
) -> Callable[[], tuple[sessions.SessionRow, int, tuple[int, int, int]]]:
    """Query a session, its key, and its stored version: epoch, last turn's number, last message's id or 0.

    Returns the function that reads them, which raises NotFound.
    """
    columns = (
        f"{sessions.COLUMNS}, key, epoch,"
        " (SELECT coalesce(max(number), 0) FROM turns WHERE session = sessions.key),"
        " (SELECT coalesce(max(m.id), 0) FROM messages m"
        f" WHERE m.id > sessions.key << {rows.SEQ_BITS} AND m.id < (sessions.key + 1) << {rows.SEQ_BITS})"
    )
    select = sessions.select_columns(connection, columns, session_id)

    def read() -> tuple[sessions.SessionRow, int, tuple[int, int, int]]:
        row = select()
        return sessions.read_row(row[:-4]), row[-4], row[-3:]

    return read


def select_is_newer(
    connection: apsw.Connection, key: int, version: tuple[int, int, int]
) -> Callable[[], bool]:
    """Query whether a session differs from `version` (epoch, last turn, next number).

    Returns the function that reads the result, which raises NotFound.
    """
    cursor = connection.execute(
        "SELECT epoch, (SELECT coalesce(max(number), 0) FROM turns WHERE session = ?1),"
        " (SELECT coalesce(max(id), ?2) FROM messages WHERE id > ?2 AND id < ?3)"
        " FROM sessions WHERE key = ?1",
        (key, *rows.ids_of(key)),
    )
    read = rows.row_reader(cursor, *_DELETED)
    return lambda: is_newer(read(), version)


_DELETED = "this session was deleted", "start a new one with /new"


def is_newer(stored: tuple[int, int, int], version: tuple[int, int, int]) -> bool:
    """Return whether the stored version (epoch, last turn, last message's id) is newer than `version` (epoch,
    last turn, next number)."""
    epoch, last_turn, next_seq = version
    return stored[:2] != (epoch, last_turn) or stored[2] & (rows.SEQ_LIMIT - 1) >= next_seq


class UndoneParts(msgspec.Struct, frozen=True):
    """The undone messages of a session. `first` maps a turn to the number of its first undone message."""

    first: dict[int, int] = {}

    def has(self, turn: int, seq: int) -> bool:
        """Return whether a message is undone."""
        first = self.first.get(turn)
        return first is not None and seq >= first


def select_undone_parts(connection: apsw.Connection, session: int | str) -> Callable[[], UndoneParts]:
    """Query the undone turns and ends of turns of a session, given its key or its id.

    Returns the function that reads them.
    """
    key = "?" if isinstance(session, int) else "(SELECT key FROM sessions WHERE id = ?)"
    cursor = connection.execute(
        "SELECT number, CASE undone WHEN '' THEN cut ELSE 0 END FROM turns"
        f" WHERE session = {key} AND (undone <> '' OR cut > 0)",
        (session,),
    )
    return lambda: UndoneParts({number: first for number, first in cursor})
