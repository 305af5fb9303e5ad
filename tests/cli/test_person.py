"""Lines become choices, and an interface without a person answers nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from whet.contract.protocols import ApprovalRequest, NobodyPresent, Reply
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


async def _type_at_prompts(
    keyboard: int,
    capsys: pytest.CaptureFixture[str],
    prompt: str,
    lines: tuple[tuple[bytes, float], ...],
    now: list[float],
) -> str:
    """Type each line that many seconds after its prompt was shown; return what was shown."""
    shown = ""
    for count, (line, later_s) in enumerate(lines, 1):
        while shown.count(prompt) < count:
            await asyncio.sleep(0)
            shown += capsys.readouterr().err
        await asyncio.sleep(0)
        now[0] += later_s
        os.write(keyboard, line)
    return shown


async def test_the_rest_of_a_line_that_was_begun_before_the_question_is_no_answer(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    person = LinePerson(now_s=lambda: now[0])
    os.write(keyboard, b"I say ")
    asked = asyncio.create_task(person.approve(ApprovalRequest("s", "c", "terminal", "rm x", ())))
    await _type_at_prompts(keyboard, capsys, "Enter alone is no", ((b"yes\n", 1.0), (b"no\n", 1.0)), now)
    assert await asked == "no"


@pytest.mark.fast_rows("yes")
@pytest.mark.parametrize("early", [b"yes\n", b"2\n", b"\n", b"stop\n"])
async def test_a_line_that_ends_sooner_than_a_question_can_be_read_answers_nothing(
    keyboard: int, capsys: pytest.CaptureFixture[str], early: bytes
) -> None:
    now = [0.0]
    person = LinePerson(now_s=lambda: now[0])
    asked = asyncio.create_task(person.approve(ApprovalRequest("s", "c", "terminal", "rm x", ())))
    lines = ((early, 0.08), (early, 0.45), (b"not now\n", 0.5))
    shown = await _type_at_prompts(keyboard, capsys, "Enter alone is no", lines, now)
    assert await asked == Reply("no", words="not now")
    assert shown.count("not an answer: this line came before the question could be read") == 2


async def test_a_line_from_before_the_models_question_is_no_answer_to_it(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    person = LinePerson(now_s=lambda: now[0])
    os.write(keyboard, b"1\n")
    asked = asyncio.create_task(person.clarify("Which?", ["drop the tables", "keep them"]))
    await _type_at_prompts(keyboard, capsys, "gives no answer", ((b"1\n", 0.08), (b"2\n", 1.0)), now)
    assert await asked == "keep them"


async def test_nothing_is_hidden_in_the_models_question_and_choices(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    person = LinePerson(now_s=lambda: now[0])
    asked = asyncio.create_task(
        person.clarify("Go to a\u202e\x1b[2Jb?", ["docs.org\u2044.evil.example", "no"])
    )
    shown = await _type_at_prompts(keyboard, capsys, "gives no answer", ((b"2\n", 1.0),), now)
    assert await asked == "no"
    assert "Go to a<U+202E>\\e[2Jb?" in shown and "docs.org\u2044<U+2044>.evil.example" in shown


async def test_a_turn_is_stopped_before_its_question_is_answered(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    person, answers = LinePerson(now_s=lambda: now[0]), list[object]()

    async def turn() -> None:
        answers.append(await person.approve(ApprovalRequest("s", "c", "terminal", "rm x", ())))

    task = asyncio.create_task(turn())
    person.stop = task.cancel
    await _type_at_prompts(keyboard, capsys, "Enter alone is no", ((b"stop\n", 1.0),), now)
    await asyncio.wait({task})
    assert task.cancelled() and answers == []
