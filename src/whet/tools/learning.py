"""What the tools of memory and skills do with what the desk says: the desk judges changes and stores them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from whet.contract.origin import Origin
from whet.contract.tools import ToolContext, ToolOutput
from whet.memory.desk import LearningService
from whet.memory.requests import SkillRequest, WriteOutcome
from whet.typed_answer import AnswerOption, read_line

_YES = AnswerOption("yes", "y")


def output(outcome: WriteOutcome) -> ToolOutput:
    """Give an outcome as a tool's result."""
    return ToolOutput(outcome.text, error_kind="" if outcome.ok else "refused")


async def confirmed(
    ctx: ToolContext, desk: LearningService, request: SkillRequest, origin: Origin
) -> WriteOutcome:
    """Make a skill's change, asking the person first where it is theirs; no answer is a no."""
    outcome = await desk.hand_in(request, origin)
    if outcome.state != "needs_yes":
        return outcome
    answer = await ctx.ask(outcome.text, ["yes", "no"])
    if answer is not None and read_line(answer, (_YES,)).option == _YES.name:
        return await desk.hand_in(msgspec.structs.replace(request, confirmed=True), origin)
    why = "nobody was there to ask" if answer is None else "the person said no"
    return WriteOutcome(False, "refused", f"Not done, {why}. It is a skill of the person's own.")


Action = Literal["build", "list", "load", "delete"]


class WarmRequest(msgspec.Struct, frozen=True):
    """What the model asked for; all from `min_messages` on is for build."""

    action: Action
    name: str
    description: str
    apply: bool
    min_messages: int
    max_sessions: int
    source_filter: str
    tags: tuple[str, ...]


def answer(found: dict[str, Any]) -> ToolOutput:
    """Give what was done as the model reads it; `error` says that it failed."""
    error = found.get("error")
    row = {"success": not error, **found, "error": error}
    return ToolOutput(msgspec.json.encode(row).decode(), error_kind="failed" if error else "")
