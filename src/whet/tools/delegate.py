"""`delegate_task`: hand a task to a child session and get its result back.

The child has its own transcript and budget and the same gate. How it is built is the composition root's
business (`Spawn`).
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from whet.contract.protocols import Spawn
from whet.contract.tools import Tool, ToolContext, ToolOutput, declare
from whet.tools.signature import tool

_DELEGATE_TASK = declare("delegate_task", "delegates", "aside")


def delegate_tools(spawn: Spawn, *, parallel: int) -> list[Tool]:
    """Make the tool; at most `parallel` children of one process run at the same time."""
    places = asyncio.Semaphore(parallel)

    @tool(toolset="delegation", effects={"read"}, parallel=True, timeout_s=None, tags=_DELEGATE_TASK)
    async def delegate_task(
        ctx: ToolContext,
        task: Annotated[str, "complete instructions and what to hand back"],
        context: Annotated[str, "facts the helper needs; it sees nothing else"] = "",
    ) -> ToolOutput:
        """Give a self-contained task to a helper with its own context. Several calls run in parallel."""
        async with places:
            return await spawn(ctx, task, context)

    return [delegate_task]
