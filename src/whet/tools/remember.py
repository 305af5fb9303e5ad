"""The tool `memory`: keep, change or drop one short fact in the notes that every session reads.

The desk judges and stores; this module only names the arguments and whose call it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from whet.contract.origin import Origin
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.memory.desk import LearningService
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.tools.signature import tool

Desks = Callable[[ToolContext, str], tuple[LearningService, Origin]]
"""Gives the desk of the session that calls, and the call's origin, from (context, tool name)."""


def memory_tools(desks: Desks) -> list[Tool]:
    """Make `memory` over the desks of the sessions."""

    @tool(toolset="memory", effects={"write"}, repeatable=True)
    async def memory(
        ctx: ToolContext,
        action: Literal["add", "replace", "remove"],
        target: Annotated[Literal["memory", "user"], "memory: work; user: the person"] = "memory",
        content: Annotated[str, "one fact, 1-2 lines; a lesson from a failure begins `Pitfall:`"] = "",
        old_text: Annotated[str, "unique part of the entry"] = "",
        evidence: Annotated[list[str] | None, "verbatim quotes of the person or of results"] = None,
    ) -> ToolOutput:
        """Keep a lasting fact for later sessions: preferences, conventions, how this place works.

        Not for progress of the task at hand, nor for what a look at the files tells.
        """
        desk, origin = desks(ctx, "memory")
        request = MemoryRequest(action, target, content, old_text, tuple(evidence or ()))
        return output(await desk.memory(request, origin))

    return [memory]


def output(outcome: WriteOutcome) -> ToolOutput:
    """Give an outcome as a tool's result."""
    return ToolOutput(outcome.text, error_kind="" if outcome.ok else "refused")


async def confirmed(
    ctx: ToolContext, desk: LearningService, request: SkillRequest, origin: Origin
) -> WriteOutcome:
    """Make a skill's change, asking the person first where it is theirs; no answer is a no."""
    outcome = await desk.skill(request, origin)
    if outcome.state != "needs_yes":
        return outcome
    answer = await ctx.ask(outcome.text, ["yes", "no"])
    if answer is not None and answer.strip().lower() in ("yes", "y"):
        return await desk.skill(msgspec.structs.replace(request, confirmed=True), origin)
    why = "nobody was there to ask" if answer is None else "the person said no"
    return WriteOutcome(False, "refused", f"Not done, {why}. It is a skill of the person's own.")
