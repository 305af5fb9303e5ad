"""The toolset `delegation`: tasks for helpers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from whet.contract.delegation import HelperScope, HelperWish, Spawn
from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import UNSENT, Toolset, tool_method


class DelegationTools(Toolset, frozen=True):
    """`delegate_task`, which hands a task to a child session. The same call always gets the same child."""

    toolset: ClassVar[str] = "delegation"
    spawn: Spawn

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=None)
    async def delegate_task(  # noqa: PLR0913 - the parameters are the model's arguments
        self,
        ctx: ToolContext,
        task: str,
        context: Annotated[str, UNSENT] = "",
        background: bool = False,
        worktree: bool = False,
        schema: Annotated[dict[str, Any] | None, UNSENT] = None,
        budget_usd: Annotated[float, UNSENT] = 0.0,
        steps: Annotated[int, UNSENT] = 0,
        scope: Annotated[HelperScope, UNSENT] = "parent",
    ) -> ToolOutput:
        """Give a helper, which sees nothing else, a complete task. worktree: edits merge."""
        wish = HelperWish(task, context, background, worktree, schema, budget_usd, steps, scope)
        return await self.spawn(ctx, wish)
