from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.store.support import (
    ONLY_SQLITE,
    USAGE,
    answer,
    asking,
    begin_session,
    child,
    finish,
    new_log,
    one_job,
    reply_and_end,
    result,
    talk,
    user,
)
from tests.support import list_jobs, output_of, within
from whet.contract.errors import NotFound, StoreBusy, StoreError
from whet.contract.messages import Message, Usage, VendorReplay
from whet.contract.tools import ToolOutput
from whet.store import compactions, session_deletion
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript


def texts(log):
    return [(m.role, m.text) for m in log.messages]


def fields(message):
    return {name: getattr(message, name) for name in Message.__struct_fields__}


def test_a_turn_is_kept_whole(db, clock):
    async def main():
        log, turn = await begin_session(db, clock, "do it")
        await log.append_reply(turn, asking("a", "b"), USAGE, "m1")
        first, second = log.open_calls(turn)
        await log.store_call_start(turn, first, "rule")
        await log.store_call_start(turn, second, "person")
        await finish(log, turn, second, "two")
        clock.advance(1)
        await log.store_call_result(
            turn, first, result(first, "one"), output=ToolOutput("one", "exit", 3), duration_s=1.5
        )
        log.live.fold_results()
        assert log.open_calls(turn) == []
        assert [m.text for m in log.messages] == ["do it", "", "one", "two"]
        await log.append_user(turn, user("and hurry"))
        await log.append_reply(turn, answer("done"), USAGE, "m1")
        await log.end_turn(turn, "answered", "", one_job(clock))
        assert (turn.steps, turn.usage) == (2, USAGE + USAGE)
        return log

    log = asyncio.run(main())
    reopened = asyncio.run(Transcript.open(db, "s1", clock))
    assert [fields(m) for m in reopened.messages] == [fields(m) for m in log.messages]
    row = reopened.session
    assert row == log.session
    assert (row.turns, row.messages, row.tool_calls, row.usage.total_tokens) == (1, 6, 2, 30)
    assert row.usage.cost_usd == 1.0
    calls = db.read_now(
        lambda c: c.execute(
            "SELECT position, step, call_id, name, duration_s, decided_by, error_kind, exit_code,"
            " finished >= started FROM tool_calls ORDER BY seq"
        ).fetchall()
    )
    assert calls == [
        (0, 1, "call_0", "a", 1.5, "rule", "exit", 3, 1),
        (1, 1, "call_1", "b", 0.25, "person", "", None, 1),
    ]
    assert [job.kind for job in db.read_now(list_jobs)] == ["review"]


async def test_what_belongs_to_a_message_is_stored_with_it_or_not_at_all(db, clock):
    def refuse(connection):
        one_job(clock)(connection)
        raise StoreBusy("not now")

    log = await new_log(db, clock)
    with pytest.raises(StoreBusy, match="not now"):
        await log.begin_turn(user("one"), refuse)
    turn = await log.begin_turn(user("one"), one_job(clock))
    with pytest.raises(StoreBusy, match="not now"):
        await log.append_user(turn, user("two"), refuse)
    assert texts(log) == texts(await Transcript.open(db, "s1", clock)) == [("user", "one")]
    assert len(await db.read(list_jobs)) == 1
    await log.append_user(turn, user("two"), one_job(clock))
    await log.append_user(turn, user("three"))
    await log.end_turn(turn, "answered", "")
    assert [text for _, text in texts(log)] == ["one", "two", "three"]
    assert len(await db.read(list_jobs)) == 2


async def test_duplicate_call_ids_keep_their_own_results(db, clock):
    log, turn = await begin_session(db, clock, "x")
    await log.append_reply(turn, asking("a", "a", ids=("same", "same")), USAGE, "m")
    for call in reversed(log.open_calls(turn)):
        await finish(log, turn, call, f"result {call.index}")
    await log.end_turn(turn, "answered", "")
    assert [m.text for m in (await Transcript.open(db, "s1", clock)).messages[2:]] == ["result 0", "result 1"]


@pytest.mark.parametrize(
    "message",
    [
        Message("user", "NUL and \u2028 and 日本語"),
        Message(
            role="assistant",
            content="x",
            reasoning="because",
            replay=VendorReplay("anthropic_messages", "[{}]"),
        ),
    ],
)
async def test_every_field_survives(db, clock, message):
    log, turn = await begin_session(db, clock, "x")
    await log.append_reply(turn, message, USAGE, "m")
    await log.end_turn(turn, "answered", "")
    assert fields((await Transcript.open(db, "s1", clock)).messages[1]) == fields(message)


async def test_a_lone_surrogate_becomes_a_mark_in_memory_too(db, clock):
    log, turn = await begin_session(db, clock, "a\ud800b")
    await log.end_turn(turn, "answered", "")
    live, stored = log.messages[0].text, (await Transcript.open(db, "s1", clock)).messages[0].text
    assert live == stored and live.startswith("a�") and live.endswith("b")


@pytest.mark.slow
async def test_ten_megabytes_are_kept(db, clock):
    text = "pasted text " * 900_000
    log = await talk(db, clock, "s1", text)
    assert (await Transcript.open(db, "s1", clock)).messages[0].content == log.messages[0].content == text


def test_a_crashed_turn_is_resumed_where_it_was(db, clock):
    async def crash():
        log, turn = await begin_session(db, clock, "go")
        await log.append_reply(turn, asking("a", "b", "c"), USAGE, "m")
        open_call, two, _ = log.open_calls(turn)
        await log.store_call_start(turn, open_call, "rule")
        await log.store_call_start(turn, two, "rule")
        await finish(log, turn, two, "two")
        log.close()  # the lane's thread may keep it alive for a moment more

    async def resume():
        log = await Transcript.open(db, "s1", clock)
        turn = await log.claim_unfinished_turn()
        assert turn is not None and not turn.is_new
        assert (turn.steps, turn.usage, turn.number) == (1, USAGE, 1)
        assert [(c.index, c.started, c.step) for c in log.open_calls(turn)] == [(0, True, 1), (2, False, 1)]
        for call in log.open_calls(turn):
            await finish(log, turn, call, f"late {call.index}")
        log.live.fold_results()
        assert [m.text for m in log.messages[2:]] == ["late 0", "two", "late 2"]
        await reply_and_end(log, turn, "ok")
        assert await log.claim_unfinished_turn() is None
        return log.session

    asyncio.run(crash())
    row = asyncio.run(resume())
    assert (row.messages, row.tool_calls, row.usage.total_tokens) == (6, 3, 30)


async def test_a_new_message_closes_a_crashed_turn(db, clock):
    first = await new_log(db, clock)
    await first.begin_turn(user("one"))
    first.close()
    log = await Transcript.open(db, "s1", clock)
    turn = await log.begin_turn(user("two"))
    await log.end_turn(turn, "answered", "")
    assert (texts(log), await log.claim_unfinished_turn()) == ([("user", "one"), ("user", "two")], None)
    reasons = db.read_now(lambda c: c.execute("SELECT reason FROM turns ORDER BY number").fetchall())
    assert reasons == [("crashed",), ("answered",)]


async def test_a_turn_that_another_one_ended_is_over_here_too(db, clock):
    first = await new_log(db, clock)
    await first.begin_turn(user("one"))
    first.close()
    log = await Transcript.open(db, "s1", clock)
    turn = await log.claim_unfinished_turn()
    assert turn is not None
    await log.end_turn(turn, "cancelled", "")
    assert first.live.open_turn is not None
    await first.writer.refresh()
    assert first.live.open_turn is None
    assert texts(first) == [("user", "one")]


async def test_the_list_of_a_turn_holds_nothing_of_the_session_beside_it(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    await talk(db, clock, "s2", "other")
    key = log.live.key
    assert db.read_now(lambda c: compactions.view_after(c, key, 2)) == "[1,2,3,4]"
    assert db.read_now(lambda c: compactions.view_after(c, key, 1)) == "[1,2]"


async def test_a_cancelled_append_is_in_memory_when_the_turn_ends(db, clock):
    log, turn = await begin_session(db, clock, "x")
    task = asyncio.create_task(log.append_reply(turn, asking("a"), USAGE, "m"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.end_turn(turn, "cancelled", "")
    again = await log.begin_turn(user("y"))
    await log.end_turn(again, "answered", "")
    live, stored = texts(log), texts(await Transcript.open(db, "s1", clock))
    assert live == stored and live[-1] == ("user", "y")


async def test_one_session_has_one_turn_at_a_time(db, clock):
    log, turn = await begin_session(db, clock, "x")
    other = await Transcript.open(db, "s1", clock)
    with pytest.raises(StoreBusy, match=f"in use by process {os.getpid()}"):
        await other.begin_turn(user("y"))
    assert await other.claim_unfinished_turn() is None
    assert isinstance(other.live.resume_error(), StoreBusy)
    with pytest.raises(StoreBusy):
        await other.undo_last_turn()
    await reply_and_end(log, turn, "a")
    kept = list(other.messages)
    await other.end_turn(await other.begin_turn(user("y")), "answered", "")
    assert texts(other) == [("user", "x"), ("assistant", "a"), ("user", "y")]
    assert other.messages[0] is kept[0]


_HOLD = """
import asyncio, sys
from pathlib import Path
from whet.clock import SystemClock
from whet.contract.messages import Message
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript
async def main():
    clock = SystemClock()
    db = StateDatabase.open(Path(sys.argv[1]), clock)
    log = await Transcript.open(db, "s1", clock)
    await log.begin_turn(Message("user", "held"))
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@ONLY_SQLITE
def test_a_living_process_keeps_its_session_and_a_killed_one_loses_it(db, clock):
    async def refused(pid):
        log = await Transcript.open(db, "s1", clock)
        with pytest.raises(StoreBusy, match=f"process {pid}"):
            await log.begin_turn(user("mine"))
        assert await log.claim_unfinished_turn() is None
        with pytest.raises(StoreBusy):
            await db.write(lambda c: session_deletion.delete_session(c, "s1"))

    async def taken():
        log = await Transcript.open(db, "s1", clock)
        turn = await log.claim_unfinished_turn()
        assert turn is not None and texts(log) == [("user", "held")]
        await log.end_turn(turn, "answered", "")

    asyncio.run(new_log(db, clock))
    process = child(_HOLD, str(db.path))
    assert within(output_of(process).readline, "the other process to hold the session") == "ready\n"
    asyncio.run(refused(process.pid))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    asyncio.run(taken())


def _foreign_claim(db, renewed):
    db.write_now(lambda c: c.execute("UPDATE claims SET host = 'elsewhere', renewed = ?", (renewed,)))


@ONLY_SQLITE
async def test_a_claim_that_cannot_be_checked_is_a_lease(db, clock):
    first = await new_log(db, clock)
    turn = await first.begin_turn(user("x"))
    _foreign_claim(db, "2026-11-21T09:00:00.000Z")
    second = await Transcript.open(db, "s1", clock)
    clock.advance(50)
    with pytest.raises(StoreBusy):
        await second.begin_turn(user("y"))
    await first.append_reply(turn, answer("still here"), USAGE, "m")
    clock.advance(50)
    with pytest.raises(StoreBusy):
        await second.begin_turn(user("y"))
    clock.advance(20)
    await second.begin_turn(user("y"))
    with pytest.raises(StoreError):
        await first.append_reply(turn, answer("too late"), USAGE, "m")
    with pytest.raises(StoreBusy, match="taken over"):
        await first.end_turn(turn, "answered", "")
    assert texts(second)[-1] == ("user", "y")


@ONLY_SQLITE
async def test_a_failed_write_leaves_memory_as_it_was(db, clock):
    log, turn = await begin_session(db, clock, "x")
    await db.write(
        lambda c: c.execute(
            "CREATE TRIGGER no BEFORE INSERT ON messages BEGIN SELECT raise(ABORT, 'no'); END"
        )
    )
    with pytest.raises(StoreError):
        await log.append_reply(turn, asking("a"), USAGE, "m")
    assert texts(log) == [("user", "x")] and log.open_calls(turn) == [] and turn.steps == 0
    await db.write(lambda c: c.execute("DROP TRIGGER no"))
    await reply_and_end(log, turn, "ok")
    live, stored = texts(log), texts(await Transcript.open(db, "s1", clock))
    assert live == stored == [("user", "x"), ("assistant", "ok")]


async def test_undo_drops_the_last_turn_and_gives_its_text(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    kept = log.messages[0]
    assert await log.undo_last_turn() == (2, "two")
    assert texts(log) == [("user", "one"), ("assistant", "ok")] and log.messages[0] is kept
    turn = await log.begin_turn(user("three"))
    await log.end_turn(turn, "answered", "")
    assert await log.undo_last_turn() == (3, "three")
    assert await log.undo_last_turn() == (1, "one")
    assert await log.undo_last_turn() is None
    assert log.messages == (await Transcript.open(db, "s1", clock)).messages == []
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM messages").fetchone()) == (5,)


async def test_titles_endings_and_unknown_prices(db, clock):
    log = await new_log(db, clock)
    await log.details.set_title("A name")
    turn = await log.begin_turn(user("x"))
    await log.append_reply(turn, answer("y"), Usage(total_tokens=1, cost_usd=None), "m")
    await log.end_turn(turn, "failed", "the server is down")
    await log.details.end("quit")
    await log.details.set_private(True)
    row = log.session
    assert (row.title, row.end_reason, row.usage.cost_usd, row.private) == ("A name", "quit", None, True)
    assert row.ended


async def test_a_deleted_session_takes_no_more(db, clock):
    log = await talk(db, clock, "s1", "one")
    await db.write(lambda c: session_deletion.delete_session(c, "s1"))
    with pytest.raises(NotFound, match="deleted"):
        await log.begin_turn(user("two"))
    with pytest.raises(NotFound):
        await Transcript.open(db, "s1", clock)


_CRASH = """
import asyncio, os, sys
from pathlib import Path
from tests.store.support import USAGE, answer, asking, finish, new_log, one_job, user
from whet.clock import SystemClock
from whet.store.database import StateDatabase
async def main(stop):
    clock = SystemClock()
    db = StateDatabase.open(Path(sys.argv[1]), clock)
    log = await new_log(db, clock)
    turn, step = None, 0
    def reached():
        nonlocal step
        step += 1
        if step == stop:
            os._exit(9)
    turn = await log.begin_turn(user("go")); reached()
    await log.append_reply(turn, asking("a", "b"), USAGE, "m"); reached()
    first, second = log.open_calls(turn)
    await log.store_call_start(turn, first, "rule"); reached()
    await log.store_call_start(turn, second, "rule"); reached()
    await finish(log, turn, second, "two"); reached()
    await finish(log, turn, first, "one"); reached()
    await log.append_reply(turn, answer("end"), USAGE, "m"); reached()
    await log.end_turn(turn, "answered", "", one_job(clock)); reached()
asyncio.run(main(int(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(1, 9))
async def test_what_was_written_before_a_crash_is_there(tmp_path, clock, stop):
    path = tmp_path / "state.db"
    process = child(_CRASH, str(path), str(stop))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 9, output
    db = StateDatabase.open(path, clock)
    log = await Transcript.open(db, "s1", clock)
    turn = await log.claim_unfinished_turn()
    assert (turn is None) == (stop == 8)
    counts = {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5}
    assert len(log.messages) == counts[stop]
    if turn is not None:
        open_calls = {2: [(0, False), (1, False)], 3: [(0, True), (1, False)]}
        open_calls |= {4: [(0, True), (1, True)], 5: [(0, True)]}
        assert [(c.index, c.started) for c in log.open_calls(turn)] == open_calls.get(stop, [])
    assert len(await db.read(list_jobs)) == (1 if stop == 8 else 0)
    db.close()
