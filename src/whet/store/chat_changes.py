"""Apply edits, deletions and reactions that people make on chat platforms to the stored messages.

Every function takes a connection inside a transaction. Only the gateway knows the format of a body.
"""

from __future__ import annotations

import apsw

from whet.contract.channels import ChatPlace
from whet.store import chats, rows
from whet.store.chats import ChatRecord

_MAX_REACTIONS = 20
_MAX_SEARCHED = 5_000  # an edited message is searched among this many newest ones
# The condition of the index on open rows; a query without it reads every stored row.
_OPEN = "state IN ('waiting', 'begun')"
_WAITING_REACTION = f"{_OPEN} AND state = 'waiting' AND json_extract(body, '$.verb') = 'reaction'"


def read_waiting_body(connection: apsw.Connection, row_id: int) -> str:
    """Return the current body of a waiting update, or an empty string if it was dropped or a turn took it."""
    sql = "SELECT body FROM gateway_inbox WHERE id = ? AND state = 'waiting'"
    return rows.read_value(connection, sql, row_id) or ""


def replace_waiting_update(connection: apsw.Connection, chat_id: int, ref: str, body: str) -> bool:
    """Change the body of a waiting update, or drop it if `body` is empty. Return False if it no longer
    waits."""
    row = connection.execute(
        f"SELECT id FROM gateway_inbox WHERE chat = ? AND {_OPEN} AND state = 'waiting'"
        " AND json_extract(body, '$.ref') = ? AND coalesce(json_extract(body, '$.verb'), '') <> 'edit'"
        " ORDER BY id DESC LIMIT 1",
        (chat_id, ref),
    ).fetchone()
    if row is None:
        return False
    if body:
        chats.replace_body(connection, row[0], body)
    else:
        chats.set_update_state(connection, row[0], "dropped")
    return True


def read_begun_update(connection: apsw.Connection, chat_id: int, ref: str) -> str:
    """Return the body of the update with the message `ref` that the running turn works on, or an empty
    string."""
    sql = (
        f"SELECT body FROM gateway_inbox WHERE chat = ? AND {_OPEN} AND state = 'begun'"
        " AND (json_extract(body, '$.ref') = ? OR EXISTS"
        " (SELECT 1 FROM json_each(json_extract(body, '$.joined')) WHERE value = ?))"
        " ORDER BY id DESC LIMIT 1"
    )
    return rows.read_value(connection, sql, chat_id, ref, ref) or ""


def read_latest_update(connection: apsw.Connection, chat_id: int, ref: str) -> str:
    """Return the latest body of the message `ref`, answered or not, or an empty string if it is not among the
    newest updates."""
    sql = (
        "SELECT body FROM gateway_inbox WHERE id > (SELECT max(id) FROM gateway_inbox) - ? AND chat = ?"
        " AND json_extract(body, '$.ref') = ? ORDER BY id DESC LIMIT 1"
    )
    return rows.read_value(connection, sql, _MAX_SEARCHED, chat_id, ref) or ""


def add_reaction(
    connection: apsw.Connection, location: ChatPlace, update_id: str, body: str, now_ms: int
) -> None:
    """Add a reaction to the inbox, where it waits for the next message. Only the newest `_MAX_REACTIONS` of a
    chat wait."""
    row_id = chats.add_update(connection, location, update_id, body, now_ms)
    if row_id is None:
        return
    chat_id = chats.get_or_create_chat(connection, location).id
    connection.execute(
        "UPDATE gateway_inbox SET state = 'dropped' WHERE id IN (SELECT id FROM gateway_inbox"
        f" WHERE chat = ? AND {_WAITING_REACTION} ORDER BY id DESC LIMIT -1 OFFSET {_MAX_REACTIONS})",
        (chat_id,),
    )


def drop_reaction(connection: apsw.Connection, chat_id: int, ref: str, emoji: str) -> None:
    """Drop a waiting reaction that was taken back."""
    connection.execute(
        f"UPDATE gateway_inbox SET state = 'dropped' WHERE chat = ? AND {_WAITING_REACTION}"
        " AND json_extract(body, '$.ref') = ? AND json_extract(body, '$.text') = ?",
        (chat_id, ref, emoji),
    )


def find_sent(connection: apsw.Connection, location: ChatPlace, ref: str) -> tuple[ChatRecord, str] | None:
    """Return the conversation to which the message `ref` was sent, and the message's body.

    All threads of the person's chat are searched. None if the message is not among the newest.
    """
    row = connection.execute(
        "SELECT o.chat, o.body FROM gateway_outbox o JOIN gateway_chats c ON c.id = o.chat"
        " WHERE o.id > (SELECT max(id) FROM gateway_outbox) - ? AND o.ref = ?"
        " AND c.channel = ? AND c.chat = ? AND c.user = ? ORDER BY o.id DESC LIMIT 1",
        (_MAX_SEARCHED, ref, location.channel, location.chat, location.user),
    ).fetchone()
    return (chats.get_chat(connection, row[0]), row[1]) if row else None
