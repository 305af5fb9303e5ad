"""Rewind a conversation to a point, and undo a rewind. The rows stay, and marks tell which ones count.

A point is a turn or a step of one. It and all messages after it leave the list that the model sees. The
rewind stores the conversation's previous state: the turns, cuts of turns and compactions that counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import apsw
import msgspec

from whet.clock import iso
from whet.contract.errors import NotFound
from whet.contract.texts import from_json
from whet.store import rows, sessions
from whet.store.transcript import Transcript

Parts = Literal["files", "conversation", "both"]


class RewindRow(msgspec.Struct, frozen=True):
    """A stored rewind to before a turn, or before a step of it unless `step` is 0.

    `undoes` is the id of the rewind that it undoes, or empty. `before` is the previous state of the
    conversation, or empty if that was not changed.
    """

    id: str
    at: str
    turn: int
    step: int
    state: Literal["begun", "done"]
    undoes: str
    parts: Parts
    before: str = ""


class _ConversationState(msgspec.Struct, frozen=True):
    turns: list[int]
    cuts: dict[int, int]
    compactions: list[int]


def begin_rewind(connection: apsw.Connection, session_id: str, new: RewindRow) -> None:
    """Store that a rewind is about to begin. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    connection.execute(
        "INSERT INTO rewinds (id, session, at, turn, step, state, undoes, parts, told)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (new.id, key, new.at, new.turn, new.step, new.state, new.undoes, new.parts, new.parts != "files"),
    )


def list_rewinds(connection: apsw.Connection, session_id: str) -> list[RewindRow]:
    """Return a session's rewinds, oldest first. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    cursor = connection.execute(
        "SELECT id, at, turn, step, state, undoes, parts, before FROM rewinds WHERE session = ?"
        " ORDER BY at, id",
        (key,),
    )
    return [RewindRow(*row) for row in cursor]


def mark_done(connection: apsw.Connection, rewind_id: str) -> None:
    """Store that a rewind is done."""
    connection.execute("UPDATE rewinds SET state = 'done' WHERE id = ?", (rewind_id,))


def delete_rewind(connection: apsw.Connection, rewind_id: str) -> None:
    """Delete a rewind that was not carried out, or that changed nothing."""
    connection.execute("DELETE FROM rewinds WHERE id = ?", (rewind_id,))


async def rewind_conversation(
    log: Transcript, rewind_id: str, turn: int, step: int, *, changed_files: bool = False
) -> str:
    """Rewind the conversation to before a turn, or before a step of it unless `step` is 0, and end the
    rewind.

    Returns the person's message of that turn. A rewind that changed neither the conversation nor files is
    deleted. Raises StoreBusy while a turn runs, and NotFound.
    """
    await log.drain()
    now = iso(log.writer.clock.now())

    def work(connection: apsw.Connection) -> str:
        log.writer.refuse_if_held(connection)
        key = log.live.key
        before = _read_state(connection, key)
        user_text = _read_user_text(connection, key, turn)
        first = _first_of_step(connection, key, turn, step) if step else 0
        connection.execute(
            "UPDATE turns SET undone = ?, ended = CASE ended WHEN '' THEN ? ELSE ended END,"
            " reason = CASE reason WHEN '' THEN 'crashed' ELSE reason END"
            " WHERE session = ? AND number >= ? AND undone = ''",
            (now, now, key, turn + bool(first)),
        )
        if first:
            connection.execute(
                "UPDATE turns SET cut = ?, undone = '', ended = CASE ended WHEN '' THEN ? ELSE ended END,"
                " reason = CASE reason WHEN '' THEN 'crashed' ELSE reason END"
                " WHERE session = ? AND number = ?",
                (first, now, key, turn),
            )
        connection.execute(
            "UPDATE compactions SET undone = ? WHERE session = ? AND undone = ''"
            " AND (turn > ? OR turn = ? AND after_seq >= ?)",
            (now, key, turn, turn, first),
        )
        _increment_epoch(connection, key)
        _end_rewind(connection, key, rewind_id, before, changed_files=changed_files)
        return user_text

    user_text = await log.writer.commit(work, lambda _: None)
    await log.writer.reload()
    return user_text


async def undo_rewind(
    log: Transcript, rewind_id: str, undone: RewindRow, *, changed_files: bool = False
) -> None:
    """Restore the conversation to its state before the rewind `undone`, and end the rewind `rewind_id`.

    The latter is deleted if it changed neither the conversation nor files. Raises StoreBusy while a turn
    runs.
    """
    await log.drain()
    now = iso(log.writer.clock.now())

    def work(connection: apsw.Connection) -> None:
        log.writer.refuse_if_held(connection)
        key = log.live.key
        before = _read_state(connection, key)
        target = from_json(undone.before, _ConversationState)
        turns, compactions = _join_numbers(target.turns), _join_numbers(target.compactions)
        connection.execute(
            f"UPDATE turns SET cut = 0, undone = CASE WHEN number IN ({turns}) THEN '' WHEN undone = ''"
            " THEN ? ELSE undone END WHERE session = ?",
            (now, key),
        )
        for number, first in target.cuts.items():
            connection.execute(
                "UPDATE turns SET cut = ? WHERE session = ? AND number = ?", (first, key, number)
            )
        connection.execute(
            f"UPDATE compactions SET undone = CASE WHEN id IN ({compactions}) THEN '' WHEN undone = ''"
            " THEN ? ELSE undone END WHERE session = ?",
            (now, key),
        )
        _increment_epoch(connection, key)
        _end_rewind(connection, key, rewind_id, before, changed_files=changed_files)

    await log.writer.commit(work, lambda _: None)
    await log.writer.reload()


def _end_rewind(
    connection: apsw.Connection,
    key: int,
    rewind_id: str,
    before: _ConversationState,
    *,
    changed_files: bool,
) -> None:
    """Store the end of a rewind, or delete it if it changed nothing, so that undo finds the one before it."""
    if not changed_files and _read_state(connection, key) == before:
        return delete_rewind(connection, rewind_id)
    text = msgspec.json.encode(before).decode()
    connection.execute("UPDATE rewinds SET state = 'done', before = ? WHERE id = ?", (text, rewind_id))


def select_unreported_turns(connection: apsw.Connection, key: int) -> Callable[[], list[int]]:
    """Query the turns before which files were rewound without a report to the model.

    Returns the function that reads them.
    """
    cursor = connection.execute(
        "SELECT turn FROM rewinds WHERE session = ? AND told = 0 AND state = 'done'", (key,)
    )
    return lambda: [row[0] for row in cursor]


def clear_unreported_turns(connection: apsw.Connection, key: int) -> None:
    """Mark all rewinds as reported to the model."""
    connection.execute("UPDATE rewinds SET told = 1 WHERE session = ? AND told = 0", (key,))


def list_family(connection: apsw.Connection, session_id: str) -> set[str]:
    """Return the ids of a session, its ancestors, and all their descendants."""
    root = session_id
    while True:
        row = connection.execute("SELECT parent_session_id FROM sessions WHERE id = ?", (root,)).fetchone()
        if row is None or not row[0]:
            break
        root = row[0]
    cursor = connection.execute(
        "WITH RECURSIVE family(id) AS (SELECT id FROM sessions WHERE parent_session_id = ?"
        " UNION SELECT s.id FROM sessions s JOIN family f ON s.parent_session_id = f.id)"
        " SELECT id FROM family",
        (root,),
    )
    return {root, *(row[0] for row in cursor)}


def has_point(connection: apsw.Connection, session_id: str, turn: int, step: int) -> bool:
    """Return whether a session has this turn and, unless `step` is 0, a step of it with calls."""
    key = sessions.key_of(connection, session_id)
    if step:
        sql = "SELECT 1 FROM tool_calls WHERE session = ? AND turn = ? AND step = ?"
        return connection.execute(sql, (key, turn, step)).fetchone() is not None
    sql = "SELECT 1 FROM turns WHERE session = ? AND number = ?"
    return connection.execute(sql, (key, turn)).fetchone() is not None


def _increment_epoch(connection: apsw.Connection, key: int) -> None:
    connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (key,))


def _read_state(connection: apsw.Connection, key: int) -> _ConversationState:
    turns = connection.execute(
        "SELECT number, cut FROM turns WHERE session = ? AND undone = '' ORDER BY number", (key,)
    ).fetchall()
    compactions = connection.execute("SELECT id FROM compactions WHERE session = ? AND undone = ''", (key,))
    return _ConversationState(
        [number for number, _ in turns],
        {number: cut for number, cut in turns if cut},
        [row[0] for row in compactions],
    )


def _join_numbers(numbers: list[int]) -> str:
    return ",".join(map(str, numbers)) or "NULL"  # PostgreSQL does not accept an empty list


def _first_of_step(connection: apsw.Connection, key: int, turn: int, step: int) -> int:
    row = connection.execute(
        "SELECT min(seq - 1 - position) FROM tool_calls WHERE session = ? AND turn = ? AND step = ?",
        (key, turn, step),
    ).fetchone()
    if row is None or row[0] is None:
        raise NotFound(
            f"turn {turn} has no step {step} with calls", hint="whet rewind SESSION lists the points"
        )
    return row[0]


def _read_user_text(connection: apsw.Connection, key: int, turn: int) -> str:
    row = connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ? AND turn = ? AND role = ?"
        " ORDER BY id LIMIT 1",
        (*rows.ids_of(key), turn, rows.USER),
    ).fetchone()
    if row is None:
        raise NotFound(
            f"there is no turn {turn} in this session", hint="whet rewind SESSION lists the points"
        )
    return rows.unpack(*row).text
