"""The toolset `session`: search past conversations, and bring back what a summary replaced."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import UNSENT, Toolset, tool_method

if TYPE_CHECKING:
    from whet.store.database import StateDatabase

RECALL = "recall"


class SessionTools(Toolset, frozen=True):
    """`session_search` over one store."""

    toolset: ClassVar[str] = "session"
    database: StateDatabase

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=30)
    async def session_search(
        self,
        ctx: ToolContext,
        query: str = "",
        session_id: str = "",
        seq: int = 0,
        limit: Annotated[int, UNSENT] = 8,
    ) -> ToolOutput:
        """Search past conversations, or read around a hit (session_id, seq)."""
        from whet.tools.sessions import read_around, search_sessions

        if session_id and seq and not query.strip():
            return await read_around(self.database, ctx.session_id, session_id, seq)
        return await search_sessions(self.database, ctx.session_id, query, session_id, limit)


class RecallTools(Toolset, frozen=True):
    """`recall` over one store."""

    toolset: ClassVar[str] = "session"
    database: StateDatabase

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=30)
    async def recall(
        self,
        ctx: ToolContext,
        query: str = "",
        ref: Annotated[str, "#12-40, files, commands or urls"] = "",
        limit: Annotated[int, UNSENT] = 8,
    ) -> ToolOutput:
        """Bring back messages that a summary replaced."""
        from whet.tools.recall import bring_back, find_words

        if ref.strip():
            return await bring_back(self.database, ctx.session_id, ref)
        return await find_words(self.database, ctx.session_id, query, limit)
