"""The tools of skills: find one, load one (with a receipt), and change one through the desk.

What a skill says is loaded text, never an order of the person's. The desk judges changes and stores them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from whet.contract.tools import Tool, ToolContext, ToolOutput, declare
from whet.memory.requests import SkillRequest
from whet.tools.remember import Desks, confirmed, output
from whet.tools.signature import tool

_SKILLS_LIST = declare("skills_list", "looks", "search", "own", "probe", "aside")
SKILL_VIEW = "skill_view"
"""The tool's name."""
_SKILL_VIEW = declare(SKILL_VIEW, "looks", "own", "loads-skills", "probe", "aside")
_SKILL_MANAGE = declare("skill_manage", "skills", "own", "aside")


def skill_tools(desks: Desks) -> list[Tool]:
    """Make `skills_list`, `skill_view` and `skill_manage` over the desks of the sessions."""

    @tool(toolset="skills", effects={"read"}, parallel=True, repeatable=True, tags=_SKILLS_LIST)
    async def skills_list(ctx: ToolContext, query: str = "") -> str:
        """List skills, or those that fit some words."""
        desk, _ = desks(ctx, "skills_list")
        return await desk.skills_list(query)

    @tool(toolset="skills", effects={"read"}, parallel=True, repeatable=True, tags=_SKILL_VIEW)
    async def skill_view(
        ctx: ToolContext, name: str, file_path: Annotated[str, "default SKILL.md"] = ""
    ) -> ToolOutput:
        """Load a skill, or one of its files."""
        desk, origin = desks(ctx, "skill_view")
        return output(await desk.skill_view(name, file_path, origin))

    @tool(toolset="skills", effects={"write"}, repeatable=True, tags=_SKILL_MANAGE)
    async def skill_manage(  # noqa: PLR0913 - scripts and other models rely on these names
        ctx: ToolContext,
        action: Literal["create", "edit", "patch", "delete", "write_file", "remove_file"],
        name: str,
        content: Annotated[str, "whole SKILL.md: front matter name, description; then steps"] = "",
        old_string: str = "",
        new_string: str = "",
        file_path: Annotated[str, "below references/, scripts/ or assets/"] = "",
        file_content: str = "",
        evidence: list[str] | None = None,
        base_hash: Annotated[str, "from skill_view"] = "",
    ) -> ToolOutput:
        """Keep a procedure that worked as a skill, or mend one; patch rather than edit."""
        desk, origin = desks(ctx, "skill_manage")
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
        return output(await confirmed(ctx, desk, request, origin))

    return [skills_list, skill_view, skill_manage]
