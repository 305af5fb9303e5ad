"""Write messages as rows of `messages`, and read them back unchanged.

Plain text is in `content`, and all other fields of a message are one compact JSON object in `extra`. A
message's id is made of its session's key and its number in the session. No function here begins a
transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from whet.contract.errors import NotFound, StoreError
from whet.contract.messages import Message, Part, Role, TextOrigin, TextPart, ToolCall, Usage, VendorReplay
from whet.contract.texts import clean, from_values, map_texts, replace_surrogates, shared_decoder
from whet.sqlite.lane import RowStatement

SEQ_BITS = 22
SEQ_LIMIT = 1 << SEQ_BITS
ROLES: tuple[Role, ...] = ("user", "assistant", "tool")
USER, ASSISTANT, TOOL = range(3)
_NUMBER: dict[Role, int] = {role: number for number, role in enumerate(ROLES)}
USAGE_COLUMNS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "estimated_tokens",
)


def is_team(connection: apsw.Connection) -> bool:
    """Return whether a connection is a team's, which has leases of sessions and another search index."""
    return not isinstance(connection, apsw.Connection)  # pyright: ignore[reportUnnecessaryIsInstance] the team's has the same calls


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a message besides plain text. Names have one letter to save space in millions of rows."""

    c: tuple[ToolCall, ...] = ()
    """tool_calls"""
    i: str = ""
    """tool_call_id"""
    n: str = ""
    """tool_name"""
    e: bool = False
    """is_error"""
    r: str = ""
    """reasoning"""
    p: VendorReplay | None = None
    """replay"""
    x: tuple[Part, ...] = ()
    """content of several parts"""
    u: tuple[int, int, int, int, int, int, int, int, float | None] | None = None
    """usage of the model call that gave this message, in the order of USAGE_COLUMNS but the last"""
    o: int = 0
    """estimated_tokens of that usage"""
    m: str = ""
    """model that produced this message"""
    w: str = ""
    """note, which follows the person's text in the request"""
    k: bool = False
    """cache_until"""
    a: TextOrigin = ""
    """origin; messages of earlier versions have `t`, and their origin is unknown"""


_NOTHING = Extra()
_encoder = msgspec.json.Encoder()
_decoder = shared_decoder(Extra)


MESSAGE = RowStatement(
    "INSERT INTO messages (id, turn, role, at, content, extra) VALUES (?, ?, ?, ?, ?, ?)",
    conflict="another process has continued this session",
    hint="open the session again to go on",
)
# An answer with calls and these calls are synced with the first call's start, or with its result.
CALLING = msgspec.structs.replace(MESSAGE, is_synced=False)
CALL = RowStatement(
    "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name) VALUES (?, ?, ?, ?, ?, ?, ?)",
    conflict=MESSAGE.conflict,
    hint=MESSAGE.hint,
    is_synced=False,
)
# The start of a call checks the claim in the same statement: if another process holds the session or has
# started the call, `decided_by` would become NULL, which its column refuses.
CALL_STARTED = RowStatement(
    "UPDATE tool_calls SET started = ?1, decided_by = CASE WHEN (started IS NULL OR ?6)"
    " AND EXISTS (SELECT 1 FROM claims WHERE session = ?3 AND token = ?5) THEN ?2 END"
    " WHERE session = ?3 AND seq = ?4",
    conflict="another process has taken over this session",
    hint="open the session again to see what it did",
)
CALL_DONE = RowStatement(
    "UPDATE tool_calls SET started = ?, decided_by = ?, finished = ?, duration_s = ?, error_kind = ?,"
    " exit_code = ?, facts = ? WHERE session = ? AND seq = ?"
)
CALL_FINISHED = RowStatement(
    "UPDATE tool_calls SET finished = ?, duration_s = ?, error_kind = ?, exit_code = ?, facts = ?"
    " WHERE session = ? AND seq = ?"
)
Packed = tuple[int, int, str, str | None]


ReadRow = Callable[[], tuple[Any, ...]]
"""A function that reads the first row of a query."""


def fetch_only(cursor: apsw.Cursor) -> tuple[Any, ...] | None:
    """Return the row of a query that has at most one, or None, and end the query.

    A query left open, for example by the traceback of an error, would keep its connection at the state it
    read.
    """
    records = cursor.fetchall()
    return records[0] if records else None


def row_reader(cursor: apsw.Cursor, missing: str, hint: str) -> ReadRow:
    """Return the function that reads the first row of a query, and raises NotFound if there is none."""

    def read() -> tuple[Any, ...]:
        row = fetch_only(cursor)
        if row is None:
            raise NotFound(missing, hint=hint)
        return row

    return read


def row_id(key: int, seq: int) -> int:
    """Return the id of message `seq` of the session with this key. Raises StoreError if the session is
    full."""
    if seq >= SEQ_LIMIT:
        raise StoreError("this session has reached its largest size", hint="start a new one with /new")
    return key << SEQ_BITS | seq


def ids_of(key: int) -> tuple[int, int]:
    """Return the bounds, both exclusive, of the message ids of the session with this key."""
    return key << SEQ_BITS, (key + 1) << SEQ_BITS


def number(connection: apsw.Connection, sql: str, *values: Any) -> int:
    """Return the number of a query that always returns one, such as a count."""
    return next(connection.execute(sql, values))[0]


def read_value(connection: apsw.Connection, sql: str, *values: Any) -> Any:
    """Return the first column of a query's first row, or None if there is no row."""
    row = connection.execute(sql, values).fetchone()
    return row[0] if row else None


def insert_message(connection: apsw.Connection, key: int, seq: int, turn: int, values: Packed) -> None:
    """Store a message that `pack` has encoded. Raises StoreBusy if another process wrote that number."""
    row = (row_id(key, seq), turn, *values)
    if is_team(connection):
        connection.execute("SELECT whet_add_message(?, ?, ?, ?, ?, ?)", row)
    else:
        MESSAGE.write(connection, [row])


def pack(message: Message, at_ms: int, usage: Usage | None = None, model: str = "") -> Packed:
    """Return (role, at, content, extra) of a message."""
    content = message.content
    plain = isinstance(content, str)
    if message.role == "user" and plain and not (message.note or message.cache_until or message.origin):
        return USER, at_ms, content, None
    extra = Extra(
        c=message.tool_calls,
        i=message.tool_call_id,
        n=message.tool_name,
        e=message.is_error,
        r=message.reasoning,
        p=message.replay,
        x=() if plain else content,
        u=None if usage is None else msgspec.structs.astuple(usage)[:-1],
        o=0 if usage is None else usage.estimated_tokens,
        m=model,
        w=message.note,
        k=message.cache_until,
        a=message.origin,
    )
    text = None if extra == _NOTHING else _encoder.encode(extra).decode()
    return _NUMBER[message.role], at_ms, content if plain else "", text


def unpack(role: int, content: str, extra: str | None) -> Message:
    """Return the message of a row."""
    return unpack_with_usage(role, content, extra)[0]


def unpack_with_usage(role: int, content: str, extra: str | None) -> tuple[Message, Usage | None]:
    """Return the message of a row and, for an answer, the usage of its model call."""
    if extra is None:
        return Message(role=ROLES[role], content=content), None
    more = _decoder.decode(extra)
    message = Message(
        role=ROLES[role],
        content=more.x or content,
        tool_calls=more.c,
        tool_call_id=more.i,
        tool_name=more.n,
        is_error=more.e,
        reasoning=more.r,
        replay=more.p,
        note=more.w,
        cache_until=more.k,
        origin=more.a,
    )
    return message, None if more.u is None else Usage(*more.u, more.o)


def to_storable(message: Message) -> Message:
    """Return the message, or a copy of it that can be encoded and that every server accepts.

    A user's and a tool's text has no terminal escapes and control characters. In any message, lone surrogates
    become �.
    """
    if message.role in ("user", "tool"):
        message = _remove_controls(message)
    content = message.content
    if message.role == "user" and isinstance(content, str) and content.isascii() and message.note.isascii():
        return message
    try:
        _encoder.encode(message)
    except UnicodeEncodeError:
        return from_values(map_texts(msgspec.to_builtins(message), replace_surrogates), Message)
    return message


def _remove_controls(message: Message) -> Message:
    content = message.content
    if isinstance(content, str):
        cleaned = clean(content)
        return message if cleaned is content else msgspec.structs.replace(message, content=cleaned)
    parts = tuple(TextPart(clean(part.text)) if isinstance(part, TextPart) else part for part in content)
    return message if parts == content else msgspec.structs.replace(message, content=parts)
