"""Lists to pick from at the terminal: sessions to open, points to go back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw

from whet.cli import wording
from whet.cli.learning_commands import typed
from whet.cli.output import age
from whet.cli.pasted import folded
from whet.cli.rewind_commands import changed_paths
from whet.contract.messages import Message
from whet.store import sessions
from whet.store.export import messages, numbered

if TYPE_CHECKING:
    from whet.cli.commands import ChatControl
    from whet.store.sessions import SessionRow

_SESSIONS = 50
_PREVIEW_CHARS = 300


async def pick_session(chat: ChatControl) -> str | None:
    """Have the person pick a session, the last active first; None where they don't."""

    def read(connection: apsw.Connection) -> list[tuple[SessionRow, str]]:
        found = [row for row in sessions.list_sessions(connection, _SESSIONS) if row.id != chat.session.id]
        return [(row, _preview(list(messages(connection, row.id, last=6)))) for row in found]

    found = await chat.app.database.read(read)
    now = chat.app.clock.now()
    choices = [
        (f"{age(row.last_active, now):>8}  {row.title or '(no title)'}", f"{row.id} · {preview}")
        for row, preview in found
    ]
    if not choices:
        chat.say("there is no other session", "dim")
        return None
    picked = await chat.choose("Open a session", choices)
    return None if picked is None else found[picked][0].id


async def pick_point(chat: ChatControl) -> None:
    """Have the person pick the message that they want to go back to, and go there: files and conversation."""
    turns = await chat.app.database.read(lambda db: turn_texts(db, chat.session.id))
    if not turns:
        chat.say("nothing has been said in this session yet", "dim")
        return
    changed = await changed_paths(chat)
    choices = [
        (f"{number:>3}  {wording.clip(folded(text), 400)}", _what_goes_back(changed, number))
        for number, text in turns
    ]
    picked = await chat.choose("Go back to before which message?", choices[::-1])
    if picked is None:
        return
    number, text = turns[::-1][picked]
    parts = "" if chat.app.recordings.settings.record else " conversation"
    await chat.commands.get("rewind").run(chat, f"{number}{parts}")
    chat.put_back(text)


def _what_goes_back(changed: dict[int, int], turn: int) -> str:
    since = sum(paths for number, paths in changed.items() if number >= turn)
    files = "files too" if since else "no file was changed since, as far as is recorded"
    return f"goes back to before this message, {files}"


def turn_texts(connection: apsw.Connection, session_id: str) -> list[tuple[int, str]]:
    """Give the first message of each turn that stands, with the turn's number."""
    said: dict[int, str] = {}
    for turn, message in numbered(connection, session_id):
        if message.role == "user":
            said.setdefault(turn, typed(message.text))
    return list(said.items())


def last_exchange(found: Sequence[Message]) -> tuple[str, str]:
    """Give the person's last message and what was answered last; empty where there is none."""
    asked = next((typed(one.text) for one in reversed(found) if one.role == "user" and one.text), "")
    answered = next((one.text for one in reversed(found) if one.role == "assistant" and one.text), "")
    return asked, answered


def _preview(found: Sequence[Message]) -> str:
    return " — ".join(text for one in last_exchange(found) if (text := wording.clip(one, _PREVIEW_CHARS)))
