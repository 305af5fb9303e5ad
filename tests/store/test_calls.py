"""Calls are read back with their results, in order, for what is learned from them."""

from __future__ import annotations

import asyncio

import pytest

from tests.store.support import USAGE, answer, asking, begin_session, finish, new_log, result, talk, user
from whet.contract.tools import ToolOutput
from whet.store import calls
from whet.store.calls import StoredCall, UserWords
from whet.store.transcript import Transcript

pytestmark = pytest.mark.slow_rows("postgres")


async def worked(db, clock, id_: str = "s1", **fields) -> Transcript:
    """Two turns: two calls whose results come the other way round, and one call that fails."""
    log = await new_log(db, clock, id_, **fields)
    turn = await log.begin_turn(user("do it"))
    await log.append_reply(turn, asking("a", "b"), USAGE, "m1")
    first, second = log.open_calls(turn)
    await finish(log, turn, second, "two")
    await finish(log, turn, first, "x" * 20_000)
    log.live.fold_results()
    await log.append_reply(turn, answer("done"), USAGE, "m1")
    await log.end_turn(turn, "answered", "")
    turn = await log.begin_turn(user("again"))
    await log.append_reply(turn, asking("c"), USAGE, "m1")
    [call] = log.open_calls(turn)
    await log.store_call_result(
        turn, call, result(call, "no"), output=ToolOutput("no", "exit", 3), duration_s=1.0
    )
    log.live.fold_results()
    await log.end_turn(turn, "answered", "")
    return log


def read(db, log: Transcript, from_turn: int = 0) -> list[StoredCall | UserWords]:
    return db.read_now(lambda c: list(calls.stream_calls(c, log.live.key, from_turn)))


def test_calls_come_with_their_results_and_the_persons_words(db, clock):
    log = asyncio.run(worked(db, clock))
    asyncio.run(talk(db, clock, "other", "hello"))
    found = read(db, log)
    names = [
        stored_call.name if isinstance(stored_call, StoredCall) else stored_call.text for stored_call in found
    ]
    assert names == ["do it", "a", "b", "again", "c"]
    fields = {stored_call.name: stored_call for stored_call in found if isinstance(stored_call, StoredCall)}
    assert fields["b"].result == "two" and fields["c"].exit_code == 3 and fields["c"].error_kind == "exit"
    long = fields["a"]
    assert long.result is not None and len(long.result) == 8_001, "its middle is left out"
    assert db.read_now(lambda c: calls.read_result_text(c, log.live.key, long.seq)) == "x" * 20_000
    assert db.read_now(lambda c: calls.read_result_text(c, log.live.key, 999)) == ""
    later = read(db, log, 2)
    assert [text.name if isinstance(text, StoredCall) else text.text for text in later] == ["again", "c"]


async def test_a_call_without_a_result_comes_at_its_steps_end(db, clock):
    log, turn = await begin_session(db, clock, "do it")
    await log.append_reply(turn, asking("a"), USAGE, "m1")
    found = read(db, log)
    assert db.read_now(lambda c: calls.read_judging_state(c, log.session.id)).last_turn == 0
    assert isinstance(found[-1], StoredCall) and found[-1].result is None
    assert (found[-1].seq, found[-1].asked_seq) == (3, 2), "right after the message that asks for it"


def test_an_answer_with_nothing_beside_its_text_has_no_calls(db, clock):
    """As those have that were brought in from elsewhere."""
    log = asyncio.run(talk(db, clock, "s1", "do it"))
    db.write_now(lambda c: c.execute("UPDATE messages SET extra = NULL WHERE role = 1"))
    assert [words.text for words in read(db, log) if isinstance(words, UserWords)] == ["do it"]


def test_outcomes_are_kept_up_to_a_turn_and_read_in_order(db, clock):
    log = asyncio.run(worked(db, clock))
    hidden = asyncio.run(worked(db, clock, "hidden", private=True))
    key = log.live.key
    assert db.read_now(lambda c: calls.list_unjudged_sessions(c)) == [log.session.id, hidden.session.id]
    seqs = {
        stored_call.name: stored_call.seq
        for stored_call in read(db, log)
        if isinstance(stored_call, StoredCall)
    }
    outcomes = [(seqs["a"], "good", ""), (seqs["b"], "undone", "taken back"), (seqs["c"], "bad", "exit 3")]
    for transcript in (log, hidden):
        db.write_now(lambda c, k=transcript.live.key: calls.store_outcomes(c, k, 2, outcomes))
    state = db.read_now(lambda c: calls.read_judging_state(c, log.session.id))
    assert (state.key, state.judged_turn, state.last_turn) == (key, 2, 2)
    assert db.read_now(lambda c: calls.list_unjudged_sessions(c)) == []
    assert len(db.read_now(lambda c: calls.list_unjudged_sessions(c, again=True))) == 2
    seen: list[tuple[int, str, int, str]] = []
    db.read_now(lambda c: calls.visit_outcomes(c, lambda *row: seen.append(row)))
    assert seen == [(key, "a", 0, "good"), (key, "c", 1, "bad")]


def test_a_pointed_outcome_is_stored_and_read_with_its_call(db, clock):
    log = asyncio.run(worked(db, clock))
    seqs = {call.name: call.seq for call in read(db, log) if isinstance(call, StoredCall)}
    db.write_now(lambda c: calls.store_pointed(c, log.live.key, {seqs["a"]: "failed"}))
    stored = {call.name: call.pointed for call in read(db, log) if isinstance(call, StoredCall)}
    assert (stored["a"], stored["b"]) == ("failed", "")
    db.write_now(lambda c: calls.store_outcomes(c, log.live.key, 1, []))
    ids = {row[0] for row in db.read_now(lambda c: c.execute("SELECT call_id FROM tool_calls").fetchall())}
    db.write_now(lambda c: calls.store_pointed(c, log.live.key, {}, ids))
    stored = {call.name: call.pointed for call in read(db, log) if isinstance(call, StoredCall)}
    assert (stored["a"], stored["b"]) == ("failed", calls.UNMARKED)
    assert db.read_now(lambda c: calls.list_unjudged_sessions(c)) == [log.session.id], "it is judged again"
    seen: list[tuple[int, str, int, str]] = []
    db.read_now(lambda c: calls.visit_outcomes(c, lambda *row: seen.append(row)))
    assert seen == [(log.live.key, "a", 0, "failed")]


async def test_only_sessions_that_ended_well_are_learned_from(db, clock):
    await worked(db, clock, "good", workspace="/w", source="cli")
    await worked(db, clock, "hidden", private=True)
    await worked(db, clock, "review", kind="review")
    await (await new_log(db, clock, "open")).begin_turn(user("still at it"))
    failed = await new_log(db, clock, "failed")
    await failed.end_turn(await failed.begin_turn(user("x")), "failed", "no model")
    assert [session.id for session in db.read_now(lambda c: calls.find_finished_sessions(c))] == ["good"]
    assert db.read_now(lambda c: calls.find_finished_sessions(c, workspace="/elsewhere")) == []
    [mined_session] = db.read_now(
        lambda c: calls.find_finished_sessions(c, source="cli", workspace="/w", limit=1)
    )
    assert (mined_session.workspace, mined_session.source) == ("/w", "cli")
    assert db.read_now(lambda c: calls.read_tools_json(c, mined_session.key)) in ("[]", "")
    assert db.read_now(lambda c: calls.list_tool_names(c, mined_session.key)) == frozenset()
    assert db.read_now(calls.read_latest_tools_json) == "[]"


async def test_turns_that_were_taken_back_are_named(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    await log.undo_last_turn()
    assert db.read_now(lambda c: calls.list_undone_turns(c, log.live.key)) == {2}
