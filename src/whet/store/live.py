"""A session's live list, read from its rows: what the model sees, after compactions and undone turns.

Also what is needed to go on from there: the next number, and the calls of the last step with the results
that they have. Reading only; `transcript.py` keeps the state up to date afterwards.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.messages import Message, ToolCall, Usage
from whet.store import rows, sessions
from whet.store.sessions import SessionRow


class OpenStep(msgspec.Struct):
    """The last answer that asked for tools: where its results go, and which are there.

    `seq` is the answer's number; the result of call i has number seq + 1 + i. `base` is the index in the
    live list after the answer.
    """

    seq: int
    number: int
    base: int
    calls: tuple[ToolCall, ...]
    started: set[int] = msgspec.field(default_factory=set[int])
    results: dict[int, Message] = msgspec.field(default_factory=dict[int, Message])


class OpenTurn(msgspec.Struct):
    """A turn without an end marker, with what its stored rows sum up to."""

    id: str
    number: int
    started: str
    steps: int = 0
    messages: int = 0
    tool_calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)


class LiveState(msgspec.Struct):
    """Everything that an open session log holds in memory. `seqs[i]` is the number of `messages[i]`, 0 for
    a message that only a compaction made."""

    session: SessionRow
    key: int
    epoch: int
    messages: list[Message]
    seqs: list[int]
    next_seq: int
    last_turn: int
    step: OpenStep | None
    open_turn: OpenTurn | None


_Live = list[int | Message]
_live_decoder = msgspec.json.Decoder(_Live)


def encode_live(live: _Live) -> str:
    """Write a live list: a number stands for the stored message with that number."""
    return msgspec.json.encode(live).decode()


def load(connection: apsw.Connection, session_id: str, known: dict[int, Message] | None = None) -> LiveState:
    """Read a session. Messages in `known` (by number) are kept as the same objects. Raises NotFound."""
    session = sessions.get(connection, session_id)
    key = sessions.key_of(connection, session_id)
    epoch = _one(connection, "SELECT epoch FROM sessions WHERE key = ?", key)
    undone = _undone_turns(connection, key)
    messages, seqs, after = _compacted(connection, key, undone, known or {})
    unfinished = open_turn(connection, key)
    step: OpenStep | None = None
    next_seq = after + 1
    for id_, turn, role, content, extra in connection.execute(
        "SELECT id, turn, role, content, extra FROM messages WHERE id > ? AND id < ? ORDER BY id",
        (key << rows.SEQ_BITS | after, (key + 1) << rows.SEQ_BITS),
    ):
        seq = id_ & (rows.SEQ_LIMIT - 1)
        message = (known or {}).get(seq) or rows.unpack(role, content, extra)
        next_seq = max(next_seq, seq + 1 + len(message.tool_calls))
        if turn in undone:
            continue
        messages.append(message)
        seqs.append(seq)
        if role == rows.ASSISTANT:
            number = unfinished.steps if unfinished is not None else 0
            step = OpenStep(seq, number, len(messages), message.tool_calls) if message.tool_calls else None
        elif role == rows.USER:
            step = None
        elif step is not None:
            step.results[seq - step.seq - 1] = message
    if step is not None:
        _read_starts(connection, key, step)
    newest = _one(connection, "SELECT coalesce(max(number), 0) FROM turns WHERE session = ?", key)
    return LiveState(session, key, epoch, messages, seqs, next_seq, newest, step, unfinished)


def last_turn(connection: apsw.Connection, key: int) -> int:
    """Give the number of the newest turn that has ended and was not undone; 0 without one."""
    return _one(
        connection,
        "SELECT coalesce(max(number), 0) FROM turns WHERE session = ? AND ended <> '' AND undone = ''",
        key,
    )


def view_after(connection: apsw.Connection, key: int, turn: int) -> str:
    """Give the list of the last request of `turn` and what came after it in that turn, as `encode_live` does.

    A compaction made by hand afterwards is not in it: no request has shown that list yet.
    """
    undone, last = _undone_turns(connection, key), 0
    first, end = key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS
    said: list[tuple[int, int]] = []
    for id_, number, role in connection.execute(
        "SELECT id, turn, role FROM messages WHERE id > ? AND id < ? AND turn <= ? ORDER BY id",
        (first, end, turn),
    ):
        if number not in undone:
            said.append((id_ & (rows.SEQ_LIMIT - 1), role))
            last = said[-1][0] if role == rows.ASSISTANT else last
    found = connection.execute(
        "SELECT live, after_seq FROM compactions WHERE session = ? AND undone = '' AND after_seq < ?"
        " ORDER BY id DESC LIMIT 1",
        (key, last),
    ).fetchone()
    kept, after = (_live_decoder.decode(found[0]), found[1]) if found else (list[int | Message](), 0)
    return encode_live([*kept, *(seq for seq, _ in said if seq > after)])


def read_view(connection: apsw.Connection, key: int, text: str) -> list[Message]:
    """Give the messages of a list that `view_after` has written."""
    return _read(connection, key, text, set(), {})[0]


def _compacted(
    connection: apsw.Connection, key: int, undone: set[int], known: dict[int, Message]
) -> tuple[list[Message], list[int], int]:
    """Give the list that the last compaction left, the numbers in it, and the number it covers."""
    row = connection.execute(
        "SELECT live, after_seq FROM compactions WHERE session = ? AND undone = '' ORDER BY id DESC LIMIT 1",
        (key,),
    ).fetchone()
    return ([], [], 0) if row is None else (*_read(connection, key, row[0], undone, known), row[1])


def _read(
    connection: apsw.Connection, key: int, text: str, undone: set[int], known: dict[int, Message]
) -> tuple[list[Message], list[int]]:
    messages: list[Message] = []
    seqs: list[int] = []
    for item in _live_decoder.decode(text):
        if isinstance(item, Message):
            messages.append(item)
            seqs.append(0)
            continue
        stored = connection.execute(
            "SELECT turn, role, content, extra FROM messages WHERE id = ?", (rows.row_id(key, item),)
        ).fetchone()
        if stored is not None and stored[0] not in undone:
            messages.append(known.get(item) or rows.unpack(*stored[1:]))
            seqs.append(item)
    return messages, seqs


def open_turn(connection: apsw.Connection, key: int) -> OpenTurn | None:
    """Give the turn that has no end marker, with its sums so far; None without one."""
    row = connection.execute(
        "SELECT id, number, started, ended FROM turns WHERE session = ? ORDER BY number DESC LIMIT 1", (key,)
    ).fetchone()
    if row is None or row[3]:
        return None
    turn = OpenTurn(*row[:3])
    for role, content, extra in connection.execute(
        "SELECT role, content, extra FROM messages WHERE id > ? AND id < ? AND turn = ?",
        (key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS, turn.number),
    ):
        message, usage = rows.unpack_with_usage(role, content, extra)
        turn.messages += 1
        turn.tool_calls += len(message.tool_calls)
        turn.steps += role == rows.ASSISTANT
        turn.usage += usage or Usage()
    return turn


def _undone_turns(connection: apsw.Connection, key: int) -> set[int]:
    found = connection.execute("SELECT number FROM turns WHERE session = ? AND undone <> ''", (key,))
    return {row[0] for row in found}


def _read_starts(connection: apsw.Connection, key: int, step: OpenStep) -> None:
    found = connection.execute(
        "SELECT position FROM tool_calls WHERE session = ? AND seq > ? AND seq <= ? AND started IS NOT NULL",
        (key, step.seq, step.seq + len(step.calls)),
    )
    step.started.update(row[0] for row in found)


def _one(connection: apsw.Connection, sql: str, key: int) -> int:
    row = connection.execute(sql, (key,)).fetchone()
    return row[0] if row else 0
