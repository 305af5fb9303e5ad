"""The toolset `planning`: the list of work, and questions to the person."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

from typing import ClassVar

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import Toolset, tool_method
from whet.tools.todo import TodoItem, TodoLists

CLARIFY, TASK_LIST = "clarify", "todo"


class PlanningTools(Toolset, frozen=True):
    """`todo` over `lists`, and `clarify`, which asks through the context's `ask`."""

    toolset: ClassVar[str] = "planning"
    lists: TodoLists

    @tool_method(effects={"read"}, repeatable=True)
    async def todo(
        self,
        ctx: ToolContext,
        items: list[TodoItem] | None = None,
        merge: bool = False,
    ) -> str:
        """Plan work of 3 or more steps: replace, merge by id, or read it (no items)."""
        from whet.tools.todo import format_list

        if items is None:
            return format_list(self.lists.get(ctx.session_id))
        return format_list(self.lists.update(ctx.session_id, items, merge=merge))

    @tool_method(effects={"read"}, repeatable=True, timeout_s=None)
    async def clarify(
        self,
        ctx: ToolContext,
        question: str,
        choices: list[str] | None = None,
    ) -> ToolOutput:
        """Ask the person what only they know."""
        from whet.tools.ask import ask

        return await ask(ctx, question, choices or [])
