"""Sessions that begin where another one was: a copy of its turns up to one, under the same prefix.

Both stay; neither changes the other. What the copied turns cost is the original's, so that nothing is
counted twice.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.store import rows, sessions
from whet.store.sessions import NewSession, SessionRow

_COPIED = ("tool_calls", "compactions")
_OWN = {"id", "session", "outcome", "outcome_reason"}


class ForkPlace(msgspec.Struct, frozen=True):
    """Where a session begins: the session that it goes on from, and the last turn that both have."""

    origin: str
    turn: int


def fork(connection: apsw.Connection, session_id: str, turn: int, new_id: str, now: str) -> SessionRow:
    """Make a session of another one's turns up to `turn` (0: all that have ended). Raises NotFound."""
    key, old = sessions.key_of(connection, session_id), sessions.get(connection, session_id)
    last = _last_turn(connection, key, turn)
    title = f"{old.title} (from turn {last})" if old.title else ""
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
        " SELECT (? << ?) | (id & ?), turn, role, at, content, extra FROM messages"
        " WHERE id > ? AND id < ? AND turn <= ? ORDER BY id",
        (new, rows.SEQ_BITS, rows.SEQ_LIMIT - 1, key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS, last),
    )
    connection.execute(
        "INSERT INTO turns (session, number, id, started, ended, reason, error, steps, undone)"
        " SELECT ?, number, lower(hex(randomblob(10))), started, ended, reason, error, steps, undone"
        " FROM turns WHERE session = ? AND number <= ?",
        (new, key, last),
    )
    for table in _COPIED:
        _copy(connection, table, (key, new, last))
    _adopt(connection, key, new, last)
    connection.execute("INSERT INTO forks (session, origin, turn) VALUES (?, ?, ?)", (new, session_id, last))
    return sessions.get(connection, new_id)


def place_of(connection: apsw.Connection, session_id: str) -> ForkPlace | None:
    """Give where a session begins; None for one that begins by itself. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute("SELECT origin, turn FROM forks WHERE session = ?", (key,)).fetchone()
    return ForkPlace(*row) if row else None


def _last_turn(connection: apsw.Connection, key: int, turn: int) -> int:
    where = "session = ? AND ended <> '' AND undone = ''"
    if turn:
        found = connection.execute(f"SELECT number FROM turns WHERE {where} AND number = ?", (key, turn))
    else:
        found = connection.execute(f"SELECT max(number) FROM turns WHERE {where}", (key,))
    row = found.fetchone()
    if row is None or row[0] is None:
        what = f"there is no turn {turn} that has ended" if turn else "no turn has ended in this session yet"
        raise NotFound(what, hint="/rewind lists the turns")
    return int(row[0])


def _copy(connection: apsw.Connection, table: str, keys: tuple[int, int, int]) -> None:
    """Copy a table's rows of some turns, without what was judged of them."""
    key, new, last = keys
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in _OWN]
    listed = ", ".join(names)
    connection.execute(
        f"INSERT INTO {table} (session, {listed}) SELECT ?, {listed} FROM {table}"
        " WHERE session = ? AND turn <= ?",
        (new, key, last),
    )


def _adopt(connection: apsw.Connection, key: int, new: int, last: int) -> None:
    """Give the copy the prefix of the original, byte for byte, and its own counts."""
    connection.execute(
        "UPDATE sessions SET (system_text, tools_text, prime_text, model_chosen) ="
        " (SELECT system_text, tools_text, prime_text, model_chosen FROM sessions WHERE key = ?),"
        " turns = ?, judged_turn = ?, dirty = 1,"
        " messages = (SELECT count(*) FROM messages WHERE id > ? AND id < ?),"
        " tool_calls = (SELECT count(*) FROM tool_calls WHERE session = ?) WHERE key = ?",
        (key, last, last, new << rows.SEQ_BITS, (new + 1) << rows.SEQ_BITS, new, new),
    )
