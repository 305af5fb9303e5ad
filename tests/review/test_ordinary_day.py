"""With shipped settings an ordinary day has its reviews, and they keep to their share of its cost."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.review.rig import Bench, bench, does, remember, says, use
from whet.contract.messages import Usage
from whet.review.jobs import read_review_job
from whet.review.spending import Weights, weigh
from whet.store import reviews
from whet_lab.practice.script import ScriptedReply

TURNS = 12
COMMANDS = 3
NOTHING = Usage()
CORRECTION = "No, the tests run with ./check --fast in this project."


def day_script(corrected: Collection[int]) -> list[ScriptedReply]:
    """Twelve turns of three commands each, whose results fill the context; a corrected turn does the work in
    the way that the person named. Reviews save the lesson."""
    work: list[ScriptedReply] = []
    for turn in range(TURNS):
        command = "./check --fast" if turn in corrected else "seq -s ' ' 1 900"
        work += [does(use("terminal", command=command), when=f"Task {turn}:")] * COMMANDS
        work.append(says("Done.", when=f"Task {turn}:"))
    lesson = remember("The tests run with ./check --fast.", "the tests run with ./check --fast")
    review = [does(lesson, when="Self-improvement review"), says("Saved.", when="Self-improvement review")]
    return [*review * TURNS, *work]


SILENT: dict[str, Any] = {"prompt_tokens_details": {}}


def silent(reply: ScriptedReply) -> ScriptedReply:
    """An answer of a server that reports no cached tokens."""
    return replace(reply, usage=SILENT)


async def test_each_look_of_a_day_reads_what_came_since_the_last_and_ends_when_its_lessons_are_taken(
    tmp_path: Path,
) -> None:
    lesson = remember("Reports go to Ines.", "Reports go to Ines Huber.")
    script = [
        *map(silent, [says("Fine."), says("Fine."), says("Fine.")]),
        silent(does(lesson)),
        *map(silent, [says("Good."), says("Good."), says("Good.")]),
        silent(does(remember("No.", "These words are nowhere."))),
        silent(says("Nothing.")),
    ]
    async with bench(tmp_path, script, settings={"review.worker": "off"}) as b:
        for text in ("What is a fjord?", "Reports go to Ines Huber.", "How deep is it?"):
            await b.turn(text)
        [first] = await b.review()
        assert (first.state, len(b.server.requests)) == ("saved", 4), "one request"
        for text in ("What is a skerry?", "Is it bare?", "How many are there?"):
            await b.turn(text)
        [second] = await b.review()
        assert (second.state, len(b.server.requests)) == ("nothing", 9), "a refused lesson is tried again"
        digest = b.server.requests[7].json_body["messages"][1]["content"]
        assert "What is a skerry?" in digest and "How deep is it?" in digest
        assert "What is a fjord?" not in digest
        assert [read_review_job(row.payload).reasons for row in b.listed()] == [("day",), ("day",)]


async def live_day(b: Bench, corrected: Collection[int]) -> None:
    for turn in range(TURNS):
        text = CORRECTION if turn in corrected else "go on with the next file."
        end = await b.turn(f"{text} Task {turn}: go on." if turn in corrected else f"Task {turn}: {text}")
        assert end.reason == "answered", end
        await b.review()


def spend_day(tmp_path: Path, corrected: Collection[int]) -> tuple[list[reviews.ReviewRow], reviews.DayUsage]:
    (tmp_path / "work").mkdir()
    check = tmp_path / "work" / "check"
    check.write_text("#!/bin/sh\nseq -s ' ' 1 900\n")
    check.chmod(0o755)

    async def main() -> tuple[list[reviews.ReviewRow], reviews.DayUsage]:
        async with bench(tmp_path, day_script(corrected), settings={"review.worker": "off"}) as b:
            await live_day(b, corrected)
            return b.listed(), b.app.database.read_now(lambda db: reviews.usage_since(db, ""))

    return asyncio.run(main())


def share_of(day: reviews.DayUsage, but: Usage = NOTHING) -> float:
    reviewed, others, left_out = (weigh(usage, Weights()) for usage in (day.reviews, day.others, but))
    return (reviewed - left_out) / (reviewed + others)


@pytest.mark.slow
@pytest.mark.parametrize("corrected", [{1}, {4}, {10}, {4, 7, 10}])
def test_a_day_with_corrections_is_reviewed_with_shipped_settings(
    tmp_path: Path, corrected: Collection[int]
) -> None:
    listed, day = spend_day(tmp_path, corrected)
    corrections = [row for row in listed if "correction" in read_review_job(row.payload).reasons]
    assert corrections and {row.state for row in corrections} == {"done"}
    assert any("Memory updated" in row.summary for row in listed), listed
    first = corrections[-1].usage
    assert share_of(day, but=first) <= 0.08, "all but the first review for a correction keep to the share"


@pytest.mark.slow
def test_a_day_without_corrections_keeps_to_the_share(tmp_path: Path) -> None:
    _, day = spend_day(tmp_path, ())
    assert share_of(day) <= 0.08
