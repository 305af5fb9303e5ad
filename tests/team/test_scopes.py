"""What waits for what: functions of one session run one after the other, those of two beside each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import apsw
import pytest

from tests.late import Late
from tests.store.support import new_log, reply_and_end, user  # pyright: ignore[reportUnknownVariableType]
from tests.support import wait_until
from whet.clock import SystemClock
from whet.sqlite.lane import ScopedWrite
from whet.store.sessions import freeze_prefix, read_prefix
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript

psycopg = Late("psycopg")
_ANY_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


class Held:
    """A transaction of another process, which begins a turn of its session and does not end."""

    def __init__(self, work: Callable[[apsw.Connection], object]) -> None:
        self.runs = 0
        self._work = work
        self.has_begun = threading.Event()
        self._may_end = threading.Event()

    def begin_turn(self, url: str, session_id: str) -> None:
        database = TeamDatabase.open_url(url)

        def hold(connection: apsw.Connection) -> tuple[()]:
            self.runs += 1
            self._work(connection)
            connection.execute("SELECT 1").fetchone()  # what waits to be sent is sent
            self.has_begun.set()
            self._may_end.wait(60)
            return ()

        async def begin() -> None:
            log = await Transcript.open(database, session_id, SystemClock())
            await log.begin_turn(user("x"), also=hold)

        try:
            asyncio.run(begin())
        finally:
            database.close()

    def end(self) -> None:
        self._may_end.set()


@contextmanager
def holding(
    url: str, session_id: str, work: Callable[[apsw.Connection], object] = lambda _: None
) -> Generator[tuple[Held, Future[None]]]:
    held = Held(work)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(held.begin_turn, url, session_id)
        try:
            assert held.has_begun.wait(60)
            yield held, done
        finally:
            held.end()


def return_one(connection: object) -> int:
    return 1


def do_nothing(connection: object) -> tuple[()]:
    return ()


async def test_a_turn_runs_while_another_sessions_transaction_is_open(url: str, db: TeamDatabase) -> None:
    clock = SystemClock()
    for session_id in ("a", "b"):
        (await new_log(db, clock, session_id)).close()
    with holding(url, "a") as (held, done):
        log = await Transcript.open(db, "b", clock)
        turn = await log.begin_turn(user("y"), also=do_nothing)
        await reply_and_end(log, turn, "z")
        await new_log(db, clock, "c")
        assert held.runs == 1 and not done.done()
    await asyncio.wrap_future(done)
    assert held.runs == 1


def test_two_sessions_store_the_same_prompt_at_the_same_time(url: str, db: TeamDatabase) -> None:
    def freeze(session_id: str) -> Callable[[apsw.Connection], None]:
        return lambda connection: freeze_prefix(connection, session_id, "a prompt", "[1, 2]")

    for session_id in ("a", "b"):
        asyncio.run(new_log(db, SystemClock(), session_id)).close()
    with holding(url, "a", freeze("a")) as (held, done), psycopg.connect(url, autocommit=True) as admin:
        stored = db.submit(ScopedWrite("b", freeze("b")))
        wait_until(lambda: admin.execute(_ANY_WAITING).fetchone() == (1,))
        held.end()
        assert stored.result() is None
        done.result()
    prefixes = {db.read_now(lambda c, one=text: read_prefix(c, one)) for text in ("a", "b")}
    assert prefixes == {("a prompt", "[1, 2]")}


@pytest.mark.parametrize(
    "work", [return_one, ScopedWrite("a", return_one)], ids=["without a scope", "of the same session"]
)
def test_a_function_on_the_same_rows_waits(url: str, db: TeamDatabase, work: Callable[[object], int]) -> None:
    asyncio.run(new_log(db, SystemClock(), "a")).close()
    with holding(url, "a") as (held, done), psycopg.connect(url, autocommit=True) as admin:
        waiting = db.submit(work)
        wait_until(lambda: admin.execute(_WAITING).fetchone() == (1,))
        assert not waiting.done()
        held.end()
        assert waiting.result() == 1
        done.result()
    assert held.runs == 1
