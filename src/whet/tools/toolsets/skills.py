"""The toolset `skills`: procedures that worked, and templates of tool calls that worked."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import UNSENT, Toolset, tool_method

if TYPE_CHECKING:
    from whet.tools.learning import WarmRequest
    from whet.tools.toolsets.memory import FindLearning

    WarmAct: TypeAlias = Callable[[ToolContext, WarmRequest], Awaitable[dict[str, Any]]]

SKILL_VIEW = "skill_view"
SKILLS_LIST = "skills_list"


class SkillTools(Toolset, frozen=True):
    """Tools over the skills of the sessions' learning services."""

    toolset: ClassVar[str] = "skills"
    find_learning: FindLearning

    @tool_method(effects={"read"}, parallel=True, repeatable=True)
    async def skills_list(self, ctx: ToolContext, query: str = "") -> str:
        """List skills, by words or all."""
        service, _ = self.find_learning(ctx, "skills_list")
        return await service.skills.describe(query)

    @tool_method(effects={"read"}, parallel=True, repeatable=True)
    async def skill_view(self, ctx: ToolContext, name: str, file_path: str = "") -> ToolOutput:
        """Load a skill or a file of it."""
        from whet.tools.learning import output

        service, origin = self.find_learning(ctx, "skill_view")
        return output(await service.skills.view(name, file_path, origin))

    @tool_method(effects={"write"}, repeatable=True)
    async def skill_manage(  # noqa: PLR0913 - scripts and other models rely on these names
        self,
        ctx: ToolContext,
        action: Literal["create", "edit", "patch", "delete", "write_file", "remove_file"],
        name: str,
        content: Annotated[str, "SKILL.md: front matter (name, description), steps"] = "",
        old_string: str = "",
        new_string: str = "",
        file_path: str = "",
        file_content: str = "",
        evidence: list[str] | None = None,
        base_hash: Annotated[str, UNSENT] = "",
    ) -> ToolOutput:
        """Keep a procedure that worked as a skill; patch rather than edit."""
        from whet.memory.requests import SkillRequest
        from whet.tools.learning import change_skill, output

        service, origin = self.find_learning(ctx, "skill_manage")
        request = SkillRequest(
            action,
            name,
            content,
            old_string,
            new_string,
            file_path,
            file_content,
            tuple(evidence or ()),
            base_hash,
        )
        return output(await change_skill(ctx, service, request, origin))


class WarmTools(Toolset, frozen=True):
    """`warm_session`. `act` returns the content of the answer, with `error` if it failed."""

    toolset: ClassVar[str] = "skills"
    act: WarmAct

    @tool_method(effects={"write"}, timeout_s=600)
    async def warm_session(  # noqa: PLR0913 - the model's arguments
        self,
        ctx: ToolContext,
        action: Literal["build", "list", "load", "delete"],
        name: str = "",
        description: Annotated[str, UNSENT] = "",
        apply: bool = False,
        min_messages: Annotated[int, UNSENT] = 20,
        max_sessions: Annotated[int, UNSENT] = 0,
        source_filter: Annotated[str, UNSENT] = "",
        tags: Annotated[list[str] | None, UNSENT] = None,
    ) -> ToolOutput:
        """Templates of tool calls that worked; apply starts the next session with one."""
        from whet.tools.learning import WarmRequest, answer

        mining = max(0, min_messages), max(0, max_sessions), source_filter, tuple(tags or ())
        return answer(await self.act(ctx, WarmRequest(action, name, description, apply, *mining)))
