"""The toolset `code`: symbols of a project's code, as its language servers know them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.tools.signature import Toolset, tool_method

Action = Literal["definition", "references", "symbols", "rename"]


class SymbolService(Protocol):
    """Answers about symbols, from the servers of a call's workspace."""

    async def look_up(self, ctx: ToolContext, given: dict[str, Any]) -> ToolOutput:
        """Return where a symbol is. Raises ToolError."""
        ...

    async def plan_call(self, ctx: ToolContext, given: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return the call of another tool that carries out a rename, or None if the call only reads. Raises
        ToolError."""
        ...


class CodeTools(Toolset, frozen=True):
    """Tools that ask the `service` about symbols."""

    toolset: ClassVar[str] = "code"
    service: SymbolService

    def configure(self, tool: Tool) -> Tool:
        """Return the tool with renames that become calls of `patch`, judged and shown as those."""
        check = tool.check

        async def plan(ctx: ToolContext, given: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
            return await self.service.plan_call(ctx, check(given) if check is not None else given)

        return msgspec.structs.replace(tool, plan=plan)

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=60)
    async def code_symbols(
        self,
        ctx: ToolContext,
        action: Action,
        path: Annotated[str, "file where symbol is written"] = "",
        symbol: str = "",
        line: Annotated[int, msgspec.Meta(ge=0)] = 0,
        new_name: str = "",
    ) -> ToolOutput:
        """Ask the type checker: a symbol's definition or references; symbols of path, or of the project by
        name; rename everywhere."""
        return await self.service.look_up(
            ctx,
            {"action": action, "path": path, "symbol": symbol, "line": line, "new_name": new_name},
        )
