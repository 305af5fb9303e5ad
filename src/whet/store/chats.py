"""Store the gateway's conversations with people on chat platforms, and the updates and answers between them.

An update is stored in the inbox before the platform gets its acknowledgement. An answer is stored in the
outbox in the transaction that ends its turn. Every function takes a connection inside a transaction. Only
the gateway knows the format of a body.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import apsw
import msgspec

from whet.contract.channels import ChatPlace
from whet.store import rows

InState: TypeAlias = Literal["waiting", "begun", "done", "dropped"]
OutState: TypeAlias = Literal["queued", "sending", "sent", "unknown", "failed"]
SENDING = "?"
"""A draft whose id is not known yet."""
REPLACED = "sent again, or dropped"
"""The error of a message that was sent again or dropped because the platform never confirmed it."""


class ChatRecord(msgspec.Struct, frozen=True):
    """A person's conversation in a chat. `draft` is the id of the message that shows the running answer."""

    id: int
    place: ChatPlace
    session_id: str
    draft: str


class InRow(msgspec.Struct, frozen=True):
    """An update in the inbox."""

    id: int
    chat: int
    body: str
    state: InState


class OutRow(msgspec.Struct, frozen=True):
    """A message in the outbox."""

    id: int
    channel: str
    chat: int
    body: str
    state: OutState
    attempts: int
    run_after_ms: int
    at_ms: int


_CHAT = "id, channel, chat, thread, user, is_group, session_id, draft"
_OUT_COLUMNS = "id, channel, chat, body, state, attempts, run_after_ms, at_ms"
# Repeats the conditions of the indexes on open rows; without them a query reads every stored row.
_IN_OPEN = "state IN ('waiting', 'begun')"
_OUT_OPEN = "state IN ('queued', 'sending')"


def get_or_create_chat(connection: apsw.Connection, location: ChatPlace) -> ChatRecord:
    """Return the conversation of a chat, creating it if needed."""
    where = (location.channel, location.chat, location.thread, location.user)
    chat = _find_chat(connection, "channel = ? AND chat = ? AND thread = ? AND user = ?", *where)
    if chat is not None:
        return chat
    connection.execute(
        "INSERT INTO gateway_chats (channel, chat, thread, user, is_group) VALUES (?, ?, ?, ?, ?)",
        (*where, int(location.is_group)),
    )
    return ChatRecord(connection.last_insert_rowid(), location, "", "")


def get_chat(connection: apsw.Connection, chat_id: int) -> ChatRecord:
    """Return a conversation by its number, which must exist."""
    chat = _find_chat(connection, "id = ?", chat_id)
    assert chat is not None  # chats are never deleted
    return chat


def find_chat_of_session(connection: apsw.Connection, session_id: str) -> ChatRecord | None:
    """Return the conversation that a session belongs to now, or None."""
    return _find_chat(connection, "session_id = ? LIMIT 1", session_id)


def find_platform_chat(connection: apsw.Connection, channel: str, name: str) -> ChatRecord | None:
    """Return the conversation of a platform's chat, or None. Of several threads, the main one."""
    return _find_chat(connection, "channel = ? AND chat = ? ORDER BY thread, id LIMIT 1", channel, name)


def find_user_chat(
    connection: apsw.Connection, channel: str, user: str, group: str = ""
) -> ChatRecord | None:
    """Return a person's newest conversation in a group or, without `group`, their newest direct one."""
    where = "channel = ? AND user = ? AND is_group = ? AND (chat = ? OR NOT is_group)"
    return _find_chat(connection, f"{where} ORDER BY id DESC LIMIT 1", channel, user, int(bool(group)), group)


def set_session(connection: apsw.Connection, chat_id: int, session_id: str) -> None:
    """Continue a conversation in this session."""
    connection.execute("UPDATE gateway_chats SET session_id = ? WHERE id = ?", (session_id, chat_id))


def set_draft(connection: apsw.Connection, chat_id: int, ref: str) -> None:
    """Store the id of the message that shows the running answer. SENDING: not known yet; "": there is
    none."""
    connection.execute("UPDATE gateway_chats SET draft = ? WHERE id = ?", (ref, chat_id))


def add_update(
    connection: apsw.Connection, location: ChatPlace, update_id: str, body: str, now_ms: int
) -> int | None:
    """Add an update to the inbox and return its number, or None if it was added before."""
    chat_id = get_or_create_chat(connection, location).id
    connection.execute(
        "INSERT OR IGNORE INTO gateway_inbox (channel, update_id, chat, body, at_ms) VALUES (?, ?, ?, ?, ?)",
        (location.channel, update_id, chat_id, body, now_ms),
    )
    return connection.last_insert_rowid() if connection.changes() else None


def is_received(connection: apsw.Connection, channel: str, update_id: str) -> bool:
    """Return whether an update is or was in the inbox."""
    sql = "SELECT 1 FROM gateway_inbox WHERE channel = ? AND update_id = ?"
    return rows.read_value(connection, sql, channel, update_id) is not None


def list_waiting(connection: apsw.Connection, chat_id: int, limit: int = 20) -> list[InRow]:
    """Return a conversation's waiting updates, oldest first."""
    cursor = connection.execute(
        f"SELECT id, chat, body, state FROM gateway_inbox WHERE chat = ? AND {_IN_OPEN} AND state = 'waiting'"
        " ORDER BY id LIMIT ?",
        (chat_id, limit),
    )
    return [InRow(*row) for row in cursor]


def list_open_chats(connection: apsw.Connection, channels: Collection[str]) -> list[tuple[int, bool]]:
    """Return the conversations of these channels with open updates, and whether a turn was begun in each."""
    cursor = connection.execute(
        f"SELECT chat, max(state = 'begun'), max(channel) FROM gateway_inbox WHERE {_IN_OPEN}"
        " GROUP BY chat ORDER BY chat"
    )
    return [(chat_id, bool(begun)) for chat_id, begun, channel in cursor if channel in channels]


def has_begun_turn(connection: apsw.Connection, chat_id: int) -> bool:
    """Return whether a turn of a conversation was begun and has not ended."""
    sql = f"SELECT 1 FROM gateway_inbox WHERE chat = ? AND {_IN_OPEN} AND state = 'begun' LIMIT 1"
    return connection.execute(sql, (chat_id,)).fetchone() is not None


def set_update_state(connection: apsw.Connection, row_id: int, state: InState) -> None:
    """Set an update's state."""
    connection.execute("UPDATE gateway_inbox SET state = ? WHERE id = ?", (state, row_id))


def replace_body(connection: apsw.Connection, row_id: int, body: str) -> None:
    """Replace the body of an update in the inbox."""
    connection.execute("UPDATE gateway_inbox SET body = ? WHERE id = ?", (body, row_id))


def is_waiting(connection: apsw.Connection, row_id: int) -> bool:
    """Return whether no turn has taken an update yet."""
    sql = "SELECT 1 FROM gateway_inbox WHERE id = ? AND state = 'waiting'"
    return rows.read_value(connection, sql, row_id) is not None


def finish_taken_updates(connection: apsw.Connection, chat_id: int) -> bool:
    """Mark the updates that the ending turn had taken as done. Returns False if there were none."""
    connection.execute(
        f"UPDATE gateway_inbox SET state = 'done' WHERE chat = ? AND {_IN_OPEN} AND state = 'begun'",
        (chat_id,),
    )
    return connection.changes() > 0


def drop_waiting_updates(connection: apsw.Connection, chat_id: int, before: int) -> int:
    """Drop the waiting updates of a conversation that came before a row. Returns how many."""
    connection.execute(
        f"UPDATE gateway_inbox SET state = 'dropped' WHERE chat = ? AND {_IN_OPEN} AND state = 'waiting'"
        " AND id < ?",
        (chat_id, before),
    )
    return connection.changes()


def queue_messages(
    connection: apsw.Connection, chat_id: int, bodies: Sequence[str], now_ms: int
) -> list[int]:
    """Queue messages to a conversation, in this order, and return their numbers."""
    channel = get_chat(connection, chat_id).place.channel
    sql = "INSERT INTO gateway_outbox (channel, chat, body, at_ms) VALUES (?, ?, ?, ?) RETURNING id"
    rows = [connection.execute(sql, (channel, chat_id, body, now_ms)).fetchone() for body in bodies]
    return [int(row[0]) for row in rows if row is not None]


def has_arrived(connection: apsw.Connection, numbers: Sequence[int]) -> bool:
    """Return whether the platform has confirmed all of these messages. Deleted ones count as confirmed."""
    marks = ", ".join("?" * len(numbers))
    row = connection.execute(
        f"SELECT 1 FROM gateway_outbox WHERE id IN ({marks}) AND (state != 'sent' OR error = ?) LIMIT 1",
        (*numbers, REPLACED),
    ).fetchone()
    return row is None


def read_refs(connection: apsw.Connection, numbers: Sequence[int]) -> list[str]:
    """Return the platform's ids of these messages, without those that have none."""
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(f"SELECT ref FROM gateway_outbox WHERE id IN ({marks}) AND ref != ''", numbers)
    return [ref for (ref,) in rows]


def list_due(connection: apsw.Connection, channel: str, limit: int = 500) -> list[OutRow]:
    """Return a channel's first unsent message to each conversation that has one, oldest first.

    A later message never overtakes it, even while it waits for a retry.
    """
    first = f"SELECT min(id) FROM gateway_outbox WHERE channel = ? AND {_OUT_OPEN} GROUP BY chat"
    return _select_messages(
        connection, f"id IN ({first}) AND state = 'queued' ORDER BY id LIMIT ?", channel, limit
    )


def next_message(connection: apsw.Connection, channel: str, chat_id: int) -> OutRow | None:
    """Return the next message to a conversation, or None if one is being sent or none waits."""
    where = f"channel = ? AND chat = ? AND {_OUT_OPEN} ORDER BY id LIMIT 1"
    messages = _select_messages(connection, where, channel, chat_id)
    return messages[0] if messages and messages[0].state == "queued" else None


def has_unsent(connection: apsw.Connection, chat_id: int) -> bool:
    """Return whether a conversation has unsent messages."""
    channel = get_chat(connection, chat_id).place.channel
    sql = f"SELECT 1 FROM gateway_outbox WHERE channel = ? AND chat = ? AND {_OUT_OPEN} LIMIT 1"
    return rows.read_value(connection, sql, channel, chat_id) is not None


def begin_sending(connection: apsw.Connection, row_id: int, now_ms: int) -> None:
    """Record, before a message is sent, that an attempt begins at `now_ms`.

    After a crash, nobody knows whether a message in this state was sent.
    """
    connection.execute(
        "UPDATE gateway_outbox SET state = 'sending', attempts = attempts + 1, run_after_ms = ? WHERE id = ?",
        (now_ms, row_id),
    )


def end_sending(
    connection: apsw.Connection,
    row_id: int,
    state: OutState,
    *,
    ref: str = "",
    error: str = "",
    again_ms: int = 0,
) -> None:
    """Store the result of an attempt. `again_ms` is the time of the retry of a message queued again."""
    connection.execute(
        "UPDATE gateway_outbox SET state = ?, ref = ?, error = ?, run_after_ms = ? WHERE id = ?",
        (state, ref, error[:300], again_ms, row_id),
    )


def uncount_attempt(connection: apsw.Connection, row_id: int) -> None:
    """Take back the count of the last attempt, because the platform was not ready."""
    connection.execute("UPDATE gateway_outbox SET attempts = attempts - 1 WHERE id = ?", (row_id,))


def get_message(connection: apsw.Connection, row_id: int) -> OutRow:
    """Return a message of the outbox by its number, which must exist."""
    return _select_messages(connection, "id = ?", row_id)[0]  # only messages sent long ago are deleted


def list_messages(connection: apsw.Connection, states: Sequence[OutState], chat_id: int = 0) -> list[OutRow]:
    """Return the messages in these states, oldest first, of one conversation, or of all if `chat_id` is 0."""
    marks = ", ".join("?" * len(states))
    where = f"state IN ({marks}) AND (? = 0 OR chat = ?) ORDER BY id"
    return _select_messages(connection, where, *states, chat_id, chat_id)


def read_last_error(connection: apsw.Connection, row_id: int) -> str:
    """Return the last error of a message, or an empty string."""
    sql = "SELECT error FROM gateway_outbox WHERE id = ?"
    return rows.read_value(connection, sql, row_id) or ""


def replace_message_body(connection: apsw.Connection, row_id: int, body: str) -> None:
    """Replace the body of a message in the outbox."""
    connection.execute("UPDATE gateway_outbox SET body = ? WHERE id = ?", (body, row_id))


def list_unfinished_sends(connection: apsw.Connection, channel: str) -> list[OutRow]:
    """Return a channel's messages that were being sent when the process ended."""
    where = f"channel = ? AND {_OUT_OPEN} AND state = 'sending' ORDER BY id"
    return _select_messages(connection, where, channel)


def clear_unknown_drafts(connection: apsw.Connection, channel: str) -> int:
    """Clear drafts that were being sent when the process ended. Returns how many."""
    connection.execute(
        "UPDATE gateway_chats SET draft = '' WHERE channel = ? AND draft = ?", (channel, SENDING)
    )
    return connection.changes()


def read_position(connection: apsw.Connection, channel: str, name: str = "") -> str:
    """Return a channel's read position, or an empty string at the beginning."""
    sql = "SELECT value FROM gateway_cursors WHERE channel = ? AND name = ?"
    return rows.read_value(connection, sql, channel, name) or ""


def read_positions(connection: apsw.Connection, channel: str) -> dict[str, str]:
    """Return all positions that a channel keeps, by name."""
    return dict(
        connection.execute("SELECT name, value FROM gateway_cursors WHERE channel = ?", (channel,)).fetchall()
    )


def set_position(connection: apsw.Connection, channel: str, value: str, name: str = "") -> None:
    """Store a channel's read position."""
    connection.execute("INSERT OR REPLACE INTO gateway_cursors VALUES (?, ?, ?)", (channel, name, value))


class ChannelCounts(msgspec.Struct, frozen=True):
    """How many updates and messages are open on a channel, how many failed, and the last error."""

    channel: str
    chats: int = 0
    waiting: int = 0
    begun: int = 0
    queued: int = 0
    sending: int = 0
    sent: int = 0
    unknown: int = 0
    failed: int = 0
    last_error: str = ""


def count_channels(connection: apsw.Connection) -> list[ChannelCounts]:
    """Count each channel's conversations, updates and messages."""
    names = connection.execute(
        "SELECT channel FROM gateway_chats UNION SELECT channel FROM gateway_outbox ORDER BY channel"
    ).fetchall()
    return [_count_channel(connection, row[0]) for row in names]


def _count_channel(connection: apsw.Connection, channel: str) -> ChannelCounts:
    def number(sql: str, *values: str) -> int:
        return rows.number(connection, sql, channel, *values)

    inbox = "SELECT count(*) FROM gateway_inbox WHERE channel = ? AND state = ?"
    outbox = "SELECT count(*) FROM gateway_outbox WHERE channel = ? AND state = ?"
    last = connection.execute(
        "SELECT error FROM gateway_outbox WHERE channel = ? AND error <> '' ORDER BY id DESC LIMIT 1",
        (channel,),
    ).fetchone()
    return ChannelCounts(
        channel=channel,
        chats=number("SELECT count(*) FROM gateway_chats WHERE channel = ?"),
        waiting=number(inbox, "waiting"),
        begun=number(inbox, "begun"),
        queued=number(outbox, "queued"),
        sending=number(outbox, "sending"),
        sent=number(outbox, "sent"),
        unknown=number(outbox, "unknown"),
        failed=number(outbox, "failed"),
        last_error=last[0] if last else "",
    )


def prune(connection: apsw.Connection, before_ms: int, limit: int = 2_000) -> int:
    """Delete finished rows older than `before_ms` and return how many. Unknown and failed messages stay."""
    deleted = 0
    for table, state in (("gateway_inbox", "('done', 'dropped')"), ("gateway_outbox", "('sent')")):
        connection.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table}"
            f" WHERE state IN {state} AND at_ms < ? ORDER BY id LIMIT ?)",
            (before_ms, limit),
        )
        deleted += connection.changes()
    return deleted


def _select_messages(connection: apsw.Connection, where: str, *values: str | int) -> list[OutRow]:
    cursor = connection.execute(f"SELECT {_OUT_COLUMNS} FROM gateway_outbox WHERE {where}", values)
    return [OutRow(*row) for row in cursor]


def _find_chat(connection: apsw.Connection, where: str, *values: str | int) -> ChatRecord | None:
    row = connection.execute(f"SELECT {_CHAT} FROM gateway_chats WHERE {where}", values).fetchone()
    if row is None:
        return None
    id_, channel, chat, thread, user, is_group, session_id, draft = row
    return ChatRecord(id_, ChatPlace(channel, chat, thread, user, bool(is_group)), session_id, draft)
