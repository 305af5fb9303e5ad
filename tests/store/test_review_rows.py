"""Reviews as rows, what they have spent, and the lists that they begin with."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.json import encode

from tests.store.support import (
    ONLY_SQLITE,
    USAGE,
    answer,
    asking,
    new_log,
    on,
    reply_and_end,
    result,
    talk,
    user,
)
from whet.contract.errors import StoreError
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.origin import Origin, WriteOrigin
from whet.contract.receipts import CallEffects
from whet.contract.tools import ToolOutput
from whet.store import (
    api,
    calls,
    compactions,
    jobs,
    learned,
    ledger,
    lesson_counts,
    reviews,
    session_deletion,
    sessions,
    trail,
)
from whet.store.ledger import NewRow, State
from whet.store.lesson_counts import LearningNews
from whet.store.reviews import Counters, DaySpending, ReviewRow
from whet.store.sessions import NewSession

pytestmark = pytest.mark.slow_rows("postgres")


def facts(**fields) -> str:
    return encode(CallEffects(**fields)).decode()


def queued(db, clock, session: str) -> str:
    clock.advance(1)
    id_ = on(db, jobs.enqueue, jobs.NewJob("review", f'"{session}"', subject=session), clock)
    on(db, reviews.add, id_, session)
    return id_


def test_a_reviews_course_is_kept(db, clock):
    asyncio.run(talk(db, clock, "s1", "one"))
    asyncio.run(talk(db, clock, "s2", "two"))
    on(db, jobs.enqueue, jobs.NewJob("other", "{}"), clock)
    first, second = queued(db, clock, "s1"), queued(db, clock, "s2")
    assert len(on(db, reviews.list_open_payloads)) == 2
    assert on(db, reviews.read_view, first) == ("", "[]") == on(db, reviews.read_view, "none")
    child = NewSession("child", parent_session_id="s1", kind="review", model="small")
    assert on(db, reviews.begin_review, first, child, "[1,2]", "t").id == "child"
    assert on(db, reviews.read_view, first) == ("child", "[1,2]")
    assert [on(db, reviews.count_failure, first, note) for note in ("a", "b")] == [1, 2]
    assert on(db, reviews.count_failure, "none", "x") == 1
    on(db, reviews.finish, first, "learned 1", "well", "t9")

    kept, waits = on(db, reviews.list_reviews)[::-1]
    payload = '"s1"'
    assert kept == ReviewRow(
        first,
        "s1",
        "child",
        "waiting",
        payload,
        kept.created,
        "t9",
        "learned 1",
        "well",
        0,
        2,
        "small",
        Usage(cost_usd=0.0),
    )
    assert (waits.id, waits.review_session_id, waits.finished, waits.note) == (second, "", "", "")
    assert waits.usage == Usage(cost_usd=0.0)

    def ids(**filters):
        return [row.id for row in on(db, reviews.list_reviews, **filters)]

    assert ids(session_id="s2") == [second] and ids(review_id="chi") == [first] and ids(limit=1) == [second]
    assert ids(review_id=first[:-1]) == [second, first] and ids(review_id="child", session_id="s2") == []
    on(db, reviews.start_over, first, "[7]")
    assert on(db, reviews.read_view, first) == ("", "[7]")


def test_counters_are_kept_for_each_conversation(db):
    assert on(db, reviews.get_counters, "c") == Counters(0, 0, (), "")
    for new in (Counters(1, 2, ("asked",), "m"), Counters(3, 4, ("a", "b"), "n")):
        on(db, reviews.set_counters, "c", new)
        assert on(db, reviews.get_counters, "c") == new and on(db, reviews.get_counters, "d") == Counters()


def test_a_days_spending_counts_reviews_that_still_run(db, clock):
    since = "2026-11-21"
    assert on(db, reviews.spent_since, since) == DaySpending(0, 0, 0.0)

    async def turn(id_: str, *, ends: bool, usage: Usage, **fields):
        log = await new_log(db, clock, id_, **fields)
        record = await log.begin_turn(user("x"))
        await log.append_reply(record, answer("ok"), usage, "m")
        if ends:
            await log.end_turn(record, "answered", "")

    asyncio.run(turn("s1", ends=True, usage=USAGE))
    assert on(db, reviews.spent_since, since) == DaySpending(0, 15, 0.0)
    child = {"parent_session_id": "s1", "kind": "review"}
    asyncio.run(turn("r1", ends=True, usage=USAGE, **child))
    assert on(db, reviews.spent_since, since) == DaySpending(15, 15, 0.5)
    job = queued(db, clock, "s1")
    asyncio.run(turn("r2", ends=False, usage=USAGE, **child))
    key = on(db, sessions.key_of, "r2")
    db.write_now(lambda c: c.execute("UPDATE reviews SET child = ?", (key,)))
    assert on(db, reviews.spent_since, since) == DaySpending(15, 15, 0.5), "it waits"
    on(db, jobs.lease, ("review",), "w", 60, clock)
    assert on(db, reviews.spent_since, since) == DaySpending(30, 15, 1.0)
    assert on(db, reviews.spent_since, "2027") == DaySpending(15, 0, 0.5), "it runs still"
    db.write_now(lambda c: c.execute("UPDATE sessions SET cost_usd = NULL WHERE id = 'r1'"))
    assert on(db, reviews.spent_since, since) == DaySpending(30, 15, None)
    db.write_now(lambda c: c.execute("UPDATE sessions SET cost_usd = NULL WHERE id = 's1'"))
    db.write_now(lambda c: c.execute("UPDATE sessions SET cost_usd = 0.25 WHERE id = 'r1'"))
    assert on(db, reviews.spent_since, since) == DaySpending(30, 15, 0.75), "others' price is nobody's"
    assert on(db, reviews.read_view, job)[0] == "r2"


@ONLY_SQLITE
async def test_short_conversations_since_the_last_review_but_one_are_given(db, clock):
    for id_ in ("a", "b", "c", "d"):
        await talk(db, clock, id_, "x", workspace="/w")
    await talk(db, clock, "elsewhere", "x", workspace="/v")
    await talk(db, clock, "web", "x", workspace="/w", source="web")
    await talk(db, clock, "ann's", "x", workspace="/w", profile="ann")
    await talk(db, clock, "hidden", "x", workspace="/w", private=True)
    await talk(db, clock, "helper", "x", workspace="/w", kind="child")
    await talk(db, clock, "two turns", "x", "y", workspace="/w")
    await talk(db, clock, "three", "x", "y", "z", workspace="/w")
    await new_log(db, clock, "empty", workspace="/w")
    await talk(db, clock, "mine", "x", workspace="/w")
    await talk(db, clock, "later", "x", workspace="/w")
    mine = on(db, sessions.get, "mine")
    assert on(db, reviews.list_unreviewed_ids, mine, 9) == ["two turns", "d", "c", "b", "a"]
    for number, reviewed in enumerate(("a", "c", "elsewhere", "later")):
        on(db, reviews.add, f"j{number}", reviewed)
        on(db, reviews.add, f"again{number}", reviewed)
    assert on(db, reviews.list_unreviewed_ids, mine, 9) == ["two turns", "d", "c", "b"]


def test_what_a_review_is_shown_is_the_list_of_its_turns_last_request(db, clock):
    async def main():
        log = await new_log(db, clock)
        for text in ("one", "two"):
            turn = await log.begin_turn(user(text))
            await reply_and_end(log, turn, "ok")
        await compactions.record(log, None, [user("short"), log.live.messages[-1]], "e", 90, 30)
        turn = await log.begin_turn(user("three"))
        await log.append_user(turn, user("and"))
        await log.append_reply(turn, answer("ok"), Usage(prompt_tokens=70), "m")
        await log.append_user(turn, user("late"))
        await log.end_turn(turn, "answered", "")
        await compactions.record(log, None, [user("shorter")], "f", 50, 60)
        return log

    log = asyncio.run(main())
    key = log.live.key
    assert on(db, compactions.view_after, key, 1) == "[1,2]"
    assert on(db, compactions.view_after, key, 2) == "[1,2,3,4]", "nothing was asked of the model since"
    view = on(db, compactions.view_after, key, 3)
    assert [message.text for message in on(db, compactions.read_view, key, view)] == [
        "short",
        "ok",
        "three",
        "and",
        "ok",
        "late",
    ]
    assert on(db, compactions.counts_after, key, 2) == [70] == asyncio.run(compactions.last_counts(log))
    assert on(db, compactions.counts_after, key, 1) == []
    sums = on(db, compactions.sum_compactions, "s1")
    assert (sums.count, sums.saved_tokens, sums.engine) == (2, 60, "f")

    async def more():
        turn = await log.begin_turn(user("four"))
        await log.append_reply(turn, answer("ok"), Usage(prompt_tokens=90), "m")
        await log.append_reply(turn, answer("ok"), Usage(prompt_tokens=91), "m")
        await log.end_turn(turn, "answered", "")

    asyncio.run(more())
    assert on(db, compactions.counts_after, key, 2) == [70, 90]
    assert on(db, compactions.counts_after, key, 1) == [90]


async def test_calls_that_ran_at_a_time_or_left_a_process_behind(db, clock):
    begun = clock.unix_ms()

    async def call(log, turn, name: str, seconds: float, **effects):
        asked = Message("assistant", "", (ToolCall(name, "terminal", f'{{"command": "{name}"}}'),))
        await log.append_reply(turn, asked, USAGE, "m")
        [open_call] = log.open_calls(turn)
        await log.store_call_start(turn, open_call, "rule")
        clock.advance(seconds)
        output = ToolOutput("ok", facts=facts(command=name, **effects))
        await log.store_call_result(turn, open_call, result(open_call), output=output, duration_s=seconds)
        log.live.fold_results()
        clock.advance(1)

    log = await new_log(db, clock, workspace="/w")
    turn = await log.begin_turn(user("go"))
    await call(log, turn, "make", 10)
    await call(log, turn, "server", 1, runs_on="p1")
    await call(log, turn, "poll", 1, over="p2")
    await call(log, turn, "stop", 1, over="p1")
    await log.append_reply(turn, asking("ask"), USAGE, "m")
    [open_call] = log.open_calls(turn)
    await log.store_call_start(turn, open_call, "rule")
    clock.advance(5)

    def running(second: float) -> list[str]:
        past_calls = db.read_now(lambda c: list(calls.find_running_calls(c, begun + round(second * 1000))))
        return [past_call.effects.command or past_call.name for past_call in past_calls]

    # make 0-10, server 11-12 and its process, poll 13-14, stop 15-16, ask from 17 on
    assert [running(second) for second in (0, 10.02, 10.021, 10.979, 10.98)] == [
        ["make"],
        ["make"],
        [],
        [],
        ["server"],
    ]
    assert [running(second) for second in (11, 12.5, 13.5, 14.5, 16)] == [
        ["server"],
        ["server"],
        ["server", "poll"],
        ["server"],
        ["server", "stop"],
    ]
    assert [running(second) for second in (16.02, 16.021, 17, 20)] == [
        ["server", "stop"],
        [],
        ["ask"],
        ["ask"],
    ]

    key = on(db, sessions.key_of, "s1")
    [past_call] = db.read_now(lambda c: list(calls.find_calls_naming(c, "/w", "server")))
    assert past_call == calls.PastCall(
        key, 5, "terminal", '{"command": "server"}', CallEffects(command="server", runs_on="p1")
    )
    assert db.read_now(lambda c: list(calls.find_calls_naming(c, "/v", "server"))) == []
    newest = db.read_now(lambda c: [one.effects.command for one in calls.find_calls_naming(c, "/w", "p1")])
    assert newest == ["stop", "server"]
    assert [calls.has_received_bytes(text) for text in (None, "", facts(), facts(received=True))] == [
        None,
        None,
        None,
        True,
    ]


async def test_the_calls_of_a_tool_that_worked_are_read_again(db, clock):
    log = await new_log(db, clock)
    for text, kinds in (("one", ("", "failed", "")), ("two", ("",))):
        turn = await log.begin_turn(user(text))
        tool_calls = tuple(
            ToolCall(f"c{number}", "b" if number == 2 else "a", f'{{"command": "{text}{number}"}}')
            for number in range(len(kinds))
        )
        await log.append_reply(turn, Message("assistant", "", tool_calls), USAGE, "m")
        for code, (open_call, kind) in enumerate(zip(log.open_calls(turn), kinds, strict=True)):
            output = ToolOutput("x", kind, code)
            await log.store_call_result(turn, open_call, result(open_call), output=output, duration_s=0.0)
        log.live.fold_results()
        await log.append_reply(turn, asking("a"), USAGE, "m")
        await log.end_turn(turn, "answered", "")
    steps, _ = db.read_now(lambda c: trail.read_trail(c, "s1", ("command",), 0, 9))
    assert [(step.seq, step.item.value, step.exit_code) for step in steps] == [
        (9, "two0", 0),
        (2, "one0", 0),
        (2, "one1", 1),
        (2, "one2", 2),
    ]
    assert db.read_now(lambda c: trail.list_arguments(c, "s1", "a")) == [
        '{"command": "one0"}',
        '{"command": "two0"}',
    ]
    assert db.read_now(lambda c: trail.list_arguments(c, "s1", "b")) == ['{"command": "one2"}']
    await log.undo_last_turn()
    assert db.read_now(lambda c: trail.list_arguments(c, "s1", "a")) == ['{"command": "one0"}']


def test_a_clients_key_leads_to_one_session(db, clock):
    for id_ in ("s1", "s2", "s4"):
        asyncio.run(new_log(db, clock, id_))
    on(db, api.set_owner, "s1", "ann", "named")
    assert [on(db, api.find_token_name, id_) for id_ in ("s1", "s4", "gone")] == ["ann", None, None]
    on(db, api.set_owner, "s2", "ann", "named")
    assert on(db, api.find_session, "ann", "named") == "s2"
    assert on(db, api.find_owner, "s1").client_key == "", "no two have the same"
    assert on(db, api.find_owner, "s4") is None


async def test_the_newest_step_with_tools_is_the_sessions_newest_until_something_is_said(db, clock):
    log = await new_log(db, clock, "s1")
    assert on(db, api.last_step, "s1") == ((), False)
    for word in ("a", "b"):
        turn = await log.begin_turn(user("go"))
        await log.append_reply(turn, asking("look", "read", ids=(f"{word}1", f"{word}2")), USAGE, "m")
        assert on(db, api.last_step, "s1") == (((turn.id, f"{word}1"), (turn.id, f"{word}2")), True)
        for open_call in log.open_calls(turn):
            await log.store_call_result(
                turn, open_call, result(open_call), output=ToolOutput("ok"), duration_s=0
            )
        log.live.fold_results()
        assert on(db, api.last_step, "s1")[1]
        await log.append_reply(turn, answer("ok"), USAGE, "m")
        assert on(db, api.last_step, "s1") == (((turn.id, f"{word}1"), (turn.id, f"{word}2")), False)
        await log.end_turn(turn, "answered", "")
    await log.undo_last_turn()
    assert [call for _, call in on(db, api.last_step, "s1")[0]] == ["a1", "a2"]


async def test_a_tip_finds_the_session_whose_newest_turn_it_is_and_none_of_two(db, clock):
    turns = []
    for id_ in ("s1", "s2"):
        log = await new_log(db, clock, id_)
        turns.append((await log.begin_turn(user("hi"))).id)
    on(db, api.keep_tips, "s1", "no such turn", ["tip:1"])
    assert on(db, api.find_response, "tip:1") is None
    on(db, api.keep_tips, "s1", turns[0], ["tip:1"])
    assert on(db, api.find_response, "tip:1") == ("s1", True)
    on(db, api.keep_tips, "s1", turns[0], ["tip:2"])
    assert on(db, api.find_response, "tip:1") is None
    on(db, api.keep_tips, "s2", turns[1], ["tip:2"])
    assert on(db, api.find_response, "tip:2") == ("s1", False)
    on(db, api.keep_tips, "s1", turns[0], ["tip:3"])
    on(db, api.keep_tips, "s2", turns[1], ["tip:2"])
    assert on(db, api.find_response, "tip:2") == ("s1", False), "for good"
    assert on(db, api.find_response, "tip:3") == ("s1", True)


@ONLY_SQLITE
def test_a_prefix_is_kept_once_and_changes_only_before_something_was_said(db, clock):
    on(db, sessions.create, NewSession("s1", system_prompt="p", tools_json="[]", prime_json="[1]"), "t")
    on(db, sessions.create, NewSession("r", parent_session_id="s1", kind="review"), "t")
    on(db, sessions.create, NewSession("h", parent_session_id="s1", kind="child"), "t")
    on(db, sessions.create, NewSession("own", parent_session_id="s1", kind="review", prime_json="[2]"), "t")
    assert [on(db, sessions.read_prime, id_) for id_ in ("s1", "r", "h", "own", "gone")] == [
        "[1]",
        "[1]",
        "",
        "[2]",
        "",
    ]
    on(db, sessions.set_prime, "s1", "p2", "[3]")
    assert on(db, sessions.read_prefix, "s1") == ("p2", "[]") and on(db, sessions.read_prime, "s1") == "[3]"
    on(db, sessions.freeze_prefix, "s1", "p3", "[4]")
    assert on(db, sessions.read_prefix, "s1") == ("p3", "[4]")
    asyncio.run(talk(db, clock, "said", "x"))
    with pytest.raises(StoreError, match="can't change"):
        on(db, sessions.set_prime, "said", "p", "[]")
    on(db, sessions.freeze_prefix, "gone", "p", "[]")
    assert on(db, session_deletion.filter_existing_ids, {"s1", "gone"}) == {"s1"}
    kept = db.read_now(lambda c: c.execute("SELECT count(*) FROM frozen_texts WHERE text = '[1]'").fetchall())
    assert kept == [(1,)]


@ONLY_SQLITE
def test_what_a_review_came_to_is_told_once(db):
    def change(state: State, task: str = "", write_origin: WriteOrigin = "review", profile: str = "") -> int:
        origin = Origin(
            session_id="s1",
            turn_id="t1",
            tool_call_id="",
            parent_session_id="",
            write_origin=write_origin,
            task_id=task,
        )
        row = NewRow("memory", "user", "add", state, origin, profile=profile)
        return on(db, ledger.insert_row, row, "now").id

    change("active", "j1")
    change("refused", "j1")
    change("active", write_origin="foreground")
    on(db, lesson_counts.mark_task_read, "j0")
    assert on(db, learned.read_report_position, "") == 0
    on(db, lesson_counts.mark_task_read, "j1")
    assert on(db, learned.read_report_position, "") == 2
    assert on(db, lesson_counts.count_unread) == LearningNews(until=2)
    inbox = change("inbox", "j2")
    change("quarantined", "j3")
    last = change("active", "j3")
    change("active", "j4", profile="ann")
    on(db, lesson_counts.mark_task_read, "j3")
    assert on(db, learned.read_report_position, "") == 2, "what is older is not told yet"
    on(db, lesson_counts.mark_task_read, "j2")
    assert on(db, learned.read_report_position, "") == inbox
    news = LearningNews(1, 0, 1, last)
    assert on(db, lesson_counts.count_unread) == news == on(db, lesson_counts.take_unread) and on(
        db, lesson_counts.take_unread
    ) == LearningNews(until=last)
    on(db, lesson_counts.mark_task_read, "j2")
    assert on(db, learned.read_report_position, "") == last, "it never goes back"
    assert [row.state for row in on(db, lesson_counts.list_waiting)] == ["quarantined", "inbox"]
    assert [row.state for row in on(db, lesson_counts.list_refusals)] == ["refused"]
    assert on(db, lesson_counts.count_unread, "ann").learned == 1
    assert news.line == "since you left: learned 1, waiting for you 1 (whet review inbox)"
    assert LearningNews(2, 0, 0, 9).line_with("/in", "/log") == "since you left: learned 2 (/log)"
    assert LearningNews(0, 1, 0, 9).line_with("/in", "/log") == "since you left: refused 1 (/in)"
    assert LearningNews(until=9).line == ""
