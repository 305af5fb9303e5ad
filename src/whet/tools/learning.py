"""Turn the learning service's outcomes into results of the memory and skill tools. The service judges and
stores changes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from whet.contract.origin import Origin
from whet.contract.tools import ToolContext, ToolOutput
from whet.memory.requests import SkillRequest, WriteOutcome
from whet.memory.service import LearningService
from whet.typed_answer import AnswerOption, read_line

_YES = AnswerOption("yes")
_CHOICES = (
    "Yes: change it for every later session (whet undo takes it back)",
    "No: nothing is changed (any other answer, and none, mean no, too)",
)


def output(outcome: WriteOutcome) -> ToolOutput:
    """Return an outcome as a tool's result."""
    return ToolOutput(outcome.text, error_kind="" if outcome.ok else "refused")


async def change_skill(
    ctx: ToolContext, service: LearningService, request: SkillRequest, origin: Origin
) -> WriteOutcome:
    """Change a skill, asking the person first if it is theirs. No answer counts as a no."""
    outcome = await service.submit(request, origin)
    if outcome.state != "needs_yes":
        return outcome
    answer = await ctx.ask(outcome.text, _CHOICES)
    if answer is not None and (answer == _CHOICES[0] or read_line(answer, (_YES,)).option == _YES.name):
        return await service.submit(msgspec.structs.replace(request, confirmed=True), origin)
    why = "nobody was there to ask" if answer is None else "the person said no"
    return WriteOutcome(False, "refused", f"Not done, {why}. It is a skill of the person's own.")


Action = Literal["build", "list", "load", "delete"]


class WarmRequest(msgspec.Struct, frozen=True):
    """The model's request. The fields from `min_messages` on apply to build only."""

    action: Action
    name: str
    description: str
    apply: bool
    min_messages: int
    max_sessions: int
    source_filter: str
    tags: tuple[str, ...]


def answer(outcome: dict[str, Any]) -> ToolOutput:
    """Return the outcome as the model reads it. `error` marks a failure."""
    error = outcome.get("error")
    row = {"success": not error, **outcome, "error": error}
    return ToolOutput(msgspec.json.encode(row).decode(), error_kind="failed" if error else "")
