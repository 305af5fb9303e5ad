"""The list of an open session in memory: what a compaction leaves of it, and what is read again."""

from __future__ import annotations

import pytest

from tests.store.support import (
    ONLY_POSTGRES,
    USAGE,
    answer,
    asking,
    begin_session,
    finish,
    new_log,
    talk,
    user,
)
from tests.store.test_transcript import texts
from whet.contract.errors import NotFound, StoreBusy
from whet.store import compactions, turns
from whet.store.transcript import Transcript

pytestmark = pytest.mark.slow_rows("postgres")


async def test_a_compaction_replaces_the_live_list_and_survives_reopening(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    turn = await log.begin_turn(user("three"))
    summary, last = answer("summary of all"), log.messages[-1]
    await compactions.record(log, turn, [summary, log.messages[0], last], "simple", 900, 100)
    assert log.messages[0] is summary and log.messages[2] is last
    await log.append_reply(turn, asking("a"), USAGE, "m")
    await finish(log, turn, log.open_calls(turn)[0], "r")
    await log.end_turn(turn, "answered", "")
    expected = ["summary of all", "one", "three", "", "r"]
    assert [m.text for m in log.messages] == expected
    again = await Transcript.open(db, "s1", clock)
    assert [m.text for m in again.messages] == expected
    await again.undo_last_turn()
    assert [m.text for m in again.messages] == ["one", "ok", "two", "ok"]
    assert "summary" not in db.read_now(lambda c: str(c.execute("SELECT content FROM messages").fetchall()))


async def test_compactions_of_a_session_are_summed_without_those_that_were_undone(db, clock):
    def sums(id_):
        return db.read_now(lambda c: compactions.sum_compactions(c, id_))

    await new_log(db, clock, "other")
    log = await talk(db, clock, "s1", "one", "two")
    await compactions.record(log, None, [user("short")], "lossless", 900, 100)
    await compactions.record(log, None, [user("longer")], "simple", 50, 70)
    turn = await log.begin_turn(user("three"))
    await compactions.record(log, turn, [user("shorter")], "tiered", 40, 10)
    await log.end_turn(turn, "answered", "")
    await log.undo_last_turn()
    turn_of = "SELECT turn FROM compactions WHERE undone = '' ORDER BY id"
    assert db.read_now(lambda c: c.execute(turn_of).fetchall()) == [(2,), (2,)], "those between turns"
    assert sums("s1") == compactions.CompactionSums(2, 800, "simple"), "one that made it longer saved nothing"
    assert sums("other") == compactions.CompactionSums(0, 0, "")
    with pytest.raises(NotFound):
        sums("nobody")


async def test_a_crash_after_a_compaction_keeps_the_turns_sums(db, clock):
    log, turn = await begin_session(db, clock, "x")
    await log.append_reply(turn, asking("a"), USAGE, "m")
    await finish(log, turn, log.open_calls(turn)[0])
    await compactions.record(log, turn, [user("short")], "simple", 9, 1)
    log.close()
    again = await Transcript.open(db, "s1", clock)
    resumed = await again.claim_unfinished_turn()
    assert resumed is not None
    assert (resumed.steps, resumed.messages, resumed.tool_calls, resumed.usage) == (1, 3, 1, USAGE)
    assert [m.text for m in again.messages] == ["short"] and again.open_calls(resumed) == []


async def test_what_is_read_again_stays_the_same_objects(db, clock):
    log, turn = await begin_session(db, clock, "do it")
    await log.append_reply(turn, asking("a", "b"), USAGE, "m")
    messages = list(log.messages)
    first, second = log.open_calls(turn)
    done = await finish(log, turn, second, "two")
    assert log.live.messages_by_seq() == {1: messages[0], 2: messages[1], 4: done}
    await log.writer.reload()
    assert log.live.step is not None and log.live.step.results[1] is done
    assert [message is two for message, two in zip(log.messages, messages, strict=False)] == [True, True]
    await finish(log, turn, first, "one")
    await compactions.record(log, turn, [user("short"), log.live.messages[-1]], "e", 9, 1)
    kept = list(log.messages)
    await log.writer.reload()
    assert [message is two for message, two in zip(log.messages, kept, strict=True)] == [True, True]
    log.live.epoch -= 1
    await log.writer.reload()
    assert log.messages[0].text == "short" and log.messages[0] is not kept[0], (
        "of another list of the same length"
    )
    assert log.messages[1] is kept[1] and log.live.epoch == 1
    await log.end_turn(turn, "answered", "")


async def test_what_can_be_resumed_and_what_was_said_last(db, clock):
    log = await new_log(db, clock)
    assert log.live.last_user_text() == "" and log.live.turn_number == 0
    coming = log.writer.next_turn_id()
    assert log.writer.next_turn_id() == coming
    assert isinstance(log.live.resume_error(), NotFound)
    turn = await log.begin_turn(user("one"))
    assert turn.id == coming and log.writer.next_turn_id() != coming
    assert isinstance(log.live.resume_error(), StoreBusy)
    await log.append_user(turn, user("two"))
    await log.append_reply(turn, answer("ok"), USAGE, "m")
    assert log.live.last_user_text() == "two" and log.live.turn_number == 1
    await log.end_turn(turn, "answered", "")
    assert log.live.turn_number == 0
    key = log.live.key
    assert db.read_now(lambda c: turns.find_last_turn(c, key)) == 1


async def test_another_process_that_went_on_is_taken_in_before_the_next_turn(db, clock):
    log = await talk(db, clock, "s1", "one")
    other = await Transcript.open(db, "s1", clock)
    turn = await other.begin_turn(user("two"))
    await other.append_reply(turn, answer("yes"), USAGE, "m")
    with pytest.raises(StoreBusy, match="is in use"):
        await compactions.record(log, None, [user("short")], "e", 9, 1)
    await other.end_turn(turn, "answered", "")
    with pytest.raises(StoreBusy, match="has changed this session"):
        await compactions.record(log, None, [user("short")], "e", 9, 1)
    assert len(log.messages) == 2
    await log.writer.refresh()
    assert texts(log)[2:] == [("user", "two"), ("assistant", "yes")]
    turn = await log.begin_turn(user("three"))
    assert turn.number == 3
    await log.end_turn(turn, "answered", "")


@ONLY_POSTGRES
async def test_a_turn_that_is_left_open_is_free_for_others_at_once(db, clock):
    log = await new_log(db, clock)
    await log.begin_turn(user("one"))
    log.close()
    assert db.write_now(lambda c: c.execute("SELECT count(*) FROM claims").fetchall()) == [(0,)]


async def test_results_are_folded_in_the_order_of_their_calls(db, clock):
    log, turn = await begin_session(db, clock, "go")
    await log.append_reply(turn, asking("a", "b", "c"), USAGE, "m")
    open_call, two, three = log.open_calls(turn)
    numbers: list[list[int]] = []
    for call in (three, open_call, two):
        await finish(log, turn, call, call.call.name)
        log.live.fold_results()
        numbers.append(list(log.live.seqs))
    before = list(map(id, log.messages))
    log.live.fold_results()
    assert list(map(id, log.messages)) == before and log.live.seqs == numbers[-1]
    await log.end_turn(turn, "answered", "")
    assert (numbers, [message.text for message in log.messages]) == (
        [[1, 2, 5], [1, 2, 3, 5], [1, 2, 3, 4, 5]],
        ["go", "", "a", "b", "c"],
    )


async def test_a_session_has_moved_on_with_one_message_one_turn_or_one_step_back(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    await log.begin_turn(user("three"))
    epoch, turn, next_seq = log.live.version

    def moved(*numbers: int) -> bool:
        assert len(numbers) == 3
        return db.read_now(lambda c: turns.select_is_newer(c, log.live.key, numbers)())

    assert not moved(epoch, turn, next_seq)
    for behind in (1, 2):
        assert moved(epoch, turn, next_seq - behind), "one message alone is seen, whatever its number"
    assert moved(epoch, turn - 1, next_seq) and moved(epoch - 1, turn, next_seq)
    with pytest.raises(NotFound, match="was deleted"):
        db.read_now(lambda c: turns.select_is_newer(c, log.live.key + 1, log.live.version)())
