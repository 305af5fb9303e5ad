"""Let the person pick a session to open, or a point to go back to, from a list at the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw

from whet.cli.interactive.recorded_steps import changed_paths
from whet.store import sessions
from whet.store.export import iter_messages, iter_with_turns
from whet.store.parts import ConversationPart, last_exchange, list_parts, typed_text
from whet.terminal import wording
from whet.terminal.output import age
from whet.terminal.pasted_text import fold_paste, fold_pastes

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.store.sessions import SessionRow

_SESSIONS = 50
_PREVIEW_CHARS = 300


async def pick_session(chat: ChatControl) -> str | None:
    """Let the person pick a session, and return its id, or None if they pick none."""

    def read(connection: apsw.Connection) -> list[tuple[SessionRow, str]]:
        rows = [row for row in sessions.list_sessions(connection, _SESSIONS) if row.id != chat.session.id]
        return [(row, _preview(list_parts(list(iter_messages(connection, row.id, last=6))))) for row in rows]

    entries = await chat.services.database.read(read)
    now = chat.services.clock.now()
    choices = [
        (f"{age(row.last_active, now):>8}  {row.title or '(no title)'}", f"{row.id} · {preview}")
        for row, preview in entries
    ]
    if not choices:
        chat.say("there is no other session", "dim")
        return None
    picked = await chat.choose("Open a session", choices)
    return None if picked is None else entries[picked][0].id


async def pick_point(chat: ChatControl) -> bool:
    """Let the person pick an earlier message, and rewind files and conversation to before it. Returns False
    if they pick none."""
    turns = await chat.services.database.read(lambda db: turn_texts(db, chat.session.id))
    if not turns:
        chat.say("nothing has been said in this session yet", "dim")
        return True
    path_counts = await changed_paths(chat)
    choices = [
        (f"{number:>3}  {wording.clip(fold_pastes(text), 400)}", _rewind_preview(path_counts, number))
        for number, text in turns
    ]
    picked = await chat.choose("Go back to before which message?", choices[::-1])
    if picked is None:
        return False
    number, text = turns[::-1][picked]
    parts = "" if chat.services.settings.rewind.record else " conversation"
    await chat.commands.get("rewind").run(chat, f"{number}{parts}")
    chat.put_back(text)
    return True


def _rewind_preview(path_counts: dict[int, int], turn: int) -> str:
    has_changes = any(count for number, count in path_counts.items() if number >= turn)
    files = "Files go back, too." if has_changes else "No recorded file has changed since."
    return f"Go back to before this message. {files}"


def turn_texts(connection: apsw.Connection, session_id: str) -> list[tuple[int, str]]:
    """Return the first message of each current turn, with the turn's number."""
    texts: dict[int, str] = {}
    for turn, message in iter_with_turns(connection, session_id):
        if message.role == "user":
            texts.setdefault(turn, typed_text(message.text))
    return list(texts.items())


def _preview(parts: Sequence[ConversationPart]) -> str:
    texts = [wording.clip(text, _PREVIEW_CHARS) for text in last_exchange(parts, fold_paste)]
    return " — ".join(filter(None, texts))
