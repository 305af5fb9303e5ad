"""`session_search`: find what was said in earlier conversations and read around a hit.

Reads the store only; private sessions and other people's are never found. It does not know how text is
indexed.
"""

from __future__ import annotations

from typing import Annotated

import apsw

from whet.contract.errors import BadInput, NotFound
from whet.contract.messages import Message
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.search import Hit, around, find
from whet.tools.signature import tool


def session_tools(database: StateDatabase) -> list[Tool]:
    """Make the tool over one store."""

    @tool(toolset="session", effects={"read"}, parallel=True, repeatable=True, timeout_s=30)
    async def session_search(
        ctx: ToolContext,
        query: Annotated[str, 'words; "exact phrase"'] = "",
        session_id: Annotated[str, "with seq: read around a hit"] = "",
        seq: int = 0,
        limit: int = 8,
    ) -> ToolOutput:
        """Search past conversations, or read the messages around a hit."""
        if session_id and seq and not query.strip():
            rows = await database.read(lambda db: _around(db, ctx.session_id, session_id, seq))
            return ToolOutput("\n".join(_line(number, row) for number, row in rows) or "Nothing there.")
        if not query.strip():
            return ToolOutput("Give a query.", error_kind="bad_input")
        own = await database.read(lambda db: sessions.profile_of(db, ctx.session_id))
        wanted = min(max(limit, 1), 30)
        hits = await find(database, query, wanted, session_id=session_id or None, profile=own)
        if not hits:
            return ToolOutput(f"Nothing found for {query!r}. Try fewer or other words.")
        return ToolOutput("\n".join(_hit_line(hit) for hit in hits))

    return [session_search]


def _around(connection: apsw.Connection, asking: str, session_id: str, seq: int) -> list[tuple[int, Message]]:
    own = sessions.profile_of(connection, asking)
    try:
        if sessions.profile_of(connection, session_id) == own:
            return around(connection, session_id, seq, 4, 6)
    except NotFound:
        pass
    raise BadInput(f"there is no session {session_id}", hint="search gives the ids")


def _hit_line(hit: Hit) -> str:
    return f"{hit.session_id} seq {hit.seq} {hit.when[:16]} {hit.role} «{hit.title}»: {hit.snippet}"


def _line(number: int, message: Message) -> str:
    calls = "".join(f"\n  call {call.name} {clip(call.arguments, 300)}" for call in message.tool_calls)
    return f"[{number}] {message.role}: {clip(message.text, 1_500)}{calls}"
