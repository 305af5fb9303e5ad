"""The start of a call holds the session: nobody starts a call that another process holds or has started."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw
import pytest

from tests.store.support import ONLY_SQLITE, USAGE, asking, begin_session, finish
from tests.support import FixedClock
from whet.contract.errors import StoreBusy
from whet.store.claims import LEASE_S
from whet.store.transcript import OpenCall, Transcript, TurnRecord


async def asked(db, clock) -> tuple[Transcript, TurnRecord, OpenCall]:
    log, turn = await begin_session(db, clock, "x")
    await log.append_reply(turn, asking("t"), USAGE, "m")
    return log, turn, log.open_calls(turn)[0]


@ONLY_SQLITE
async def test_a_start_between_the_reading_and_the_claim_of_a_take_over_is_seen(db, clock, tmp_path):
    """The first process stores the start, begins and dies while the second waits to claim the session."""
    log, _, call = await asked(db, clock)
    log.close()  # it is dead for all who look
    theirs = await Transcript.open(db, "s1", clock)
    before = theirs.live.step
    with closing(apsw.Connection(str(tmp_path / "state.db"))) as first:
        first.execute("BEGIN IMMEDIATE")
        taking = asyncio.create_task(theirs.claim_unfinished_turn())
        while theirs.live.step is before:
            await asyncio.sleep(0)
        first.execute("UPDATE tool_calls SET started = 1, decided_by = 'rule'")
        first.execute("COMMIT")
        taken = await taking
    assert taken is not None
    (open_call,) = theirs.open_calls(taken)
    assert open_call.started and not call.started


@ONLY_SQLITE
async def test_a_process_whose_claim_was_taken_over_starts_no_call(db, clock):
    """One on another machine that was stopped for longer than a claim lasts, and then goes on."""
    later = FixedClock()
    later.advance(LEASE_S + 1)
    for _ in range(100):  # another process has other ids
        later.new_id()
    log, turn, call = await asked(db, clock)
    db.write_now(lambda c: c.execute("UPDATE claims SET host = 'elsewhere', pid = 999999999"))
    theirs = await Transcript.open(db, "s1", later)
    taken = await theirs.claim_unfinished_turn()
    assert taken is not None
    with pytest.raises(StoreBusy, match="has taken over this session"):
        await log.store_call_start(turn, call, "rule")
    await theirs.store_call_start(taken, theirs.open_calls(taken)[0], "rule")


async def test_a_call_that_may_run_twice_is_started_again(db, clock):
    log, turn, call = await asked(db, clock)
    await log.store_call_start(turn, call, "rule")
    (again,) = log.open_calls(turn)
    assert again.started
    await log.store_call_start(turn, again, "rule")
    with pytest.raises(StoreBusy, match="taken over this session"):
        await log.store_call_start(turn, call, "rule")  # by one who does not know of the first start
    await finish(log, turn, again)
    await log.end_turn(turn, "answered", "")
