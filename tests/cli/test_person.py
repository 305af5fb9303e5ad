"""Lines become choices, and an interface without a person answers nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from whet.contract.protocols import ApprovalRequest, NobodyPresent
from whet.terminal.person import LinePerson, resolve_choice


def test_a_number_picks_a_choice() -> None:
    assert resolve_choice("2", ["a", "b"]) == "b"
    assert resolve_choice("3", ["a", "b"]) == "3"
    assert resolve_choice("my own", ["a"]) == "my own"


def test_nobody_answers_nothing() -> None:
    request = ApprovalRequest("s", "c", "terminal", "rm -rf x", ("deletes",))
    assert asyncio.run(NobodyPresent().approve(request)) is None
    assert asyncio.run(NobodyPresent().clarify("which?", ["a"])) is None


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The side of a terminal at which keys are typed; the program's side is standard input."""
    typed, read = os.openpty()
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typed
    os.close(typed)


async def test_the_rest_of_a_line_that_was_begun_before_the_question_is_no_answer(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    os.write(keyboard, b"I say ")
    asked = asyncio.create_task(LinePerson().approve(ApprovalRequest("s", "c", "terminal", "rm x", ())))
    shown = ""
    for count, line in ((1, b"yes\n"), (2, b"no\n")):
        while shown.count("Enter alone is no") < count:
            await asyncio.sleep(0)
            shown += capsys.readouterr().err
        os.write(keyboard, line)
    assert await asked == "no"


async def test_a_turn_is_stopped_before_its_question_is_answered(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    person, answers = LinePerson(), list[object]()

    async def turn() -> None:
        answers.append(await person.approve(ApprovalRequest("s", "c", "terminal", "rm x", ())))

    task = asyncio.create_task(turn())
    person.stop = task.cancel
    while "Enter alone is no" not in capsys.readouterr().err:
        await asyncio.sleep(0)
    os.write(keyboard, b"stop\n")
    await asyncio.wait({task})
    assert task.cancelled() and answers == []
