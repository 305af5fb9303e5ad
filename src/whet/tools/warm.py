"""`warm_session`: templates of proven calls, for the sessions to come.

What is done is handed in; this module knows the schema and that the answer is JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec

from whet.contract.tools import Tool, ToolContext, ToolOutput, declare
from whet.tools.signature import tool

_WARM_SESSION = declare("warm_session", "templates", "own", "owner", "aside")

Action = Literal["build", "list", "load", "delete"]


class WarmRequest(msgspec.Struct, frozen=True):
    """What the model asked for."""

    action: Action
    name: str = ""
    description: str = ""
    apply: bool = False


Act = Callable[[ToolContext, WarmRequest], Awaitable[dict[str, Any]]]


def warm_tools(act: Act) -> list[Tool]:
    """Make the tool; `act` gives what the answer holds, with `error` where it failed."""

    @tool(toolset="skills", effects={"write"}, timeout_s=600, tags=_WARM_SESSION)
    async def warm_session(
        ctx: ToolContext,
        action: Action,
        name: str = "",
        description: Annotated[str, "for build"] = "",
        apply: Annotated[bool, "load: start the next session with it"] = False,
    ) -> ToolOutput:
        """Templates of past tool calls that worked, to start sessions with. build mines the store."""
        found = await act(ctx, WarmRequest(action, name, description, apply))
        error = found.get("error")
        row = {"success": not error, **found, "error": error}
        return ToolOutput(msgspec.json.encode(row).decode(), error_kind="failed" if error else "")

    return [warm_session]
