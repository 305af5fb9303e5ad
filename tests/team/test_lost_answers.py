"""A commit whose answer was lost: it counts if it is there, and is made again if the database lost it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest

from tests.store.support import USAGE, answer, begin_session, new_log, user
from tests.support import wait_until
from whet.clock import SystemClock
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.store.migrations import STEPS
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript
from whet_lab.practice.database import TrialServer

_STALLED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Pair:
    """A primary whose replica receives nothing any more: commits on it are stored and never answered."""

    def __init__(self) -> None:
        self.primary = TrialServer(syncs=True)
        self.replica: TrialServer | None = None

    def start(self) -> str:
        """Start both and return the address of whichever can be written."""
        with closing(connect(self.primary.url)) as admin:
            schema.init(admin, STEPS)
        self.replica = TrialServer(syncs=True, primary=self.primary)
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}"
        return f"postgresql://whet@{hosts}/postgres?target_session_attrs=read-write"

    def stall(self) -> None:
        """Cut the replica off once it has everything so far; from here on the primary waits for it."""
        assert self.replica is not None
        with closing(connect(self.primary.url)) as admin:
            row = admin.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            assert row is not None
            with closing(connect(self.replica.url)) as there:
                has_it = "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn"
                wait_until(lambda: there.execute(has_it, (row[0],)).fetchone() == (True,))
                there.execute("ALTER SYSTEM SET primary_conninfo = ''")
                there.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                there.execute("SELECT pg_reload_conf()")
                gone = "SELECT count(*) FROM pg_stat_wal_receiver"
                wait_until(lambda: there.execute(gone).fetchone() == (0,))
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            wait_until(lambda: admin.execute("SHOW synchronous_standby_names").fetchone() == ("*",))

    def wait_for_commit(self) -> None:
        with closing(connect(self.primary.url)) as admin:
            wait_until(lambda: admin.execute(_STALLED).fetchone() == (1,))

    def fail_over(self, until_number: int) -> None:
        """Kill the primary and promote the replica, where others have used up these numbers of transactions
        before anybody else can write."""
        assert self.replica is not None
        self.primary.control("-m", "immediate", "-w", "stop")
        self.replica.control("-w", "promote")
        with closing(connect(self.replica.url)) as admin:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("CREATE TABLE others (number BIGINT)")
            while True:
                row = admin.execute(
                    "INSERT INTO others VALUES (pg_current_xact_id()::text::bigint) RETURNING number"
                ).fetchone()
                assert row is not None
                if row[0] > until_number:
                    break
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        for server in (self.replica, self.primary):
            if server is not None:
                server.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as made:
        yield made


@pytest.mark.slow
def test_a_commit_that_a_failover_lost_is_made_again_though_its_number_was_given_to_another(pair):
    url = pair.start()
    numbers: list[int] = []

    def work(connection) -> None:
        row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        numbers.append(row[0])
        connection.execute("UPDATE sessions SET title = 'mine'")

    with closing(TeamDatabase.open_url(url, patience_s=60.0)) as db:
        asyncio.run(new_log(db, SystemClock()))
        pair.stall()
        written: Future[None] = db.submit(work)
        pair.wait_for_commit()
        pair.fail_over(numbers[0])
        written.result(60)
        assert db.read_now(lambda c: c.execute("SELECT title FROM sessions").fetchone()) == ("mine",)
        assert len(numbers) == 2


@pytest.mark.slow
async def test_a_commit_that_was_answered_to_nobody_counts_once(url, cluster):
    """The connection is cut while rows are on their way: each is there once, in its order."""
    with closing(TeamDatabase.open_url(url)) as db:
        log, turn = await begin_session(db, SystemClock(), "x")
        for number in range(30):
            cutting = asyncio.create_task(asyncio.to_thread(cluster.cut, url))
            await log.append_reply(turn, answer(str(number)), USAGE, "m")
            await cutting
        await log.end_turn(turn, "answered", "")
        assert [message.text for message in (await Transcript.open(db, "s1", SystemClock())).messages] == [
            "x",
            *map(str, range(30)),
        ]


class Line:
    """A way to the database that can swallow the server's next answer and then end that connection."""

    def __init__(self, port: int) -> None:
        self.swallows_next = False
        self._server_port = port
        self._threads: list[threading.Thread] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._threads.append(threading.Thread(target=self._accept))
        self._threads[0].start()

    def _accept(self) -> None:
        with self._socket, suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                back = threading.Thread(target=self._copy, args=(server, client))
                there = threading.Thread(target=self._copy, args=(client, server))
                self._threads += [back, there]
                back.start()
                there.start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(65_536):
                if self.swallows_next and source.getpeername()[1] == self._server_port:
                    self.swallows_next = False
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
            source.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept nothing more and wait for the connections to end."""
        self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)


@pytest.mark.slow
async def test_a_turn_goes_on_whose_beginning_was_committed_and_not_answered(url):
    """The claim's number is in the answer that was lost: the session is claimed again under a new one."""
    port = urlsplit(url).port
    assert port is not None
    with (
        closing(Line(port)) as line,
        closing(TeamDatabase.open_url(url.replace(f":{port}/", f":{line.port}/"), lease_s=600.0)) as db,
    ):
        log, turn = await begin_session(db, SystemClock(), "x")
        await log.end_turn(turn, "answered", "")
        line.swallows_next = True
        turn = await log.begin_turn(user("y"))
        assert not line.swallows_next and turn.number == 2
        await log.append_reply(turn, answer("z"), USAGE, "m")
        await log.end_turn(turn, "answered", "")
        stored = await Transcript.open(db, "s1", SystemClock())
        assert [message.text for message in stored.messages] == ["x", "y", "z"]
