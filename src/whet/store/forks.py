"""Fork sessions: create a session with a copy of another one's turns up to a point, and its prefix.

Neither session changes the other. The cost of the copied turns stays with the original, so that it is not
counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.store import rows, sessions
from whet.store.sessions import NewSession, SessionRow

# The columns that a fork copies: all but later judgements. A test compares this with the tables.
COPIED: dict[str, str] = {
    "tool_calls": "seq, position, turn, step, call_id, name, started, finished, duration_s, decided_by,"
    " error_kind, exit_code, facts",
    "compactions": "turn, after_seq, live, engine, tokens_before, tokens_after, at, undone",
}
_IDS_PER_QUERY = 500
_FORK_SUFFIX = re.compile(r" \(from turn \d+\)$")  # the suffix that an earlier fork added to the title


class TreeRow(msgspec.Struct, frozen=True):
    """A session and its position in a tree of forks, `depth` 0 being the top.

    A fork continues the session `origin`, which may be deleted, after its turn `turn`. For other sessions
    these are "" and 0.
    """

    row: SessionRow
    depth: int = 0
    origin: str = ""
    turn: int = 0


def fork(connection: apsw.Connection, session_id: str, turn: int, new_id: str, now: str) -> SessionRow:
    """Create a session with another one's turns up to `turn`, or all that have ended if it is 0. Raises
    NotFound."""
    key, old = sessions.key_of(connection, session_id), sessions.get(connection, session_id)
    last = _last_turn(connection, key, turn)
    title = f"{_FORK_SUFFIX.sub('', old.title)} (from turn {last})" if old.title else ""
    sessions.create(
        connection,
        NewSession(
            new_id,
            source=old.source,
            provider=old.provider,
            model=old.model,
            workspace=old.workspace,
            private=old.private,
            title=title,
            profile=sessions.profile_of(connection, session_id),
        ),
        now,
    )
    new = sessions.key_of(connection, new_id)
    connection.execute(
        "INSERT INTO messages (id, turn, role, at, content, extra)"
        " SELECT id + ?, turn, role, at, content, extra FROM messages"
        " WHERE id > ? AND id < ? AND turn <= ? ORDER BY id",
        ((new - key) << rows.SEQ_BITS, *rows.ids_of(key), last),
    )
    connection.execute(
        "INSERT INTO turns (session, number, id, started, ended, reason, error, steps, undone)"
        " SELECT ?, number, ? || number, started, ended, reason, error, steps, undone"
        " FROM turns WHERE session = ? AND number <= ?",
        (new, f"{new_id}-", key, last),
    )
    for table, columns in COPIED.items():
        connection.execute(
            f"INSERT INTO {table} (session, {columns}) SELECT ?, {columns} FROM {table}"
            " WHERE session = ? AND turn <= ?",
            (new, key, last),
        )
    _copy_prefix(connection, key, new, last)
    connection.execute("INSERT INTO forks (session, origin, turn) VALUES (?, ?, ?)", (new, session_id, last))
    return sessions.get(connection, new_id)


def order_as_trees(connection: apsw.Connection, session_rows: Sequence[SessionRow]) -> list[TreeRow]:
    """Order sessions so that each fork comes below its origin, if that is among them.

    A tree comes at the position of its first session; forks of one session keep their order.
    """
    origins = _read_origins(connection, [row.id for row in session_rows])
    by_id = {row.id: row for row in session_rows}
    above = {name: origin for name, (origin, _) in origins.items() if origin in by_id}
    below: dict[str, list[SessionRow]] = {}
    tops: dict[str, None] = {}
    for row in session_rows:
        if row.id in above:
            below.setdefault(above[row.id], []).append(row)
        top = row.id
        while top in above:
            top = above[top]
        tops[top] = None
    tree_rows: list[TreeRow] = []
    pending = [(by_id[top], 0) for top in reversed(tops)]
    while pending:
        row, depth = pending.pop()
        tree_rows.append(TreeRow(row, depth, *origins.get(row.id, ("", 0))))
        pending += [(child, depth + 1) for child in reversed(below.get(row.id, []))]
    return tree_rows


def list_family(connection: apsw.Connection, session_id: str) -> list[TreeRow]:
    """Return the whole fork tree of a session, oldest first. Other sessions that are archived are left
    out."""
    kin = connection.execute(
        "WITH RECURSIVE above (id) AS (SELECT id FROM sessions WHERE id = ? UNION SELECT f.origin FROM above"
        " JOIN sessions s ON s.id = above.id JOIN forks f ON f.session = s.key),"
        " kin (id) AS (SELECT id FROM above UNION SELECT s.id FROM kin JOIN forks f ON f.origin = kin.id"
        " JOIN sessions s ON s.key = f.session)"
        " SELECT s.id FROM kin CROSS JOIN sessions s"  # CROSS: SQLite then does not begin with all sessions
        " WHERE s.id = kin.id AND (s.archived = '' OR s.id = ?) ORDER BY s.key",
        (session_id, session_id),
    ).fetchall()
    return order_as_trees(connection, [sessions.get(connection, row[0]) for row in kin])


def _read_origins(connection: apsw.Connection, session_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the origin and the last common turn of each session that is a fork, by id."""
    origins: dict[str, tuple[str, int]] = {}
    for start in range(0, len(session_ids), _IDS_PER_QUERY):
        ids = session_ids[start : start + _IDS_PER_QUERY]
        cursor = connection.execute(
            "SELECT s.id, f.origin, f.turn FROM sessions s JOIN forks f ON f.session = s.key"
            f" WHERE s.id IN ({', '.join('?' * len(ids))})",
            tuple(ids),
        )
        origins |= {row[0]: (row[1], row[2]) for row in cursor}
    return origins


def _last_turn(connection: apsw.Connection, key: int, turn: int) -> int:
    where = "session = ? AND ended <> '' AND undone = ''"
    if turn:
        cursor = connection.execute(f"SELECT number FROM turns WHERE {where} AND number = ?", (key, turn))
    else:
        cursor = connection.execute(f"SELECT max(number) FROM turns WHERE {where}", (key,))
    row = cursor.fetchone()
    if row is None or row[0] is None:
        reason = (
            f"there is no turn {turn} that has ended" if turn else "no turn has ended in this session yet"
        )
        raise NotFound(reason, hint="/rewind lists the turns")
    return int(row[0])


def _copy_prefix(connection: apsw.Connection, key: int, new: int, last: int) -> None:
    """Copy the original's prefix byte for byte, and set the copy's own counts."""
    connection.execute(
        "UPDATE sessions SET (system_text, tools_text, prime_text, model_chosen) ="
        " (SELECT system_text, tools_text, prime_text, model_chosen FROM sessions WHERE key = ?),"
        " turns = ?, judged_turn = ?, dirty = 1,"
        " messages = (SELECT count(*) FROM messages WHERE id > ? AND id < ?),"
        " tool_calls = (SELECT count(*) FROM tool_calls WHERE session = ?) WHERE key = ?",
        (key, last, last, *rows.ids_of(new), new, new),
    )
