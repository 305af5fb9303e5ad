"""A worker that was stopped, killed or cut off writes nothing after another has taken its session over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.store.support import USAGE, answer, asking, begin_session, child, finish, new_log, user
from tests.support import output_of, wait_until
from whet.clock import SystemClock
from whet.contract.errors import StoreBusy
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript

LEASE_S = 1.0
LIVING_LEASE_S = 3.0  # a busy machine may renew a lease two seconds late
_WORKER = """
import asyncio, sys
from tests.store.support import USAGE, answer, user
from whet.clock import SystemClock
from whet.contract.errors import StoreError
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript

async def main():
    db = TeamDatabase.open_url(sys.argv[1], lease_s=float(sys.argv[2]))
    log = await Transcript.open(db, "s1", SystemClock())
    turn = await log.begin_turn(user("from the worker"))
    print("begun", flush=True)
    for line in sys.stdin:
        try:
            await log.append_reply(turn, answer(line.strip()), USAGE, "m")
            print("written", flush=True)
        except StoreError as error:
            print("refused:", error, flush=True)

asyncio.run(main())
"""


@contextmanager
def opened(url: str, lease_s: float = LEASE_S) -> Iterator[TeamDatabase]:
    with closing(TeamDatabase.open_url(url, lease_s=lease_s)) as database:
        yield database


@contextmanager
def worker(url: str, lease_s: float = LEASE_S) -> Iterator[subprocess.Popen[str]]:
    # What the driver logs of a connection that was cut would stand among the answers.
    process = child(_WORKER, url, str(lease_s), stderr=subprocess.DEVNULL)
    try:
        assert output_of(process).readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def say(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return output_of(process).readline().strip()


def session(url: str) -> None:
    with opened(url) as db:
        asyncio.run(new_log(db, SystemClock()))


async def take_over(db: TeamDatabase) -> tuple[Transcript, float]:
    """Take the session as soon as that is possible; give the open turn and how long it took."""
    began = time.monotonic()
    while True:
        log = await Transcript.open(db, "s1", SystemClock())
        if await log.claim_unfinished_turn() is not None:
            return log, time.monotonic() - began
        await asyncio.sleep(0.05)


def texts(log: Transcript) -> list[str]:
    return [message.text for message in log.messages]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_stopped_or_killed_worker_loses_its_session_and_writes_no_more(url, number):
    session(url)

    async def main(db: TeamDatabase, process: subprocess.Popen[str]) -> list[str]:
        os.kill(process.pid, number)
        log, took_s = await take_over(db)
        assert took_s < LEASE_S + 20  # a busy machine
        turn = await log.claim_unfinished_turn()
        assert turn is not None
        await log.append_reply(turn, answer("from another"), USAGE, "m")
        if number == signal.SIGSTOP:
            os.kill(process.pid, signal.SIGCONT)
            text = await asyncio.to_thread(say, process, "too late")
            assert text == "refused: another worker has taken over this session"
        await log.end_turn(turn, "answered", "")
        return texts(await Transcript.open(db, "s1", SystemClock()))

    with worker(url) as process, opened(url) as db:
        assert say(process, "in time") == "written"
        found = asyncio.run(main(db, process))
    assert found == ["from the worker", "in time", "from another"]


@pytest.mark.slow
def test_a_living_workers_session_is_not_taken_however_long_it_is_silent(url):
    session(url)

    async def main(db: TeamDatabase) -> None:
        log = await Transcript.open(db, "s1", SystemClock())
        until = time.monotonic() + 1.5 * LIVING_LEASE_S
        while time.monotonic() < until:
            assert await log.claim_unfinished_turn() is None
            with pytest.raises(StoreBusy, match="is in use by process"):
                await log.begin_turn(user("x"))
            await asyncio.sleep(0.2)

    with worker(url, LIVING_LEASE_S) as process, opened(url) as db:
        asyncio.run(main(db))
        assert say(process, "still here") == "written"


@pytest.mark.slow
async def test_a_call_that_was_begun_by_a_fenced_worker_is_begun_once(url):
    """Two workers can't both record that a call begins."""
    with (
        opened(url, 0.0) as database,
        opened(url, 30.0) as other,
    ):  # the first one's lease has run out at once
        database.keeper.close()
        log, turn = await begin_session(database, SystemClock(), "x")
        await log.append_reply(turn, asking("t"), USAGE, "m")
        theirs = await Transcript.open(other, "s1", SystemClock())
        again = await theirs.claim_unfinished_turn()
        assert again is not None
        (call,) = theirs.open_calls(again)
        with pytest.raises(StoreBusy, match="another worker has taken over"):
            await log.store_call_start(turn, log.open_calls(turn)[0], "rule")
        assert not (await Transcript.open(other, "s1", SystemClock())).open_calls(again)[0].started
        await theirs.store_call_start(again, call, "rule")
        await finish(theirs, again, call)
        with pytest.raises(StoreBusy):
            await log.end_turn(turn, "answered", "")
        await theirs.end_turn(again, "answered", "")


@pytest.mark.slow
async def test_a_killed_connection_is_made_again_and_nothing_is_lost_or_doubled(url, cluster):
    with opened(url, 30.0) as db:
        log, turn = await begin_session(db, SystemClock(), "x")
        for number in range(20):
            if number % 4 == 0:
                cluster.cut(url)
            await log.append_reply(turn, answer(str(number)), USAGE, "m")
        await log.end_turn(turn, "answered", "")
        assert texts(await Transcript.open(db, "s1", SystemClock())) == ["x", *map(str, range(20))]


@pytest.mark.slow
async def test_a_server_that_stops_and_comes_back_is_waited_for(url, cluster):
    if cluster.own is None:
        pytest.skip("only a server of the tests' own is restarted")
    with opened(url, 30.0) as db:
        log, turn = await begin_session(db, SystemClock(), "x")
        restart = asyncio.create_task(asyncio.to_thread(cluster.restart))
        for number in range(30):
            await log.append_reply(turn, answer(str(number)), USAGE, "m")
            await asyncio.sleep(0.02)
        await restart
        await log.end_turn(turn, "answered", "")
        assert texts(await Transcript.open(db, "s1", SystemClock())) == ["x", *map(str, range(30))]


@pytest.mark.slow
def test_a_process_that_stops_in_a_transaction_does_not_stop_the_others(url):
    """A batch of functions holds the team's lock; the server ends it where the process stands still in it."""
    code = """
import os, signal, sys
from whet.store.team import TeamDatabase
db = TeamDatabase.open_url(sys.argv[1])
def stand_still(connection):
    connection.execute("UPDATE sessions SET title = 'never'")
    os.kill(os.getpid(), signal.SIGSTOP)
db.write_now(stand_still)
"""
    session(url)
    process = child(code, url)
    try:
        wait_until(
            lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", 60
        )
        with opened(url, 30.0) as db:
            db.write_now(lambda c: c.execute("UPDATE sessions SET title = 'mine'"))
            assert db.read_now(lambda c: c.execute("SELECT title FROM sessions").fetchone()) == ("mine",)
    finally:
        process.kill()
        process.communicate(timeout=60)
