"""What `clarify` does: put a question to the person.

Where nobody can answer, the model is told so truthfully, as a result of kind `denied`: silence is no
consent, and a second call with the same question would be as silent. This module does not know how or
where a person is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.contract.errors import BadInput
from whet.contract.tools import ToolContext, ToolOutput

_MAX_CHOICES = 9
_NOBODY = (
    "Nobody is here to answer. Decide by the safest assumption that can be undone, say in your answer what "
    "you assumed, and don't ask again."
)


async def ask(ctx: ToolContext, question: str, choices: Sequence[str]) -> ToolOutput:
    """Put the question and give the answer. Raises BadInput."""
    if not question.strip():
        raise BadInput("clarify: the question is empty")
    if len(choices) > _MAX_CHOICES:
        raise BadInput(f"clarify: at most {_MAX_CHOICES} choices")
    answer = await ctx.ask(question.strip(), choices)
    if answer is None:
        return ToolOutput(_NOBODY, error_kind="denied")
    return ToolOutput(answer.strip() or "[the person gave an empty answer]")
