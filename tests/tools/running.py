"""What a tool call gets in tests: a context that records what is shown, one call's way in, and a shell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.tools.process import Processes
from whet.tools.toolsets.terminal import SharedProcesses, ShellLimits, ShellTools


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


class Commands:
    """The tools `terminal` and `process` in one folder. `shown` is the output that they showed as it came."""

    def __init__(
        self,
        folder: Path,
        limits: ShellLimits | None = None,
        environment: Mapping[str, str] | None = None,
        processes: Processes | None = None,
        session_id: str = "s1",
    ) -> None:
        self.processes = processes or Processes()
        self.shown: list[str] = []
        self._context = context(folder, self.shown, session_id=session_id)
        self.tools = list(ShellTools(SharedProcesses(self.processes), limits or ShellLimits(), environment))

    @property
    def printed(self) -> str:
        return "".join(self.shown)

    async def terminal(self, command: str, **arguments: Any) -> ToolOutput:
        return await call(self.tools[0], self._context, command=command, **arguments)

    async def process(self, action: str, process_id: str = "p1", **arguments: Any) -> ToolOutput:
        return await call(self.tools[1], self._context, action=action, id=process_id, **arguments)

    def run(self, command: str, **arguments: Any) -> ToolOutput:
        return asyncio.run(self.terminal(command, **arguments))

    async def until_printed(self, process_id: str = "p1") -> None:
        """Wait until a background process has printed something."""
        process = self.processes.get(process_id)
        assert process is not None
        await until(lambda: process.output.total_bytes > 0)
