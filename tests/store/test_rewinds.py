"""A conversation is taken back to a point, with the compactions made since, and that back again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.store.support import (
    USAGE,
    answer,
    asking,
    begin_session,
    finish,
    new_log,
    reply_and_end,
    talk,
    user,
)
from whet.contract.errors import NotFound, StoreBusy
from whet.store import compactions, rewinds
from whet.store.transcript import Transcript

pytestmark = pytest.mark.slow_rows("postgres")


def begun(db, session: str, **fields) -> rewinds.RewindRow:
    row = rewinds.RewindRow(**{"id": "r1", "at": "t1", "turn": 1, "step": 0, "state": "begun", "undoes": "",
                       "parts": "conversation", **fields})  # fmt: skip
    db.write_now(lambda c: rewinds.begin_rewind(c, session, row))
    return row


def stored(db, session: str) -> list[rewinds.RewindRow]:
    return db.read_now(lambda c: rewinds.list_rewinds(c, session))


async def seen(db, clock, session: str) -> list[str]:
    return [message.text for message in (await Transcript.open(db, session, clock)).messages]


async def test_a_rewind_takes_compactions_back_and_is_taken_back_itself(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    turn = await log.begin_turn(user("three"))
    await compactions.record(log, turn, [answer("summary"), log.messages[-1]], "simple", 900, 100)
    await reply_and_end(log, turn, "fine")
    whole = ["summary", "three", "fine"]
    assert await seen(db, clock, "s1") == whole

    begun(db, "s1", turn=2)
    assert await rewinds.rewind_conversation(log, "r1", 2, 0) == "two"
    assert [m.text for m in log.messages] == await seen(db, clock, "s1") == ["one", "ok"]

    begun(db, "s1", id="r2", at="t2", undoes="r1")
    await rewinds.undo_rewind(log, "r2", stored(db, "s1")[0])
    assert [m.text for m in log.messages] == await seen(db, clock, "s1") == whole
    assert [(row.id, row.state) for row in stored(db, "s1")] == [("r1", "done"), ("r2", "done")]


async def test_a_compaction_before_the_point_stays(db, clock):
    log = await talk(db, clock, "s1", "one")
    turn = await log.begin_turn(user("two"))
    await compactions.record(log, turn, [answer("summary"), log.messages[-1]], "simple", 900, 100)
    await reply_and_end(log, turn, "ok")
    third = await log.begin_turn(user("three"))
    await log.end_turn(third, "answered", "")
    begun(db, "s1", turn=3)
    assert await rewinds.rewind_conversation(log, "r1", 3, 0) == "three"
    assert await seen(db, clock, "s1") == ["summary", "two", "ok"]


async def test_a_turn_is_cut_at_a_step_and_made_whole_again(db, clock):
    log, turn = await begin_session(db, clock, "go")
    for text in ("first", "second"):
        await log.append_reply(turn, asking("a", ids=(text,)), USAGE, "m")
        await finish(log, turn, log.open_calls(turn)[0], text)
    await reply_and_end(log, turn, "done")
    assert db.read_now(lambda c: rewinds.has_point(c, "s1", 1, 2))
    assert not db.read_now(lambda c: rewinds.has_point(c, "s1", 1, 3))
    assert not db.read_now(lambda c: rewinds.has_point(c, "s1", 2, 0))

    begun(db, "s1", step=2)
    assert await rewinds.rewind_conversation(log, "r1", 1, 2) == "go"
    assert await seen(db, clock, "s1") == ["go", "", "first"]
    begun(db, "s1", id="r2", at="t2", undoes="r1")
    await rewinds.undo_rewind(log, "r2", stored(db, "s1")[0])
    assert await seen(db, clock, "s1") == ["go", "", "first", "", "second", "done"]


async def test_a_point_that_is_not_there_changes_nothing(db, clock):
    log = await talk(db, clock, "s1", "one")
    begun(db, "s1")
    with pytest.raises(NotFound, match="no turn 7"):
        await rewinds.rewind_conversation(log, "r1", 7, 0)
    with pytest.raises(NotFound, match="no step 1"):
        await rewinds.rewind_conversation(log, "r1", 1, 1)
    assert await seen(db, clock, "s1") == ["one", "ok"] and stored(db, "s1")[0].state == "begun"
    db.write_now(lambda c: rewinds.delete_rewind(c, "r1"))
    assert not stored(db, "s1")


async def test_nothing_is_taken_back_under_a_turn_that_runs(db, clock):
    log = await talk(db, clock, "s1", "one")
    other = await Transcript.open(db, "s1", clock)
    await other.begin_turn(user("two"))
    begun(db, "s1")
    with pytest.raises(StoreBusy):
        await rewinds.rewind_conversation(log, "r1", 1, 0)
    other.close()


def test_the_model_is_told_once_of_files_that_were_taken_back(db, clock):
    log = asyncio.run(talk(db, clock, "s1", "one", "two"))
    begun(db, "s1", turn=2, parts="files")
    begun(db, "s1", id="r2", at="t2", parts="both")
    assert not db.read_now(lambda c: rewinds.select_unreported_turns(c, log.live.key)()), "not done yet"
    db.write_now(lambda c: rewinds.mark_done(c, "r1"))
    db.write_now(lambda c: rewinds.mark_done(c, "r2"))
    assert db.read_now(lambda c: rewinds.select_unreported_turns(c, log.live.key)()) == [2]
    db.write_now(lambda c: rewinds.clear_unreported_turns(c, log.live.key))
    assert not db.read_now(lambda c: rewinds.select_unreported_turns(c, log.live.key)())
    assert [msgspec.structs.replace(row, state="begun").parts for row in stored(db, "s1")] == [
        "files",
        "both",
    ]


async def test_a_session_its_helpers_and_theirs_are_one_family(db, clock):
    await new_log(db, clock, "root")
    await new_log(db, clock, "child", parent_session_id="root")
    await new_log(db, clock, "grandchild", parent_session_id="child")
    await new_log(db, clock, "stranger")
    for text in ("root", "child", "grandchild"):
        assert db.read_now(lambda c, one=text: rewinds.list_family(c, one)) == {"root", "child", "grandchild"}
    assert db.read_now(lambda c: rewinds.list_family(c, "stranger")) == {"stranger"}
