"""How much of a list stays, how long a summary may be: exact sizes, on rows of a known number of tokens."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.context.talk import BODY, Model
from whet.context import rows as chat
from whet.context import summary
from whet.context.default_compaction import (
    CompactionPlan,
    SummarisedRows,
    SummaryOptions,
    plan_compaction,
    prune_only,
    summarise_plan,
)
from whet.context.summariser import Failure
from whet.context.summary import Summary
from whet.contract.context_engine import ChatRows


def row(role: str, tokens: int, seq: int) -> dict[str, Any]:
    """A message of exactly so many tokens."""
    fields = {"role": role, "content": ("word" * tokens)[: (tokens - 4) * 4], "_seq": seq}
    assert chat.tokens_of(fields) == tokens
    return fields


def talk(count: int, tokens: int = 100) -> ChatRows:
    """Questions and answers in turn."""
    return [row(("user", "assistant")[at % 2], tokens, at + 1) for at in range(count)]


def planned(rows: ChatRows, size: int, threshold: int, head: int = 3) -> CompactionPlan:
    plan = plan_compaction(rows, size, threshold, head)
    assert plan is not None
    return plan


def order(model: Model, context_length: int = 1_000_000, **given: Any) -> SummaryOptions:
    fields: dict[str, Any] = {"again": None, "timeout_s": 90.0, "today": date(2026, 11, 21), "focus": ""}
    fields |= {"window_tokens": 0, "can_recall": True, "context_length": context_length}
    return SummaryOptions(summarise=model, **(fields | given))


@pytest.mark.parametrize(
    ("size", "threshold", "room", "tail"),
    [
        (10_000, 10_000, 10_000, 18),
        (9_000, 10_000, 10_000, 18),  # an estimate of the messages above the size of the request
        (12_000, 10_000, 8_000, 14),  # what stands before the messages takes its part of the room
        (30_000, 10_000, 2_500, 4),  # but never more than three quarters
        (10_000, 0, 10_000, 18),
    ],
)
def test_the_tail_is_18_percent_of_the_room(size: int, threshold: int, room: int, tail: int) -> None:
    plan = planned(talk(100), size, threshold)
    assert (plan.room, plan.before, len(plan.parts.tail)) == (room, 10_000, tail)
    assert [fields["_seq"] for fields in plan.parts.tail] == list(range(101 - tail, 101))


def test_the_head_is_a_question_with_its_answer_and_5_percent_of_the_room() -> None:
    rows = talk(100)
    assert [fields["_seq"] for fields in planned(rows, 10_000, 10_000).parts.head] == [1, 2]
    assert len(planned(rows, 10_000, 10_000, head=4).parts.head) == 4
    assert planned(rows, 10_000, 10_000, head=0).parts.head == []
    for answer, kept in ((400, 2), (401, 0)):
        longer = [rows[0], row("assistant", answer, 2), *rows[2:]]
        size = chat.estimate(longer)
        assert len(planned(longer, size, 10_000).parts.head) == kept
    # A summary at the front says that the first messages were kept once.
    again = [summary.write(Summary(first=1, last=9, body=BODY), trail_tokens=0, can_recall=True), *rows]
    assert planned(again, 10_000, 10_000).parts.head == []


def test_an_old_answer_that_stays_is_clipped_to_15_percent_of_the_room() -> None:
    tail = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{at}", "function": {"name": "f"}}]}
        for at in range(60)
    ]
    for tokens, kept in ((1_500, 1_500), (4_000, None)):
        rows = [*talk(60), row("assistant", tokens, 61), *tail]
        plan = planned(rows, chat.estimate(rows), 10_000)
        answer = next(fields for fields in plan.parts.kept if fields["role"] == "assistant")
        size = chat.tokens_of(answer)
        assert size == kept if kept else 1_400 < size < 1_540


def test_between_two_messages_of_one_side_stands_a_line_of_the_other() -> None:
    calls = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{at}", "function": {"name": "f"}}]}
        for at in range(60)
    ]
    rows = [*talk(60), row("assistant", 1_500, 61), *calls]
    plan = planned(rows, chat.estimate(rows), 10_000)
    assert plan.parts.kept[-1]["role"] == plan.parts.tail[0]["role"] == "assistant"
    written = summarise_plan(plan, order(Model()))
    assert isinstance(written, SummarisedRows)
    own = [one["content"] for one in written.rows if one["content"] in (summary.ACK, summary.BRIDGE)]
    at = written.rows.index(plan.parts.tail[0])
    assert written.rows[at - 1]["content"] == own[-1] == summary.BRIDGE
    assert written.rows[at - 2]["role"] == "assistant"


def test_a_tail_of_one_large_group_is_cut_to_27_percent_of_the_room() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    for tokens, cut in ((2_600, False), (2_800, True)):
        result = {"role": "tool", "tool_call_id": "c", "content": "word" * tokens}
        rows = [*talk(80), call, result]
        plan = planned(rows, chat.estimate(rows), 10_000)
        assert ("characters" in str(plan.parts.tail[-1]["content"])) is cut
        assert chat.estimate(plan.parts.tail) < (2_730 if cut else 2_700)


def test_pruning_alone_is_enough_where_it_leaves_40_percent() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "word" * 7_000}
    rows = [row("user", 100, 1), call, result, *talk(20)]
    plan, ample = planned(rows, chat.estimate(rows), 10_000), 10**9
    smaller = prune_only(plan._replace(room=ample, before=ample))
    assert smaller is not None and chat.estimate(smaller) < 3_000
    least = int(chat.estimate(smaller) / 0.4)
    for room, before, is_enough in (
        (least + 1, ample, True),
        (ample, least + 1, True),
        (least - 3, ample, False),
        (ample, least - 3, False),
    ):
        assert (prune_only(plan._replace(room=room, before=before)) is not None) is is_enough
    assert prune_only(plan._replace(room=ample, before=ample, previous=Summary(1, 9))) is None
    assert prune_only(plan._replace(room=ample, before=ample, rows=rows[1:])) is None


@pytest.mark.parametrize(("room", "quoted"), [(10_000, 600), (1_500, 250), (600, 120)])
def test_the_latest_request_is_quoted_up_to_a_sixth_of_the_room(room: int, quoted: int) -> None:
    rows = [*talk(40), row("user", 500, 41)]
    plan = planned(rows, 4_100, 4_100)._replace(room=room)
    written = summarise_plan(plan, order(Model()))
    assert isinstance(written, SummarisedRows)
    text = next(chat.text_of(one) for one in written.rows if summary.is_summary(one))
    said = chat.text_of(rows[-1])
    assert f'"{said[:quoted]}..." (goes on for {len(said) - quoted:,} characters)' in text


def test_a_list_of_tasks_is_carried_up_to_a_quarter_of_the_room() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "todo"}}]}
    listed = {"role": "tool", "tool_call_id": "c", "tool_name": "todo", "content": "[ ] " + "task " * 300}
    rows = [*talk(4), call, listed, *talk(60)]
    plan = planned(rows, chat.estimate(rows), 0)._replace(room=2_000)
    text = next(one for one in summarise_plan(plan, order(Model())).rows if summary.is_summary(one))
    assert summary.parse(text).todo == listed["content"][:500].strip()


@pytest.mark.fast_rows("100-1000000-None", "2000-100000-5000")
@pytest.mark.parametrize(
    ("count", "context_length", "expected"),
    [
        (100, 1_000_000, None),  # what the rest of 40 % leaves free
        (2_000, 1_000_000, 10_000),
        (2_000, 100_000, 5_000),
        (2_000, 30_000, 2_000),
        (1_000, 1_000_000, None),
        (500, 1_000_000, None),
    ],
)
def test_a_summary_is_a_fifth_of_what_it_stands_for_within_what_is_free(
    count: int, context_length: int, expected: int | None
) -> None:
    model, rows = Model(), talk(count)
    plan = planned(rows, count * 100, count * 100)
    written = summarise_plan(plan, order(model, context_length, window_tokens=1_000_000))
    assert isinstance(written, SummarisedRows) and written.failure is None
    asked = (model.limits[0][0] - 4_096) / 2
    latest = chat.text_tokens(summary.find_latest_request(rows, None, 600))
    trail = min(1_500, max(60, count * 5))
    fixed = chat.estimate((*plan.parts.head, *plan.parts.tail)) + 150 + trail + latest
    free = int(count * 100 * 0.4) - fixed
    fifth = max(chat.estimate(plan.parts.middle) // 5, 2_000)
    assert asked == (expected or max(min(fifth, free, 10_000), 60))
    assert model.limits[0][1] == 90.0


def test_the_newest_lines_of_parts_stay_as_far_as_they_fit() -> None:
    for room, asked, kept in ((100_000, 0, 12), (4_000, 0, 8), (100_000, 120, 7), (100_000, 1_150, 1)):
        parts = [f"- #{at} (until 2026-11-20): asked {at}" + "x" * asked for at in range(1, 16)]
        known = Summary(first=1, last=9, body=BODY, parts=parts)
        before = summary.write(known, trail_tokens=0, can_recall=True)
        rows = [before, *talk(60)]
        plan = planned(rows, chat.estimate(rows), 0)._replace(room=room)
        written = summarise_plan(plan, order(Model()))
        assert isinstance(written, SummarisedRows)
        lines = summary.parse(next(one for one in written.rows if summary.is_summary(one))).parts
        assert len(lines) == kept and lines[:-1] == parts[16 - kept :], len(lines)


def test_summaries_that_an_engine_left_beside_each_other_become_one_in_their_order() -> None:
    def earlier(number: int, todo: str) -> dict[str, Any]:
        body = f"## 2. Goal\nShip part {number}."
        made = Summary(first=10 * number, last=10 * number + 9, body=body, todo=todo)
        return summary.write(made, trail_tokens=0, can_recall=True)

    olders = [earlier(1, "[ ] one"), earlier(2, "[ ] two"), earlier(3, "")]
    previous = planned([*olders, *talk(60)], 6_000, 0).previous
    assert previous is not None
    assert [line for line in previous.body.splitlines() if line.startswith("Ship")] == [
        "Ship part 1.",
        "Ship part 2.",
        "Ship part 3.",
    ]
    assert (previous.first, previous.last, previous.todo) == (10, 39, "[ ] two")


def test_rows_without_a_number_are_summed_up_without_one() -> None:
    fields = [
        summary.write(Summary(0, 0, body=f"## 2. Goal\nPart {at}."), trail_tokens=0, can_recall=True)
        for at in (1, 2)
    ]
    rows = [{key: chat_row[key] for key in ("role", "content")} for chat_row in talk(100)]
    for known in ([], fields):
        plan = planned([*known, *rows], 10_000, 0)
        told = next(one for one in summarise_plan(plan, order(Model())).rows if summary.is_summary(one))
        assert (summary.parse(told).first, summary.parse(told).last) == (0, 0)
        assert plan.previous is None or plan.previous.first == 0


def test_a_model_reads_the_last_three_requests_and_8000_tokens_where_no_window_is_known() -> None:
    asked = [{"role": "user", "content": f"Ask {at}.", "_seq": 100 + at} for at in range(1, 5)]
    rows, model = [*talk(100), *asked], Model()
    summarise_plan(planned(rows, chat.estimate(rows), 0), order(model, context_length=0))
    assert "The person's latest words: Ask 2. / Ask 3. / Ask 4." in model.asked[0]
    assert model.limits == [(8_000 // 3, 90.0)]


def test_a_summary_that_came_out_too_long_is_cut_by_what_it_is_over() -> None:
    # One letter beyond ASCII makes the whole text count for a third more than its parts.
    rows = [*talk(400), {"role": "user", "content": "für später " * 10, "_seq": 401}]
    plan = planned(rows, chat.estimate(rows), 0)
    actions = "\n".join(f"{at}. " + "Built a unit. " * 20 for at in range(1, 200))
    model = Model(f"## 2. Goal\nShip it.\n## 4. Completed actions\n{actions}")
    written = summarise_plan(plan, order(model))
    text = next(one for one in written.rows if summary.is_summary(one))
    asked = chat.text_tokens(summary.find_latest_request(rows, None, 600))
    allowed = (model.limits[0][0] - 4_096) // 2 + 1_500 + asked + 150
    assert allowed - 900 < chat.tokens_of(text) <= allowed
    assert "199. Built" in summary.parse(text).body


@pytest.mark.parametrize("known", [0, 1_500, 2_500])
def test_without_a_model_what_was_known_leaves_a_third_for_what_is_new(known: int) -> None:
    actions = "\n".join(["word" * 50] * (known // 50))
    body = f"## 2. Goal\nShip it.\n## 4. Completed actions\n{actions}".strip()
    before = summary.write(Summary(first=1, last=9, body=body), trail_tokens=0, can_recall=True)
    rows = [before, *talk(200)]
    plan = planned(rows, chat.estimate(rows), 0)
    model = Model()
    summarise_plan(plan, order(model))
    budget = (model.limits[0][0] - 4_096) // 2
    written = summarise_plan(plan, order(model, resting=Failure("quota", "no")))
    lines = [line for line in _body_of(written).splitlines() if line.startswith("- The ")]
    room = min(max(budget - chat.text_tokens(body) - 16, budget // 3), 2_000)
    left = room - sum(chat.text_tokens(line) + 1 for line in lines)
    assert 0 <= left <= chat.text_tokens(lines[0]), "one line more had no room"


def _body_of(written: SummarisedRows) -> str:
    return summary.parse(next(one for one in written.rows if summary.is_summary(one))).body
