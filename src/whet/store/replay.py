"""Read a session's whole transcript for people: each message with its time, its turn and its call's outcome.

It includes messages that a compaction has replaced, and undone turns, which are marked.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.messages import Message, Usage
from whet.contract.receipts import CallEffects, FileLines
from whet.contract.texts import shared_decoder
from whet.store import rows, sessions

_usage = shared_decoder(Usage)
_facts = shared_decoder(CallEffects)


class CallFacts(msgspec.Struct, frozen=True):
    """How a call went. `error_kind` is empty on success, `facts` is the JSON of its effects."""

    name: str
    error_kind: str
    exit_code: int | None
    duration_s: float | None
    decided_by: str
    facts: str = ""

    @property
    def own_edits(self) -> tuple[FileLines, ...]:
        """The files that its own edits changed."""
        return _facts.decode(self.facts).edits if self.facts else ()

    @property
    def edits(self) -> tuple[FileLines, ...]:
        """The files that it changed by its own edits or a command."""
        if not self.facts:
            return ()
        effects = _facts.decode(self.facts)
        return (*effects.edits, *effects.touched)


class ReplayEntry(msgspec.Struct, frozen=True):
    """One message. A tool's result has a `call`, an answer its `usage`."""

    seq: int
    turn: int
    at_ms: int
    message: Message
    usage: Usage | None
    call: CallFacts | None


class ReplayedTurn(msgspec.Struct, frozen=True):
    """One turn: its times, why it ended, and its usage."""

    number: int
    started: str
    ended: str
    reason: str
    error: str
    steps: int
    usage: Usage
    is_undone: bool


def list_entries(connection: apsw.Connection, session_id: str, first: int, limit: int) -> list[ReplayEntry]:
    """Return the messages from number `first` on, ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    cursor = connection.execute(
        "SELECT m.id, m.turn, m.role, m.at, m.content, m.extra,"
        " c.name, c.error_kind, c.exit_code, c.duration_s, c.decided_by, c.facts FROM messages m"
        " LEFT JOIN tool_calls c ON c.session = ? AND c.seq = m.id & ? AND m.role = ?"
        " WHERE m.id >= ? AND m.id < ? ORDER BY m.id LIMIT ?",
        (
            key,
            rows.SEQ_LIMIT - 1,
            rows.TOOL,
            rows.row_id(key, max(1, min(first, rows.SEQ_LIMIT - 1))),
            rows.ids_of(key)[1],
            limit,
        ),
    )
    result: list[ReplayEntry] = []
    for id_, turn, role, at_ms, content, extra, *call in cursor:
        message, usage = rows.unpack_with_usage(role, content, extra)
        facts = CallFacts(*call) if call[0] is not None else None
        result.append(ReplayEntry(id_ & (rows.SEQ_LIMIT - 1), turn, at_ms, message, usage, facts))
    return result


def list_last_turn(
    connection: apsw.Connection, session_id: str
) -> tuple[list[ReplayEntry], ReplayedTurn | None]:
    """Return the messages of the newest turn that was not undone, and the turn. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    number = rows.number(
        connection, "SELECT coalesce(max(number), 0) FROM turns WHERE session = ? AND undone = ''", key
    )
    turn = list_turns(connection, session_id, number, number).get(number)
    low, high = rows.ids_of(key)
    before = "SELECT coalesce(max(id), 0) FROM messages WHERE id > ? AND id < ? AND turn < ?"
    first = (rows.number(connection, before, low, high, number) & (rows.SEQ_LIMIT - 1)) + 1
    entries = list_entries(connection, session_id, first, rows.SEQ_LIMIT) if turn else []
    return [entry for entry in entries if entry.turn == number], turn


def list_turns(
    connection: apsw.Connection, session_id: str, first: int, last: int
) -> dict[int, ReplayedTurn]:
    """Return the turns numbered first to last. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    cursor = connection.execute(
        "SELECT number, started, ended, reason, error, steps, usage, undone FROM turns"
        " WHERE session = ? AND number >= ? AND number <= ?",
        (key, first, last),
    )
    return {
        row[0]: ReplayedTurn(*row, usage=_usage.decode(usage) if usage else Usage(), is_undone=bool(undone))
        for *row, usage, undone in cursor
    }


def read_last_turn(connection: apsw.Connection, session_id: str) -> ReplayedTurn | None:
    """Return a session's newest turn, or None. A turn without `ended` is running or was cut off."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute("SELECT max(number) FROM turns WHERE session = ?", (key,)).fetchone()
    return list_turns(connection, session_id, row[0], row[0]).get(row[0]) if row and row[0] else None


def read_last_seq(connection: apsw.Connection, session_id: str) -> int:
    """Return the number of the last message, or 0. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    last = "SELECT coalesce(max(id), 0) FROM messages WHERE id > ? AND id < ?"
    return rows.number(connection, last, *rows.ids_of(key)) & (rows.SEQ_LIMIT - 1)
