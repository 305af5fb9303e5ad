"""Notify people of messages that may not have arrived, and resend them on request.

Such messages are not resent automatically, because that might post them twice. The notice may be repeated,
because its text is still true the second time.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.contract.channels import MessageButton, Outgoing
from whet.contract.texts import from_json
from whet.store import chats
from whet.store.chats import OutRow

SHOW = "missing:show"
"""The data of the button under a notice."""
NOTICE = "My last answer may be missing here. To see it: /missing"


def is_notice(message: Outgoing) -> bool:
    """Return whether a message is the notice that another one may be missing."""
    return any(button.data == SHOW for button in message.buttons)


def queue_notice(connection: apsw.Connection, chat_id: int, now_ms: int) -> None:
    """Notify a conversation that messages may be missing, once for all of them."""
    rows = chats.list_messages(connection, ("queued", "sending"), chat_id)
    if not any(is_notice(from_json(row.body, Outgoing)) for row in rows):
        notice = Outgoing(NOTICE, (MessageButton("Show", SHOW),))
        chats.queue_messages(connection, chat_id, [msgspec.json.encode(notice).decode()], now_ms)


def resend_missing(connection: apsw.Connection, chat_id: int, now_ms: int) -> int:
    """Resend the messages of a conversation that may be missing or have failed. Returns their number."""
    return resend(connection, chats.list_messages(connection, ("unknown", "failed"), chat_id), now_ms)


def resend(connection: apsw.Connection, rows: Sequence[OutRow], now_ms: int) -> int:
    """Queue messages again as new ones, and mark the old ones as sent. Returns their number."""
    for row in rows:
        message = from_json(row.body, Outgoing)
        if not is_notice(message):
            copy = msgspec.structs.replace(message, edits="", since_ms=0)
            chats.queue_messages(connection, row.chat, [msgspec.json.encode(copy).decode()], now_ms)
        chats.end_sending(connection, row.id, "sent", error=chats.REPLACED)
    return len(rows)
