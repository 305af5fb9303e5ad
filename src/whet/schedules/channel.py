"""A schedule's answer as messages of the gateway's: queued with the run's end, sent by `whet gateway`.

The queue is the gateway's own outbox, so each answer is queued once, whatever kills the worker. Only
conversations that the gateway knows can be written to.
"""

from __future__ import annotations

import re

import apsw
import msgspec

from whet.contract.errors import ConfigError
from whet.gateway.channel import Outgoing
from whet.gateway.pieces import pieces
from whet.log import mask
from whet.store import chats

# A file is kept by its whole path, which begins with a slash: it is never taken for one of these.
_CHAT = re.compile(r"(telegram|discord|slack|webhook|[a-z0-9][a-z0-9-]{0,31}(?=:[^\s/]+\Z)):(\S+)")
_PIECE_CHARS = 1_900  # every platform takes as much in one message


def is_chat(target: str) -> bool:
    """Say whether a target is a conversation by its channel's name, such as telegram:12345678."""
    return _CHAT.fullmatch(target) is not None


def check(connection: apsw.Connection, target: str) -> None:
    """Raise ConfigError for a conversation that the gateway does not know."""
    if is_chat(target) and _chat(connection, target) is None:
        raise ConfigError(
            f"the gateway knows no conversation {target}",
            hint=f"say something to the bot there first; a file of that name is ./{target}",
        )


def post(connection: apsw.Connection, target: str, text: str, now_ms: int) -> None:
    """Queue a text, in as many messages as it takes, inside the caller's transaction."""
    chat = _chat(connection, target)
    if chat is not None:
        parts = pieces(mask(text), _PIECE_CHARS)
        chats.post(
            connection, chat.id, [msgspec.json.encode(Outgoing(part)).decode() for part in parts], now_ms
        )


def _chat(connection: apsw.Connection, target: str) -> chats.ChatRecord | None:
    found = _CHAT.fullmatch(target)
    return chats.at(connection, found[1], found[2]) if found else None
