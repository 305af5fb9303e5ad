"""The tool `clarify`: put a question to the person.

Where nobody can answer, the model is told so truthfully, as a result of kind `denied`: silence is no
consent, and a second call with the same question would be as silent. This module does not know how or
where a person is asked.
"""

from __future__ import annotations

from typing import Annotated

from whet.contract.errors import BadInput
from whet.contract.tools import Tool, ToolContext, ToolOutput, declare
from whet.tools.signature import tool

CLARIFY = "clarify"
"""The tool's name."""
_CLARIFY = declare(CLARIFY, "asks", "aside")

_MAX_CHOICES = 9
_NOBODY = (
    "Nobody is here to answer. Decide by the safest assumption that can be undone, say in your answer what "
    "you assumed, and don't ask again."
)


def ask_tools() -> list[Tool]:
    """Make `clarify`, which asks through the context's `ask`."""

    @tool(toolset="planning", effects={"read"}, repeatable=True, timeout_s=None, tags=_CLARIFY)
    async def clarify(
        ctx: ToolContext,
        question: str,
        choices: Annotated[list[str] | None, "answers to pick from, if any"] = None,
    ) -> ToolOutput:
        """Ask the person one question that only they can answer and that the work depends on. Look things
        up yourself where you can."""
        if not question.strip():
            raise BadInput("clarify: the question is empty")
        if choices and len(choices) > _MAX_CHOICES:
            raise BadInput(f"clarify: at most {_MAX_CHOICES} choices")
        answer = await ctx.ask(question.strip(), choices or ())
        if answer is None:
            return ToolOutput(_NOBODY, error_kind="denied")
        return ToolOutput(answer.strip() or "[the person gave an empty answer]")

    return [clarify]
