"""The toolset `memory`: the facts that are kept for later sessions."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import Toolset, tool_method

if TYPE_CHECKING:
    from whet.contract.origin import Origin
    from whet.memory.service import LearningService

    FindLearning: TypeAlias = Callable[[ToolContext, str], tuple[LearningService, Origin]]
    """Returns the calling session's learning service and the call's origin from (context, tool name)."""


class MemoryTools(Toolset, frozen=True):
    """`memory` over the sessions' learning services."""

    toolset: ClassVar[str] = "memory"
    find_learning: FindLearning

    @tool_method(effects={"write"}, repeatable=True)
    async def memory(
        self,
        ctx: ToolContext,
        action: Literal["add", "replace", "remove"],
        target: Literal["memory", "user"] = "memory",
        content: Annotated[str, "from a failure: `Pitfall:`"] = "",
        old_text: str = "",
        evidence: Annotated[list[str] | None, "verbatim quotes"] = None,
    ) -> ToolOutput:
        """Keep a fact for later sessions, on the work or the user.

        Not for progress of the task at hand, nor for what a look at the files tells.
        """
        from whet.memory.requests import MemoryRequest
        from whet.tools.learning import output

        service, origin = self.find_learning(ctx, "memory")
        request = MemoryRequest(action, target, content, old_text, tuple(evidence or ()))
        return output(await service.submit(request, origin))
