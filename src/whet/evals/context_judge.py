"""Facts asked of a model: it answers from what an engine left in the window, and is graded from 0 to 5.

Both questions go to the model that the person uses, so the figure is worth what that model is worth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.contract.errors import ProviderError
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply, Provider
from whet.evals.context_story import Fact

_ANSWER = "Answer the last question from this conversation alone. Say `unknown` where it does not tell."
_GRADE = "You grade answers. Reply with one digit from 0 (wrong or unknown) to 5 (exactly right)."


class ModelJudge:
    """Asks and grades with the model of `provider`."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def score(self, view: Sequence[Message], facts: Sequence[Fact]) -> float:
        """Give the mean grade, between 0 and 1. Raises ProviderError."""
        grades = [await self._grade(view, fact) for fact in facts]
        return sum(grades) / (5 * len(grades)) if grades else 0.0

    async def _grade(self, view: Sequence[Message], fact: Fact) -> int:
        said = await self._ask(_ANSWER, [*view, Message("user", fact.question)])
        asked = f"Question: {fact.question}\nRight answer: {fact.value}\nGiven answer: {said[:500]}"
        found = re.search(r"[0-5]", await self._ask(_GRADE, [Message("user", asked)]))
        return int(found[0]) if found else 0

    async def _ask(self, system: str, messages: Sequence[Message]) -> str:
        async for item in self._provider.open(system, (), "judge").stream(messages):
            if isinstance(item, ModelReply):
                return item.message.text
        raise ProviderError("the model ended its stream without a reply")
