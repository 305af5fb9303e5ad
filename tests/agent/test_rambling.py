"""An answer without an end is cut, and the turn ends with a line; a long one that says something is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.rig import calls, rig
from whet.agent.rambling import AnswerGuard, find_period
from whet.agent.session import TurnLimits
from whet.contract.errors import Rambled
from whet_lab.practice.script import ScriptedReply

LIMITS = TurnLimits(90, 60, 50_000)


@pytest.mark.parametrize("unit", ["I will check the file again. ", "x", "Wait, no.\n" * 30 + "So: yes.\n"])
async def test_an_answer_that_repeats_itself_is_cut(tmp_path: Path, unit: str):
    reply = ScriptedReply("The answer is 4. " + unit * (40_000 // len(unit)), pieces=400)
    async with rig(tmp_path, [calls(("put", '{"what":"a"}')), reply], limits=LIMITS) as at:
        end = await at.turn("go")
        assert end.reason == "failed" and "repeated itself" in end.error and end.hint
        kept = at.session.log.messages[-1].text
        assert kept.startswith("The answer is 4. ") and len(kept) < 100 + 10 * len(unit)
        assert at.trace() == ["put a"]


async def test_reasoning_that_repeats_itself_is_cut_too(tmp_path: Path):
    reply = ScriptedReply(reasoning="Hmm, let me think. " * 2_000, text="4", pieces=200)
    async with rig(tmp_path, [reply], limits=LIMITS) as at:
        end = await at.turn("go")
        assert end.reason == "failed" and "repeated itself" in end.error
        assert end.usage.prompt_tokens > 0 < end.usage.completion_tokens, "what was cut was paid, too"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{n}. line" for n in range(4_000)),
        "\n".join(f"| {n % 7} | {n * n % 11} | {n} |" for n in range(2_000)),
        "=" * 3_000 + "\nA heading\n" + "-" * 3_000,
    ],
)
async def test_what_is_long_and_dull_is_an_answer(tmp_path: Path, text: str):
    async with rig(tmp_path, [ScriptedReply(text, pieces=300)], limits=LIMITS) as at:
        end = await at.turn("go")
        assert (end.reason, end.text) == ("answered", text)


async def test_the_cap_holds_and_says_which_setting_it_is(tmp_path: Path):
    text = " ".join(str(n * n) for n in range(20_000))
    async with rig(tmp_path, [ScriptedReply(text, pieces=900)], limits=LIMITS) as at:
        end = await at.turn("go")
        assert "50,000 characters" in end.error and "agent.answer_cap_chars" in end.hint
        assert at.session.log.messages[-1].text == text[:50_000]


def test_the_length_of_what_is_repeated():
    assert find_period("ab" * 5_000) == 2 and find_period("ab" * 2_000) == 0
    assert find_period("") == 0


@pytest.mark.parametrize(("times", "period"), [(8, 0), (9, 2_000)])
def test_a_long_text_is_repeated_once_it_came_eight_times_more(times: int, period: int) -> None:
    text = " ".join(str(n * n) for n in range(500))[:2_000]
    assert find_period(text * times) == period
    assert find_period(text * 4 + "But no. " + text * 5) == 0


def test_an_answer_may_have_as_many_characters_as_its_cap_and_no_more() -> None:
    guard = AnswerGuard(10)
    guard.feed("0123456789")
    assert guard.all_text() == "0123456789"
    with pytest.raises(Rambled, match="passed 10 characters"):
        guard.feed("x")
    assert guard.all_text() == "0123456789"


def test_of_an_answer_that_only_repeats_itself_two_rounds_are_kept() -> None:
    guard, unit = AnswerGuard(0), "I will look again. "
    with pytest.raises(Rambled, match=f"the last {len(unit)} characters"):
        guard.feed(unit * 1_000)
    assert guard.text == unit * 2


def test_a_repetition_is_noticed_within_2_000_characters() -> None:
    guard = AnswerGuard(0)
    guard.feed("".join(f"{n:04}" for n in range(750)) + "y" * 100)
    with pytest.raises(Rambled):
        for _ in range(60):
            guard.feed("y" * 100)


def test_the_shortest_repetition_is_found() -> None:
    assert find_period("The answer: " + "x" * 9_000) == 1
    assert find_period("The answer: " + "xy" * 9_000) == 2
