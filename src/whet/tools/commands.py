"""Run a call of `terminal`: in its sandbox if it has one, recording which files the command changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.seen import READ_VERSIONS
from whet.tools.session_processes import open_session_processes
from whet.tools.shell import Shell
from whet.tools.spawn import ProcessSpec

if TYPE_CHECKING:
    from whet.tools.toolsets.terminal import SharedProcesses, ShellLimits

_Result = TypeVar("_Result")


async def run_command(
    ctx: ToolContext,
    shared: SharedProcesses,
    limits: ShellLimits,
    spec: ProcessSpec,
    timeout_s: float | None,
) -> ToolOutput:
    """Run a command to its end, or start it in the background (`timeout_s` None). Raises ToolError."""
    unchanged = await _examine_files(ctx, lambda: READ_VERSIONS.find_unchanged(ctx))
    shell = Shell(await open_session_processes(shared, ctx.session_id), limits)
    confined = None
    if shared.confine is not None:
        from whet.tools.confined import Confined  # noqa: PLC0415 - only where commands are confined

        confined = Confined(shared.confine(), ctx)
    try:
        spec = spec if confined is None else await confined.add_jail(spec)
        if timeout_s is None:
            return shell.start(spec)
        output = await shell.run(spec, timeout_s, ctx.output)
    finally:
        if confined is not None:
            confined.release()
    await _examine_files(ctx, lambda: READ_VERSIONS.note_command(ctx, unchanged))
    return output if confined is None else confined.explain_failure(spec, output)


async def _examine_files(ctx: ToolContext, look: Callable[[], _Result]) -> _Result:
    """Examine files; on a thread if an editor holds some, because the editor answers on this event loop."""
    return look() if ctx.buffers is None else await asyncio.to_thread(look)
