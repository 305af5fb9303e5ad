"""What a tool call gets in tests: a context that records what is shown, and one call's way in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whet.contract.errors import ToolError
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.lanes import ToolPool
from whet.tools.files import file_tools
from whet.tools.registry import Registry


async def _nobody(_question: str, _choices: Sequence[str]) -> str | None:
    return None


def context(
    workspace: Path = Path("."),
    shown: list[str] | None = None,
    ask: Callable[[str, Sequence[str]], Any] = _nobody,
    session_id: str = "s1",
) -> ToolContext:
    show = (lambda text: None) if shown is None else shown.append
    return ToolContext(session_id, "t1", "c1", workspace, show, ask)


async def call(tool: Tool, ctx: ToolContext, **arguments: Any) -> ToolOutput:
    return await tool.run(ctx, arguments)


async def until(condition: Callable[[], bool], deadline_s: float = 5.0) -> None:
    """Wait until `condition` holds; fail after the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition never came"
        await asyncio.sleep(0.01)


class Desk:
    """The file tools over one workspace."""

    def __init__(
        self, workspace: Path, *, allowed: Sequence[Path] = (), ripgrep: str | None = "rg", workers: int = 2
    ) -> None:
        self.workspace = workspace
        self.pool = ToolPool(workers)
        self.registry = Registry(file_tools(self.pool, allowed=allowed, ripgrep=ripgrep))

    async def acall(self, name: str, **arguments: object) -> ToolOutput:
        return await self.registry.get(name).run(context(self.workspace), arguments)

    def call(self, name: str, **arguments: object) -> ToolOutput:
        return asyncio.run(self.acall(name, **arguments))

    def text(self, name: str, **arguments: object) -> str:
        return self.call(name, **arguments).text

    def error(self, name: str, **arguments: object) -> ToolError:
        try:
            output = self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(f"{name} went well: {output.text}")
