"""Two workers and one call: whoever takes a session over knows of every call that was started before."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.late import Late
from tests.store.support import USAGE, asking, begin_session, child, finish, new_log
from tests.support import output_of, wait_until
from tests.team.take_over_model import Protocol, explore
from tests.team.test_soak import ROUNDS
from whet.clock import SystemClock
from whet.contract.errors import StoreBusy
from whet.store.team import TeamDatabase
from whet.store.transcript import OpenCall, Transcript, TurnRecord

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
_WORKER = """
import asyncio, sys
from tests.store.support import USAGE, asking, user
from whet.clock import SystemClock
from whet.contract.errors import StoreError
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript

async def main():
    db = TeamDatabase.open_url(sys.argv[1], lease_s=1.0)
    log = await Transcript.open(db, "s1", SystemClock())
    turn = await log.begin_turn(user("x"))
    await log.append_reply(turn, asking("t"), USAGE, "m")
    print("asked", flush=True)
    sys.stdin.readline()
    try:
        await log.store_call_start(turn, log.open_calls(turn)[0], "rule")
        print("runs", flush=True)
        await log.end_turn(turn, "answered", "")
    except StoreError as error:
        print("refused:", error, flush=True)

asyncio.run(main())
"""


@contextmanager
def opened(url: str, lease_s: float = 30.0) -> Iterator[TeamDatabase]:
    with closing(TeamDatabase.open_url(url, lease_s=lease_s)) as database:
        yield database


@contextmanager
def expiring(url: str) -> Iterator[TeamDatabase]:
    """A worker whose lease has run out as soon as it is taken, as of one that is stopped for long."""
    with opened(url, 0.0) as database:
        database.keeper.close()
        yield database


class Bystander:
    """A third connection, which holds a lock on the row of the call."""

    def __init__(self, url: str) -> None:
        self._holding = psycopg.connect(url)
        self._holding.execute("SELECT 1 FROM tool_calls FOR UPDATE")
        self._watching = psycopg.connect(url, autocommit=True)

    def waiting(self) -> int:
        """Return how many connections wait for a lock."""
        row = self._watching.execute(_WAITING).fetchone()
        assert row is not None
        return row[0]

    async def until_waiting(self, count: int) -> None:
        await asyncio.to_thread(wait_until, lambda: self.waiting() >= count)

    def sees_lease_over(self) -> bool:
        """Return whether the claim's lease has run out."""
        return self._watching.execute("SELECT 1 FROM claims WHERE lease_until < now()").fetchone() is not None

    def let_go(self) -> None:
        self._holding.commit()

    def close(self) -> None:
        self._holding.close()
        self._watching.close()


@pytest.fixture
def bystander(url: str) -> Iterator[list[Bystander]]:
    bystanders: list[Bystander] = []
    yield bystanders
    for one in bystanders:
        one.close()


async def asked(db: TeamDatabase) -> tuple[Transcript, TurnRecord, OpenCall]:
    log, turn = await begin_session(db, SystemClock(), "x")
    await log.append_reply(turn, asking("t"), USAGE, "m")
    return log, turn, log.open_calls(turn)[0]


async def run_unless_started(log: Transcript, turn: TurnRecord, name: str, effects: list[str]) -> None:
    """Do what the dispatcher does with an effect: run it once its start is stored, never a second time."""
    (call,) = log.open_calls(turn)
    if not call.started:
        await log.store_call_start(turn, call, "rule")
        effects.append(name)


@pytest.mark.slow
async def test_a_call_whose_start_waited_for_a_lock_during_the_take_over_runs_once(url, bystander):
    with expiring(url) as first, opened(url) as second:
        effects: list[str] = []
        log, turn, _ = await asked(first)
        bystander.append(lock := Bystander(url))
        starting = asyncio.create_task(run_unless_started(log, turn, "first", effects))
        await lock.until_waiting(1)
        theirs = await Transcript.open(second, "s1", SystemClock())
        taking = asyncio.create_task(theirs.claim_unfinished_turn())
        await lock.until_waiting(2)  # it has read the session, and waits for the claim
        lock.let_go()
        taken = await taking
        assert taken is not None
        await run_unless_started(theirs, taken, "second", effects)
        await starting
        with pytest.raises(StoreBusy):
            await log.end_turn(turn, "answered", "")
        assert effects == ["first"]


@pytest.mark.slow
async def test_a_call_is_not_started_by_a_worker_that_has_not_seen_its_earlier_start(url):
    """What a later reader would have to know is checked by the database, too."""
    with opened(url) as db:
        log, turn, call = await asked(db)
        with psycopg.connect(url) as other:
            other.execute("UPDATE tool_calls SET started = 1")
        with pytest.raises(StoreBusy):
            await log.store_call_start(turn, call, "rule")


@pytest.mark.slow
async def test_a_call_does_not_run_if_the_database_has_lost_it(url):
    """As after a failover to a replica that had not received the answer."""
    with opened(url) as db:
        log, turn, call = await asked(db)
        with psycopg.connect(url) as other:
            other.execute("DELETE FROM tool_calls")
        with pytest.raises(StoreBusy):
            await log.store_call_start(turn, call, "rule")


@pytest.mark.slow
async def test_a_take_over_waits_for_a_start_on_its_way_and_is_resumed_with_it(url, bystander):
    with expiring(url) as first, opened(url) as second:
        log, turn, call = await asked(first)
        bystander.append(lock := Bystander(url))
        starting = asyncio.create_task(log.store_call_start(turn, call, "rule"))
        await lock.until_waiting(1)
        theirs = await Transcript.open(second, "s1", SystemClock())
        taking = asyncio.create_task(theirs.claim_unfinished_turn())
        await lock.until_waiting(2)
        lock.let_go()
        taken = await taking
        await starting
        assert taken is not None
        (open_call,) = theirs.open_calls(taken)
        assert open_call.started
        await finish(theirs, taken, open_call, "outcome unknown")
        await theirs.end_turn(taken, "answered", "")


@contextmanager
def stopped_worker(url: str) -> Iterator[subprocess.Popen[str]]:
    process = child(_WORKER, url, stderr=subprocess.DEVNULL)
    try:
        assert output_of(process).readline() == "asked\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_a_worker_stopped_while_its_start_waits_for_a_lock_runs_the_call_alone(url, bystander):
    """A process that is stopped with its statement at the server, and continued after the take-over."""
    with opened(url) as db:
        asyncio.run(new_log(db, SystemClock()))

        async def main(process: subprocess.Popen[str]) -> list[str]:
            effects: list[str] = []
            bystander.append(lock := Bystander(url))
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            await lock.until_waiting(1)
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.to_thread(wait_until, lock.sees_lease_over)
            theirs = await Transcript.open(db, "s1", SystemClock())
            taking = asyncio.create_task(theirs.claim_unfinished_turn())
            await lock.until_waiting(2)
            lock.let_go()
            taken = await taking
            assert taken is not None
            await run_unless_started(theirs, taken, "second", effects)
            os.kill(process.pid, signal.SIGCONT)
            if await asyncio.to_thread(output_of(process).readline) == "runs\n":
                effects.append("first")
                last = await asyncio.to_thread(output_of(process).readline)
                assert last == "refused: another worker has taken over this session\n"
            return effects

        with stopped_worker(url) as process:
            assert asyncio.run(main(process)) == ["first"]


@pytest.mark.soak
def test_forced_take_overs_run_no_call_twice(cluster):
    kinds = (
        test_a_call_whose_start_waited_for_a_lock_during_the_take_over_runs_once,
        test_a_take_over_waits_for_a_start_on_its_way_and_is_resumed_with_it,
        test_a_worker_stopped_while_its_start_waits_for_a_lock_runs_the_call_alone,
    )
    for number in range(ROUNDS):
        url, bystanders = cluster.database(), list[Bystander]()
        if (round_of_kind := kinds[number % len(kinds)](url, bystanders)) is not None:
            asyncio.run(round_of_kind)
        for one in bystanders:
            one.close()
        cluster.drop(url)


def test_no_order_of_steps_runs_a_call_twice():
    """Three workers, a slow replica, a lost answer and a failover, in every order."""
    count, twice = explore(Protocol())
    assert count > 1_000 and twice == []


@pytest.mark.parametrize("part", Protocol._fields)
def test_each_part_of_the_protocol_is_needed(part):
    assert explore(Protocol(**{part: False}), workers=2)[1]
