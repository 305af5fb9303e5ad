"""Questions that wait: the first answer counts, and whoever comes second is told so."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import FixedClock
from whet.contract.errors import NotFound
from whet.serve.questions import Questions


def test_an_answer_that_comes_second_is_not_taken_for_one_that_counts() -> None:
    async def main() -> None:
        questions = Questions(FixedClock(), 60.0)
        asked = questions.new("session", "approval", "rm -r build")
        waiting = asyncio.ensure_future(questions.ask(asked))
        await asyncio.sleep(0)
        await questions.answer(asked.id, "once")
        with pytest.raises(NotFound, match="was answered"):
            await questions.answer(asked.id, "no")  # before the one who asked has heard the first
        assert await waiting == "once"
        assert questions.pending() == []

    asyncio.run(main())
