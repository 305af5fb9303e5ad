"""Run a call of `terminal`: in its sandbox if it has one, recording which files the command changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.seen import SEEN
from whet.tools.shell import Shell
from whet.tools.spawn import ProcessSpec

if TYPE_CHECKING:
    from whet.tools.toolsets.terminal import SharedProcesses, ShellLimits

_Found = TypeVar("_Found")


async def run_command(
    ctx: ToolContext,
    shared: SharedProcesses,
    limits: ShellLimits,
    wanted: ProcessSpec,
    timeout_s: float | None,
) -> ToolOutput:
    """Run a command to its end, or start it in the background (`timeout_s` None). Raises ToolError."""
    unchanged = await _looked(ctx, lambda: SEEN.untouched(ctx))
    shell, confined = Shell(shared.get(), limits), None
    if shared.confine is not None:
        from whet.tools.confined import Confined  # noqa: PLC0415 - only where commands are confined

        confined = Confined(shared.confine(), ctx)
        wanted = await confined.jailed(wanted)
    if timeout_s is None:
        return shell.start(wanted)
    output = await shell.run(wanted, timeout_s, ctx.output)
    await _looked(ctx, lambda: SEEN.note_all(ctx, unchanged))
    return output if confined is None else confined.explained(wanted, output)


async def _looked(ctx: ToolContext, look: Callable[[], _Found]) -> _Found:
    """Examine files; on a thread if an editor holds some, because the editor answers on this event loop."""
    return look() if ctx.buffers is None else await asyncio.to_thread(look)
