"""The `session_search` tool: search earlier conversations and read around a hit.

Reads the store only. Private sessions and other people's sessions are never found; a session that an API
token began finds the sessions of that token, unless it is the owner's.
"""

from __future__ import annotations

import apsw

from whet.contract.errors import BadInput, NotFound
from whet.contract.messages import Message
from whet.contract.tools import ToolOutput, clip
from whet.store import api, sessions
from whet.store.database import StateDatabase
from whet.store.ranking import SearchScope
from whet.store.search import Hit, find, read_messages_around


async def search_sessions(
    database: StateDatabase, asking: str, query: str, session_id: str, limit: int
) -> ToolOutput:
    """Return the messages that match `query`, of one session if it is given, limited to messages that the
    session `asking` may see."""
    if not query.strip():
        return ToolOutput("Give a query.", error_kind="bad_input")
    own_profile, token = await database.read(lambda db: api.find_person(db, asking))
    count = min(max(limit, 1), 30)
    scope = SearchScope(session_id=session_id or None, profile=own_profile, token=token, asking=asking)
    hits = await find(database, query, count, **scope)
    if not hits:
        return ToolOutput(f"Nothing found for {query!r}. Try fewer or other words.")
    return ToolOutput("\n".join(_hit_line(hit) for hit in hits))


async def read_around(database: StateDatabase, asking: str, session_id: str, seq: int) -> ToolOutput:
    """Return the messages around one. Raises BadInput for a session that `asking` may not see."""
    rows = await database.read(lambda db: _read_around(db, asking, session_id, seq))
    return ToolOutput("\n".join(_line(number, row) for number, row in rows) or "Nothing there.")


def _read_around(
    connection: apsw.Connection, asking: str, session_id: str, seq: int
) -> list[tuple[int, Message]]:
    profile, token = api.find_person(connection, asking)
    try:
        is_open = not token or api.find_token_name(connection, session_id) == token
        if is_open and sessions.profile_of(connection, session_id) == profile:
            return read_messages_around(connection, session_id, seq, 4, 6)
    except NotFound:
        pass
    raise BadInput(f"there is no session {session_id}", hint="search gives the ids")


def _hit_line(hit: Hit) -> str:
    title = f" «{hit.title}»" if hit.title else ""
    return f"{hit.session_id} seq {hit.seq} {hit.when[:16]} {hit.role}{title}: {hit.snippet}"


def _line(number: int, message: Message) -> str:
    calls = "".join(f"\n  call {call.name} {clip(call.arguments, 300)}" for call in message.tool_calls)
    return f"[{number}] {message.role}: {clip(message.text, 1_500)}{calls}"
