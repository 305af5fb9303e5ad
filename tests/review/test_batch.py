"""Short one-shots of a folder: counted together, reviewed together, within the day's share."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.review.rig import Bench, bench, does, remember, says, use
from whet.agent.loop import run_turn
from whet.memory import undo
from whet.review.spending import Weights, forecast, weigh
from whet.store import reviews, sessions
from whet.store.ledger import LedgerRow

PLENTY: dict[str, object] = {"review.free_tokens": "1000000000"}
WISH = "I always want metric units in answers."


async def one_shot(b: Bench, text: str, *, private: bool = False) -> str:
    session = await b.app.new_session(private=private)
    end = await run_turn(session, session.user_message(text), b.events.append)
    assert end.reason == "answered", end
    return session.id


async def test_the_last_of_so_many_one_shots_of_a_folder_has_all_of_them_reviewed_at_once(
    tmp_path: Path,
) -> None:
    wish = remember("Metric units.", WISH, target="user")
    script = [*[says("Done.")] * 4, does(wish), says("Saved."), says("Done.")]
    async with bench(tmp_path, script, settings={**PLENTY, "review.turns": "3"}) as b:
        first = await one_shot(b, f"How tall is it? {WISH}")
        secret = await one_shot(b, "The codeword is heron.", private=True)
        second = await one_shot(b, "Question 2: how wide is it?")
        assert not b.queued
        last = await one_shot(b, "And how deep?")
        assert len(b.queued) == 1
        [job] = b.jobs()
        order = json.loads(job.payload)
        assert (order["session_id"], order["others"]) == (last, [second, first]), secret
        [done] = await b.review()
        assert done.state == "saved"
        asked = b.server.requests[4].body.decode()
        assert WISH in asked and "Question 2" in asked and "heron" not in asked
        [row] = b.rows()
        assert (row.state, row.evidence[0].session_id) == ("active", first)
        assert [step.row.id for step in steps_of(b, first)] == [row.id]
        await one_shot(b, "And how high?")
        assert len(b.queued) == 1, "the count has started over"


async def test_other_one_shots_share_4000_tokens_of_the_review(tmp_path: Path) -> None:
    script = [*[says("Done.")] * 3, says("Nothing.")]
    async with bench(tmp_path, script, settings={**PLENTY, "review.turns": "3"}) as b:
        for size in (7_960, 8_000, 10):
            await one_shot(b, "How wide is it? ".ljust(size, "x"))
        await b.review()
        content = b.server.requests[-1].json_body["messages"][-1]["content"]
        others = re.findall("<conversation>\n(.*?)\n</conversation>", content, re.DOTALL)
        assert ["characters cut" in text for text in others] == [False, True]


async def test_of_another_one_shots_results_only_what_came_from_this_machine_is_shown(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "here.txt").write_text("It is 12 m wide.")
    looks = [use("read_file", path="here.txt"), use("session_search", query="heron")]
    script = [says("The heron said: go left."), does(looks[0]), does(looks[1]), *[says("Done.")] * 2]
    settings = {**PLENTY, "review.turns": "3"}
    async with bench(tmp_path, [*script, says("Nothing.")], settings=settings) as b:
        for text in ("Where do I go from heron hill?", "How wide is it?", "And how deep?"):
            await one_shot(b, text)
        await b.review()
        content = b.server.requests[-1].json_body["messages"][-1]["content"]
        [_, other] = re.findall("<conversation>\n(.*?)\n</conversation>", content, re.DOTALL)
        assert "It is 12 m wide." in other and "go left" not in other
        assert other.count("[left out: it came from elsewhere]") == 1


async def test_ten_one_shots_at_most_are_looked_at_with_the_one_that_calls_for_it(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Done.")] * 18, settings=PLENTY) as b:
        ids: list[str] = []
        for count in (3, 3, 10):
            ids += [await one_shot(b, "How wide?") for _ in range(count)]
            await b.review()
        orders = [json.loads(row.payload) for row in b.listed()]
        assert [order["reasons"] for order in orders] == [["turns"], ["day"], ["day"]]
        assert orders[0]["others"] == ids[-2:-12:-1]


async def test_a_conversation_that_goes_on_is_no_one_shot_of_its_folder(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Done.")] * 4, settings=PLENTY) as b:
        await one_shot(b, "How far?")
        session = await b.app.new_session()
        counted: list[int] = []
        for text in ("How wide?", "How deep?", "How high?"):
            await run_turn(session, session.user_message(text), b.events.append)
            folder = f"folder:{session.log.session.workspace}"
            counted.append(
                b.app.database.read_now(lambda db, key=folder: reviews.get_counters(db, key)).turns
            )
        assert counted == [2, 2, 1], "one of two turns has no review of its own"


async def test_a_one_shot_that_was_reviewed_and_goes_on_leaves_its_folders_count_at_nothing(
    tmp_path: Path,
) -> None:
    settings = {**PLENTY, "review.turns": "1"}
    async with bench(tmp_path, [says("Done.")] * 3, settings=settings) as b:
        for counted in (0, 0, 0):
            await b.turn("How wide?")
            folder = f"folder:{b.session.log.session.workspace}"
            counters = b.app.database.read_now(lambda db, key=folder: reviews.get_counters(db, key))
            assert counters.turns == counted


async def test_conversations_of_two_turns_are_reviewed_with_the_third_of_their_folder(tmp_path: Path) -> None:
    wish = remember("Metric units.", WISH, target="user")
    script = [*[says("Done.")] * 5, does(wish), says("Saved.")]
    async with bench(tmp_path, script, settings=PLENTY) as b:
        for texts in (("Hello.", f"How tall is it? {WISH}"), ("And how wide?", "Thanks.")):
            session = await b.app.new_session()
            for text in texts:
                await run_turn(session, session.user_message(text), b.events.append)
        assert not b.queued
        await one_shot(b, "And how deep?")
        [done] = await b.review()
        assert done.state == "saved" and WISH in b.rows()[0].after


def steps_of(b: Bench, session_id: str) -> list[undo.ForgetStep]:
    return b.app.database.read_now(lambda db: undo.plan_forgetting(db, "", session_id))


@pytest.mark.slow
async def test_of_quotes_from_two_conversations_one_is_kept_and_nothing_is_joined(tmp_path: Path) -> None:
    both = use("memory", action="add", content="Both.", evidence=[WISH, "The offices are in Bergen."])
    script = [*[says("Done.")] * 10, does(both), says("Nothing.")]
    async with bench(tmp_path, script, settings=PLENTY) as b:
        for text in (WISH, "The offices are in Bergen.", *[f"Question {n}" for n in range(8)]):
            await one_shot(b, text)
        await b.review()
        [row] = b.rows()
        assert row.state == "active" and len(row.evidence) == 1
        assert (WISH in row.after) != ("Bergen" in row.after), "a lesson is of one conversation"


@pytest.mark.slow
async def test_what_a_one_shot_called_for_waits_in_its_folder_until_there_is_room(tmp_path: Path) -> None:
    got_round = [
        does(use("terminal", command="exit 3")),
        does(use("terminal", command="true && true")),
        says("Done."),
    ]
    async with bench(tmp_path, got_round, settings={"review.free_tokens": "0"}) as b:
        first = await one_shot(b, "Do it.")
        [plain] = b.jobs()
        assert json.loads(plain.payload)["is_plain"], "one by a model would take more than its share"
        assert (await b.review())[0].state != "saved"
    async with bench(tmp_path, [says("Done."), says("Nothing.")], settings=PLENTY) as b:
        await one_shot(b, "And that.")
        orders = [json.loads(job.payload) for job in b.jobs()]
        [order] = [order for order in orders if not order.get("is_plain")]
        assert (order["reasons"], order["others"]) == (["recovery"], [first])


@pytest.mark.slow
async def test_one_shots_that_only_plain_reviews_looked_at_are_read_with_the_next(tmp_path: Path) -> None:
    got_round = [
        does(use("terminal", command="exit 3")),
        does(use("terminal", command="true && true")),
        says("Done."),
    ]
    async with bench(tmp_path, got_round * 2, settings={"review.free_tokens": "0"}) as b:
        seen = [await one_shot(b, text) for text in ("Do it.", "Do it again.")]
        assert [done.state for done in await b.review()] == ["nothing", "nothing"]
        assert len(b.server.requests) == 6, "no model was asked"
    async with bench(tmp_path, [says("Done.")], settings=PLENTY) as b:
        await one_shot(b, "And that.")
        [order] = [json.loads(job.payload) for job in b.jobs() if job.state == "waiting"]
        assert order["others"] == seen[::-1]


@pytest.mark.slow
def test_a_review_that_would_pass_its_share_is_stopped_and_keeps_what_it_saved(tmp_path: Path) -> None:
    text = "No, the tests run with ./check --fast in this project."
    lesson = remember("Tests.", "the tests run with ./check --fast")
    looks = [does(use("read_file", path=f"{number}.txt")) for number in range(12)]
    script = [says("I ran pytest."), says("Understood."), does(lesson, use("todo")), *looks, says("Done.")]

    async def main(free: int) -> tuple[list[LedgerRow], reviews.ReviewRow, int]:
        settings: dict[str, Any] = {"review.share": "0.5", "review.free_tokens": str(free)}
        work = tmp_path / str(free) / "work"
        work.mkdir(parents=True)
        for number in range(12):
            (work / f"{number}.txt").write_text("\n".join(f"line {at} of {number}" for at in range(600)))
        async with bench(tmp_path / str(free), script, settings=settings) as b:
            await b.turn("Run the tests")
            await b.turn(text)
            await b.review()
            [listed] = b.listed()
            used = b.app.database.read_now(lambda db: sessions.get(db, b.session.id)).usage.total_tokens
            return b.rows(), listed, used

    _, whole, used = asyncio.run(main(1_000_000_000))
    rows, stopped, used = asyncio.run(main(used))
    assert [row.state for row in rows] == ["active"]
    assert stopped.state == "done" and "share" in stopped.note
    expected = forecast(used, (24_000, 0), Weights(), is_cached=True)
    assert expected is not None
    assert weigh(stopped.usage, Weights()) <= expected.first_of_day < weigh(whole.usage, Weights())
