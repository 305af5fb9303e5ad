"""A session read again: its messages, its turns, where its time went, and how its window filled."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.json import encode

from tests.store.support import USAGE, answer, asking, begin_session, new_log, result, user
from whet.contract.errors import NotFound
from whet.contract.messages import Usage
from whet.contract.receipts import CallEffects, FileLines
from whet.contract.tools import ToolOutput
from whet.store import compactions, replay, reviews, spans, turns
from whet.store.reviews import ReviewedTurn, TurnCall
from whet.store.spans import TurnSpan, TurnSpans, WindowMark

_FACTS = encode(CallEffects(edits=(FileLines("x", 1, 2),))).decode()
_LARGE = Usage(prompt_tokens=900, total_tokens=905, cache_read_tokens=600)


async def _story(db, clock):
    """Turn 1 asks for three calls: one that a person allows, one that nobody answers for, one by a rule.
    Turn 2 follows a compaction; turn 3 is taken back; turn 4 runs."""
    log, turn = await begin_session(db, clock, "one")
    clock.advance(2)
    await log.append_reply(turn, asking("a", "b", "c"), USAGE, "m")
    allowed, denied, ruled = log.open_calls(turn)
    clock.advance(1)
    await log.store_call_start(turn, allowed, "person")
    clock.advance(4)
    output = ToolOutput("done", exit_code=3, facts=_FACTS)
    await log.store_call_result(turn, allowed, result(allowed), output=output, duration_s=4.0)
    clock.advance(1)
    no = ToolOutput("no", "denied")
    await log.store_call_result(turn, denied, result(denied, "no"), output=no, duration_s=0.0)
    clock.advance(1)
    await log.store_call_result(
        turn, ruled, result(ruled, "ok"), output=ToolOutput("ok"), duration_s=0.5, decided_by="rule"
    )
    log.live.fold_results()
    clock.advance(3)
    await log.append_reply(turn, answer("said"), USAGE, "m")
    clock.advance(1)
    await log.end_turn(turn, "answered", "")
    await compactions.record(log, None, log.live.messages[-1:], "e1", 500, 200)
    clock.advance(10)
    turn = await log.begin_turn(user("two"))
    clock.advance(1)
    await log.append_user(turn, user("and this"))
    clock.advance(1)
    await log.append_reply(turn, answer("ok"), _LARGE, "m")
    await log.end_turn(turn, "failed", "no net")
    turn = await log.begin_turn(user("three"))
    await log.append_reply(turn, answer("ok"), Usage(), "m")
    await log.end_turn(turn, "answered", "")
    await log.undo_last_turn()
    clock.advance(5)
    await log.begin_turn(user("four"))
    return log


def _at(db, work, *args):
    return db.read_now(lambda connection: work(connection, *args))


async def test_a_turn_held_in_memory_has_what_its_rows_have(db, clock):
    log, turn = await begin_session(db, clock, "one")
    await log.append_reply(turn, asking("a", "b", "c"), _LARGE, "m")
    first, second, _ = log.open_calls(turn)
    failed = ToolOutput("x" * 5000, "failed")
    for call, text, output in ((second, failed.text, failed), (first, "done", ToolOutput("done"))):
        await log.store_call_result(
            turn, call, result(call, text), output=output, duration_s=0.1, decided_by="rule"
        )
    await log.append_user(turn, user("and this"))
    await log.append_reply(turn, answer("said"), USAGE, "m")
    read = _at(db, reviews.read_turn, log.live.key, turn.number)
    assert ReviewedTurn.of_memory(turn) == read
    assert [call.error_kind for call in read.calls] == ["", "failed", ""] and len(read.calls[1].error) == 4000
    assert read.said == ("one", "and this") and read.is_cached


def test_a_story_is_read_again(db, clock):
    begun = clock.unix_ms()
    log = asyncio.run(_story(db, clock))
    key = log.live.key

    one, two, three, four = _at(db, spans.list_turn_spans, "s1", 9)

    def second(moment: int | None) -> float | None:
        return None if moment is None else (moment - begun) / 1000

    assert [(second(turn.begun_ms), second(turn.ended_ms)) for turn in (one, two, three, four)] == [
        (0, 13),
        (23, 25),
        (25, 25),
        (30, None),
    ]
    assert [(turn.number, turn.reason, turn.is_undone) for turn in (one, two, three, four)] == [
        (1, "answered", False),
        (2, "failed", False),
        (3, "answered", True),
        (4, "", False),
    ]
    rows = [
        (span.kind, span.name, second(span.begun_ms), second(span.ended_ms), span.seq, span.error_kind)
        for span in one.spans
    ]
    assert rows == [
        ("model", "model", 0, 2, 2, ""),
        ("wait", "a", 2, 3, 3, ""),
        ("tool", "a", 3, 7, 3, ""),
        ("wait", "b", 2, 8, 4, "denied"),
        ("tool", "c", 8.5, 9, 5, ""),
        ("model", "model", 9, 12, 6, ""),
    ]
    assert one.spans[0].usage == USAGE and one.spans[1].usage is None
    assert [(second(span.begun_ms), second(span.ended_ms)) for span in two.spans] == [(24, 25)]
    assert four.spans == ()
    assert [turn.number for turn in _at(db, spans.list_turn_spans, "s1", 2)] == [3, 4]

    compacted = WindowMark(6, 500, after=200)
    assert _at(db, spans.read_window, "s1") == [
        WindowMark(2, 10),
        WindowMark(6, 10),
        compacted,
        WindowMark(9, 900, 600),
    ]
    assert _at(db, spans.read_window, "s1", 2) == [WindowMark(9, 900, 600)], "the other has no usage"
    assert _at(db, spans.read_window, "s1", 3) == [WindowMark(6, 10), compacted, WindowMark(9, 900, 600)]

    found = _at(db, replay.list_entries, "s1", 1, 99)
    assert [(entry.seq, entry.turn, entry.message.text, second(entry.at_ms)) for entry in found] == [
        (1, 1, "one", 0),
        (2, 1, "", 2),
        (3, 1, "done", 7),
        (4, 1, "no", 8),
        (5, 1, "ok", 9),
        (6, 1, "said", 12),
        (7, 2, "two", 23),
        (8, 2, "and this", 24),
        (9, 2, "ok", 25),
        (10, 3, "three", 25),
        (11, 3, "ok", 25),
        (12, 4, "four", 30),
    ]
    assert [entry.usage for entry in found[:2]] == [None, USAGE]
    assert [entry.seq for entry in found if entry.call is not None] == [3, 4, 5]
    assert found[2].call is not None and found[2].call.edits == (FileLines("x", 1, 2),)
    assert found[4].call == replay.CallFacts("c", "", None, 0.5, "rule")
    assert found[3].call == replay.CallFacts("b", "denied", None, 0.0, "") and found[3].call.edits == ()
    assert [entry.seq for entry in _at(db, replay.list_entries, "s1", 4, 2)] == [4, 5]
    assert [entry.seq for entry in _at(db, replay.list_entries, "s1", -3, 2)] == [1, 2]
    assert _at(db, replay.list_entries, "s1", 10**12, 2) == []

    kept = _at(db, replay.list_turns, "s1", 1, 3)
    assert [(turn.number, turn.reason, turn.error, turn.steps, turn.is_undone) for turn in kept.values()] == [
        (1, "answered", "", 2, False),
        (2, "failed", "no net", 1, False),
        (3, "answered", "", 1, True),
    ]
    assert kept[1].usage == USAGE + USAGE and list(_at(db, replay.list_turns, "s1", 2, 2)) == [2]
    last = _at(db, replay.read_last_turn, "s1")
    assert (last.number, last.ended, last.usage) == (4, "", Usage()) and _at(
        db, replay.read_last_seq, "s1"
    ) == 12

    assert _at(db, turns.read_outcome, key, 1) == ("answered", "", "said")
    assert _at(db, turns.read_outcome, key, 2) == ("failed", "no net", "ok")
    assert _at(db, turns.read_outcome, key, 4) == ("", "", "") == _at(db, turns.read_outcome, key, 9)
    assert _at(db, turns.read_last_reason, key) == ""

    assert _at(db, reviews.read_turn, key, 1) == ReviewedTurn(
        ("one",),
        (
            TurnCall(1, "a", '{"x": 1}', ""),
            TurnCall(1, "b", '{"x": 1}', "denied", "no"),
            TurnCall(1, "c", '{"x": 1}', ""),
        ),
        15,
    )
    assert _at(db, reviews.read_turn, key, 2) == ReviewedTurn(("two", "and this"), (), 905, is_cached=True)
    assert _at(db, reviews.read_turn, key, 9) == ReviewedTurn((), (), 0)


def test_a_session_without_a_turn_is_read_as_empty(db, clock):
    log = asyncio.run(new_log(db, clock))
    assert _at(db, spans.list_turn_spans, "s1", 9) == [] == _at(db, spans.read_window, "s1")
    assert _at(db, replay.read_last_turn, "s1") is None and _at(db, replay.read_last_seq, "s1") == 0
    assert _at(db, turns.read_last_reason, log.live.key) == ""
    for read in (spans.read_window, replay.read_last_turn, replay.read_last_seq):
        with pytest.raises(NotFound):
            _at(db, read, "nowhere")


def test_the_last_reason_is_of_the_newest_turn_that_was_not_taken_back(db, clock):
    async def main():
        log = await new_log(db, clock)
        for reason in ("failed", "answered"):
            await log.end_turn(await log.begin_turn(user("x")), reason, "")
        return log

    log = asyncio.run(main())
    assert _at(db, turns.read_last_reason, log.live.key) == "answered"
    asyncio.run(log.undo_last_turn())
    assert _at(db, turns.read_last_reason, log.live.key) == "failed"


def test_time_that_overlaps_is_spent_once():
    def tool(begun: int, ended: int) -> TurnSpan:
        return TurnSpan("tool", "x", begun, ended, 1)

    turn = TurnSpans(1, 1000, None, "", False, (tool(5000, 9000), tool(2000, 4000), tool(3000, 6000)))
    assert turn.spent_s("tool") == 7 and turn.spent_s("model") == 0
    assert TurnSpans(1, 0, 0, "", False, (tool(0, 9000), tool(1000, 2000))).spent_s("tool") == 9
    assert turn.last_ms == 9000
    assert TurnSpans(1, 1000, 9500, "", False, (tool(2000, 4000),)).last_ms == 9500
    assert TurnSpans(1, 1000, None, "", False, ()).last_ms == 1000
    assert tool(2000, 4500).duration_s == 2.5 and tool(4000, 2000).duration_s == 0
