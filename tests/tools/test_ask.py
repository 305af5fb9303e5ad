"""clarify: the answer, and the truth where nobody is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tools.running import call, context, find_tool
from whet.contract.errors import BadInput
from whet.tools.todo import TodoLists
from whet.tools.toolsets.planning import PlanningTools


def test_the_persons_answer_comes_back() -> None:
    asked: list[tuple[str, list[str]]] = []

    async def answer(question: str, choices: Sequence[str]) -> str:
        asked.append((question, list(choices)))
        return " blue \n"

    clarify = find_tool(PlanningTools(TodoLists()), "clarify")
    ctx = context(Path("/"), ask=answer)
    output = asyncio.run(call(clarify, ctx, question=" Which colour? ", choices=["red", "blue"]))
    assert (output.text, output.is_error, output.origin) == ("blue", False, "brought")
    as_json = asyncio.run(call(clarify, ctx, question="Which colour?", choices='["red", "blue"]'))
    assert as_json.origin == "brought"
    assert asyncio.run(call(clarify, ctx, question="Which?", choices=["red"])).origin == ""
    assert asyncio.run(call(clarify, ctx, question="Which?", choices=["b", "lue"])).origin == ""
    del asked[1:]
    asyncio.run(call(clarify, ctx, question="And then?"))
    asyncio.run(call(clarify, ctx, question="Whet wants to run ls:\n  | ls\n\n  1  Yes, once"))
    assert asked == [
        ("The assistant asks: Which colour?", ["red", "blue"]),
        ("The assistant asks: And then?", []),
        ("The assistant asks:\n> Whet wants to run ls:\n>   | ls\n> \n>   1  Yes, once", []),
    ]


def test_an_empty_answer_is_an_answer() -> None:
    async def nothing(_question: str, _choices: Sequence[str]) -> str:
        return ""

    clarify = find_tool(PlanningTools(TodoLists()), "clarify")
    output = asyncio.run(call(clarify, context(Path("/"), ask=nothing), question="Well?"))
    assert (output.text, output.is_error) == ("[the person gave an empty answer]", False)


def test_nobody_is_said_truthfully() -> None:
    clarify = find_tool(PlanningTools(TodoLists()), "clarify")
    output = asyncio.run(call(clarify, context(Path("/")), question="Anyone?"))
    assert output.error_kind == "denied"
    assert output.text.startswith("Nobody is here to answer.")


def test_questions_that_can_not_be_asked() -> None:
    clarify = find_tool(PlanningTools(TodoLists()), "clarify")
    with pytest.raises(BadInput, match="empty"):
        asyncio.run(call(clarify, context(Path("/")), question=" \n"))
    with pytest.raises(BadInput, match="at most 9"):
        asyncio.run(call(clarify, context(Path("/")), question="x?", choices=list("0123456789")))
