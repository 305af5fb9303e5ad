"""The `clarify` tool: put a question to the person.

If no one is present to answer, the model gets a result of kind `denied` that says so: silence is not
consent, and asking again would not help. The way to the person is handled elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.contract.errors import BadInput
from whet.contract.texts import mark_as_model_question
from whet.contract.tools import ToolContext, ToolOutput

_MAX_CHOICES = 9
_FEW_WORDS = 2
_NOBODY = (
    "Nobody is here to answer. Decide by the safest assumption that can be undone, say in your answer what "
    "you assumed, and don't ask again."
)


async def ask(ctx: ToolContext, question: str, choices: Sequence[str]) -> ToolOutput:
    """Ask the question and return the answer. Raises BadInput."""
    if not question.strip():
        raise BadInput("clarify: the question is empty")
    if len(choices) > _MAX_CHOICES:
        raise BadInput(f"clarify: at most {_MAX_CHOICES} choices")
    answer = await ctx.ask(mark_as_model_question(question.strip()), choices)
    if answer is None:
        return ToolOutput(_NOBODY, error_kind="denied")
    answer = answer.strip()
    # A choice has the assistant's words, whoever picked it, and so has an answer that holds a long one.
    is_choice = any(
        answer == choice.strip() or (len(choice.split()) > _FEW_WORDS and choice.strip() in answer)
        for choice in choices
    )
    return ToolOutput(answer or "[the person gave an empty answer]", origin="brought" if is_choice else "")
