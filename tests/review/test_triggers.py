"""When a turn calls for a review: pure counting, and the counters as they live in the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.review.rig import AGAIN, LESSON, SAID, bench, corrected, does, says, talk, use
from whet.clock import SystemClock
from whet.config.schema import ModelSettings, ReviewSettings
from whet.review.jobs import ReviewJob, Runtime, queue_review
from whet.review.triggers import count, find_trigger, reset_counters, shows_recovery
from whet.store import outcomes, reviews
from whet.store.reviews import Counters, ReviewedTurn, TurnCall
from whet_lab.practice.script import ScriptedReply

ALL = ReviewSettings()
BOTH = ("memory", "skill")


def call(name: str = "terminal", error: str = "", step: int = 1, **arguments: str) -> TurnCall:
    return TurnCall(step, name, json.dumps(arguments), error)


def facts(*calls: TurnCall, said: str = "go on") -> ReviewedTurn:
    return ReviewedTurn((said,), calls, 1000)


def counted(*turns: ReviewedTurn, settings: ReviewSettings = ALL, corrects: bool = False) -> Counters:
    counters = Counters()
    for turn in turns:
        counters = count(counters, turn, settings, corrects=corrects)
    return counters


def test_ten_turns_without_a_memory_write_call_for_memory() -> None:
    nine, ten = counted(*[facts()] * 9), counted(*[facts()] * 10)
    assert find_trigger(nine, ALL, BOTH) is None
    occasion = find_trigger(ten, ALL, BOTH)
    assert occasion and (occasion.kinds, occasion.reasons) == (("memory",), ("turns",))
    assert reset_counters(ten, ("memory",)).turns == 0
    written = counted(*[facts()] * 9, facts(call("memory")), facts())
    assert written.turns == 1, "a write sets the count back"
    assert counted(*[facts()] * 9, facts(call("memory", "refused"))).turns == 10, "a refused one does not"


def test_ten_steps_with_tools_without_a_skill_write_call_for_skills() -> None:
    steps = [call(step=step, command=f"make {step}") for step in range(1, 11)]
    two_in_one = [call(step=1, command="a"), call(step=1, command="b")]
    assert counted(facts(*two_in_one)).steps == 1
    occasion = find_trigger(counted(facts(*steps)), ALL, BOTH)
    assert occasion and (occasion.kinds, occasion.reasons) == (("skill",), ("steps",))
    after_write = [*steps[:8], call("skill_manage", step=9), call(step=10, command="x")]
    assert counted(facts(*after_write)).steps == 1
    assert count(Counters(4, 7), facts(call("skill_manage", "refused")), ALL) == Counters(5, 8, ())
    assert reset_counters(Counters(4, 7, ("recovery",)), ("skill",)) == Counters(4, 0)


def test_zero_switches_a_count_off_and_missing_tools_leave_a_kind_out() -> None:
    many = counted(*[facts(call(command="x"))] * 30)
    assert find_trigger(many, ReviewSettings(turns=0, steps=0), BOTH) is None
    only = find_trigger(many, ALL, ("skill",))
    assert only and only.kinds == ("skill",)
    assert find_trigger(many, ALL, ()) is None


def test_a_correction_counts_but_not_in_the_first_message_nor_where_it_was_written_down_at_once() -> None:
    assert counted(facts(), corrects=True).reasons == ("correction",)
    assert counted(facts()).reasons == ()
    assert counted(facts(), settings=ReviewSettings(on_correction=False), corrects=True).reasons == ()
    assert counted(facts(call("memory")), corrects=True).reasons == ()
    assert counted(facts(), facts(), corrects=True).reasons == ("correction",), "named once"
    while_it_worked = ReviewedTurn(("Run it", "no, that is wrong"), (), 10)
    assert count(Counters(), while_it_worked, ALL).reasons == ("correction",)
    occasion = find_trigger(counted(facts(), corrects=True), ALL, BOTH)
    assert occasion and occasion.kinds == BOTH


@pytest.mark.parametrize(
    ("calls", "is_recovery"),
    [
        ([call(command="pytest", error="exit"), call(command="./check")], True),
        (
            [call(command="npm test", error="exit"), call(command="ls"), call(command="npm test -- --ci")],
            True,
        ),
        ([call("ops", "failed", flag="a"), call("ops", flag="b")], True),
        # Mended and run again: work, not a lesson about the command.
        ([call(command="pytest", error="exit"), call("patch"), call(command="pytest")], False),
        ([call(command="pytest", error="exit"), call(command="cat x"), call(command="pytest")], False),
        ([call(command="grep x y", error="exit"), call(command="make")], False),
        ([call(command="pytest", error="exit"), call(command="ls -la")], False),
        ([call("patch", "failed", path="a"), call("patch", path="a", old="b")], False),
        ([call(command="rm -rf x", error="denied"), call(command="mv x y")], False),
        ([call(command="pytest", error="exit")], False),
        ([call(command="make")], False),
        ([TurnCall(1, "terminal", "{broken", "exit"), call(command="make")], True),
        ([call(command="make a", error="exit"), call(command="cd x && ls -l")], False),
        ([call(command="make a", error="exit"), call(command="ls && make b")], True),
        ([call(command="make a", error="exit"), call(command="")], True),
        ([call(command="make a", error="exit"), call(command="make b", error="exit")], False),
        ([call(command="make a", error="timeout"), call(command="make b")], True),
    ],
)
def test_a_failure_that_another_way_got_round(calls: list[TurnCall], is_recovery: bool) -> None:
    assert shows_recovery(calls) is is_recovery


@pytest.mark.parametrize(("between", "is_recovery"), [(5, True), (6, False)])
def test_another_way_is_found_within_six_calls_and_whatever_came_before(
    between: int, is_recovery: bool
) -> None:
    tried = call(command="pytest", error="exit")
    other = [call("patch", step=step, path="a") for step in range(between)]
    worked = [call("ops", step=step, flag="a") for step in range(between)]
    assert shows_recovery([tried, *worked, call(command="./check")]) is is_recovery
    assert shows_recovery([*worked, tried, *worked, call(command="./check")]) is is_recovery
    assert shows_recovery([tried, *other, call(command="./check")])  # edits are not calls of this kind


async def test_counters_outlive_the_process_and_the_session_object(tmp_path: Path) -> None:
    script = [says(f"answer {n}") for n in range(12)]
    settings = {"review.turns": "3", "review.on_correction": "false", "review.free_tokens": "1000000"}

    async def one(session_id: str) -> tuple[str, list[tuple[str, ...]], int]:
        async with bench(tmp_path, script, session_id=session_id, settings=settings) as b:
            await b.turn("another thing")
            counters = b.app.database.read_now(
                lambda db: reviews.get_counters(db, b.session.log.session.conversation_id)
            )
            return b.session.id, [event.kinds for event in b.queued], counters.turns

    first = await one("")
    assert first[1:] == ([], 1)
    assert (await one(first[0]))[1:] == ([], 2)
    assert (await one(first[0]))[1:] == ([("memory",)], 0)
    assert (await one(first[0]))[1:] == ([], 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"review.writes": "off"},
        {"tools.toolsets": "file,terminal"},
        {"store.private": "true"},
        {"review.on_correction": "false"},
        {"review.share": "0", "review.free_tokens": "0"},
    ],
)
async def test_no_job_where_none_may_be(tmp_path: Path, settings: dict[str, object]) -> None:
    async with bench(tmp_path, corrected(), settings=settings) as b:
        await talk(b)
        assert b.queued == [] and b.jobs() == []
        assert await b.review() == []
        assert len(b.server.requests) == 2


async def test_a_turn_that_failed_queues_nothing_and_what_it_showed_is_kept_for_the_next(
    tmp_path: Path,
) -> None:
    from whet_lab.practice.script import server_error

    script = [says("I ran pytest."), server_error(), says("Right."), does(LESSON), says("Saved.")]
    async with bench(tmp_path, script) as b:
        await b.turn("Run the tests")
        assert (await b.turn(SAID)).reason == "failed"
        assert b.queued == []
        await b.turn("again, please")
        assert [event.kinds for event in b.queued] == [("memory", "skill")]
        assert [done.state for done in await b.review()] == ["saved"]


@pytest.mark.slow
async def test_what_a_correction_has_done_again_is_marked_as_the_turn_before(tmp_path: Path) -> None:
    script = [
        does(use("terminal", command="echo tests all")),
        says("Done."),
        does(use("terminal", command="echo tests fast")),
        says("Done."),
    ]
    async with bench(tmp_path, script) as b:
        await b.turn("Run the tests")
        await b.turn(SAID)
        turn_outcomes = b.app.database.read_now(outcomes.list_turn_outcomes)
        assert [sorted(outcome.signals) for outcome in turn_outcomes] == [["correction"], []]


@pytest.mark.parametrize(("free", "queued"), [(38_199, [1]), (38_200, [1, 1]), (76_400, [1, 1, 2])])
async def test_what_waits_counts_as_spent_and_a_wider_review_is_none_more(
    tmp_path: Path, free: int, queued: list[int]
) -> None:
    usage: dict[str, Any] = {"prompt_tokens": 9_995, "completion_tokens": 5, "total_tokens": 10_000}
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    script = [ScriptedReply("I ran pytest.", usage=usage)] * 5
    settings = {"review.share": "0.1", "review.free_tokens": str(free)}
    async with bench(tmp_path, script, settings=settings) as b:
        await talk(b)  # the shortest excerpt with its instructions and what is written weighs 3,650
        await b.turn(AGAIN)
        b.session = await b.app.new_session()
        await talk(b)
        order = list(dict.fromkeys(event.job_id for event in b.queued))
        assert [order.index(event.job_id) + 1 for event in b.queued] == queued


@pytest.mark.parametrize(("is_plain", "has_room"), [(True, True), (False, False)])
async def test_a_waiting_review_without_a_model_counts_as_nothing(
    tmp_path: Path, is_plain: bool, has_room: bool
) -> None:
    usage: dict[str, Any] = {"prompt_tokens": 9_995, "completion_tokens": 5, "total_tokens": 10_000}
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    script = [ScriptedReply("I ran pytest.", usage=usage)] * 2
    settings = {"review.share": "0.1", "review.free_tokens": "48000", "review.turns": "2"}
    async with bench(tmp_path, script, settings={**settings, "review.on_correction": "false"}) as b:
        runtime = Runtime(ModelSettings())
        job = ReviewJob(b.session.id, 1, ("memory",), ("recovery",), runtime, 10_000, is_plain=is_plain)
        b.app.database.write_now(lambda db: queue_review(db, job, "another", SystemClock()))
        await talk(b)
        assert bool(b.queued) is has_room


async def test_jobs_of_one_conversation_fold_into_one_that_waits(tmp_path: Path) -> None:
    script = [*corrected(), says("ok"), says("nothing to save")]
    async with bench(tmp_path, script) as b:
        await talk(b)
        await b.turn(AGAIN)
        assert len({event.job_id for event in b.queued}) == 1 and len(b.queued) == 2
        asked = await b.app.reviews.queue_review(b.session.id, "the folder")
        assert asked.job_id == b.queued[0].job_id
        [job] = b.jobs()
        order = json.loads(job.payload)
        assert (order["turn"], order["reasons"], order["focus"]) == (3, ["correction", "asked"], "the folder")
        [done] = await b.review()
        assert (done.state, done.by_hand) == ("nothing", True)
        assert "the folder" in b.server.requests[-1].body.decode()


async def test_a_skill_written_in_the_foreground_is_seen(tmp_path: Path) -> None:
    script = [does(use("memory", action="add", content="Tests: ./check --fast here.")), says("Noted.")]
    async with bench(tmp_path, [says("hi"), *script], settings={"review.turns": "2"}) as b:
        await b.turn("hello")
        await b.turn("Remember: Tests run with ./check --fast here.")
        assert b.rows()[0].state == "active" and b.queued == []


@pytest.mark.parametrize(
    ("error", "between", "expected"),
    [
        ("error: run `tool prep ITEM` before `tool ship ITEM`", "tool prep box7", True),
        ("ModuleNotFoundError: No module named 'requests'", "pip install requests", True),
        ("connection reset by peer", "make clean", False),
        ("connection reset by peer", "", False),
    ],
)
def test_the_same_call_that_works_after_what_its_error_asked_for_was_got_round(
    error: str, between: str, expected: bool
) -> None:
    command = "tool ship box7"
    failed = TurnCall(1, "terminal", json.dumps({"command": command}), "exit", error)
    middle = [call(step=2, command=between)] if between else []
    assert shows_recovery([failed, *middle, call(step=3, command=command)]) is expected


def test_what_its_error_asked_for_counts_only_where_the_same_call_worked_after_it() -> None:
    failed = TurnCall(1, "terminal", json.dumps({"command": "tool ship"}), "exit", "run `tool prep` before")
    others = [call("ops", step=step, flag="a") for step in range(6)]
    asked, again = call(step=8, command="tool prep"), call(step=9, command="tool ship")
    assert not shows_recovery([failed, *others, asked, call(step=9, command="make")])
    assert shows_recovery([failed, *others, asked, again])
    assert not shows_recovery([failed, *others, again, asked])
