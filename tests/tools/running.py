"""What a tool call gets in tests: a context that records what is shown, and one call's way in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from whet.contract.tools import Tool, ToolContext, ToolOutput


async def _nobody(_question: str, _choices: Sequence[str]) -> str | None:
    return None


def context(
    workspace: Path,
    shown: list[str] | None = None,
    ask: Callable[[str, Sequence[str]], Any] = _nobody,
    session_id: str = "s1",
) -> ToolContext:
    show = (lambda text: None) if shown is None else shown.append
    return ToolContext(session_id, "t1", "c1", workspace, show, ask)


def find_tool(tools: Iterable[Tool], name: str) -> Tool:
    return next(tool for tool in tools if tool.name == name)


async def call(tool: Tool, ctx: ToolContext, **arguments: Any) -> ToolOutput:
    return await tool.run(ctx, arguments)


async def until(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    """Wait until `condition` holds; fail after the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition never came"
        await asyncio.sleep(0.01)
