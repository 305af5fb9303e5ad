"""Workers and servers are killed, stopped and cut off, databases restarted and replaced: nothing is lost,
nothing is done twice, the order holds, every call has one result."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support import output_of, wait_until
from tests.team.cluster import Cluster
from tests.team.processes import LEASE_S, Served, environment, served, start, worker
from tests.team.test_workers import are_done, ask, has_ended, opened, transcript
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.store.migrations import STEPS
from whet.store.team import TeamDatabase
from whet.team.queue import DatabaseQueue, read_result
from whet_lab.practice.database import TrialServer
from whet_lab.practice.script import Fault, ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

CALLS = 3
pytestmark = pytest.mark.timeout(3600)

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "200"))


def script_of(name: str, marks: Path) -> list[ScriptedReply]:
    """Calls with an effect each, then answers: more of these than a turn that is killed often asks for."""
    calls = [terminal_reply(f"echo {name}.{at} >> {marks}") for at in range(CALLS)]
    given = [*calls, *[ScriptedReply(f"answer to {name}")] * 20]
    return [ScriptedReply(reply.text, tool_calls=reply.tool_calls, when=f"<{name}>") for reply in given]


def check(db: TeamDatabase, queue: DatabaseQueue, asked: dict[str, tuple[str, str]], marks: Path) -> None:
    """See that every turn (name: its id and its session) was answered once, with one result for each call."""
    done = Counter(marks.read_text().splitlines())
    assert done and max(done.values()) == 1, done.most_common(3)
    for name, (turn_id, session_id) in asked.items():
        ended = read_result(queue.database, turn_id)
        assert ended is not None and (ended.reason, ended.error) == ("answered", ""), (name, ended)
        messages = transcript(db, session_id).messages
        numbers = [
            at
            for at, message in enumerate(messages)
            if message.role == "user" and message.text == f"<{name}>"
        ]
        assert len(numbers) == 1, name
        open_calls: list[str] = []
        for one in messages:
            if one.role == "assistant":
                assert not open_calls
                open_calls = [call.id for call in one.tool_calls]
            elif one.role == "tool":
                assert one.tool_call_id in open_calls
                open_calls.remove(one.tool_call_id)
        assert not open_calls and messages[-1].role == "assistant"


class Listener:
    """Follows a session's events, at whichever server there is; comes back with the last id that it had."""

    def __init__(self, servers: Callable[[], list[Served]], session_id: str, began: str, ends: int) -> None:
        self._servers, self._session_id, self._last, self._ends = servers, session_id, began, ends
        self.ids: list[int] = []
        self.ended: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while len(self.ended) < self._ends:
            try:
                with random.choice(self._servers()).events(self._session_id, self._last) as events:
                    for id_, event in events:
                        self._take(id_, event)
                        if len(self.ended) == self._ends:
                            return
            except (httpx2.HTTPError, AssertionError):  # the server was killed, or is not there yet
                time.sleep(0.05)

    def _take(self, id_: str, event: dict[str, Any]) -> None:
        if id_:
            self._last = id_
            self.ids.append(int(id_.partition("-")[2]))
        if event["type"] == "turn_end":
            self.ended.append(event)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), (self._session_id, self.ended)


def rounds_of_kills(url: str, folder: Path, rounds: int, sessions: int, seed: int) -> None:
    """Three workers and two servers; one of them at random is killed and replaced, over and over."""
    dice, marks = random.Random(seed), folder / "marks.txt"
    names = [f"t{number}" for number in range(sessions)]
    script = [reply for name in names for reply in script_of(name, marks)]
    with PracticeServer(script=script) as model, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, folder / "home", model, "practice")
        there: list[Served] = [stack.enter_context(served(given, folder)) for _ in range(2)]
        workers = [stack.enter_context(worker(given, folder)) for _ in range(3)]
        asked: dict[str, tuple[str, str]] = {}
        listeners: list[Listener] = []
        per_round = -(-sessions // rounds)
        waiting = [*names]
        for _ in range(rounds):
            for name in waiting[:per_round]:
                one = dice.choice(there)
                id_ = one.session()
                began = one.post(f"/api/sessions/{id_}/turns", text=f"<{name}>")["last_event_id"]
                asked[name] = ("", id_)
                listeners.append(Listener(lambda: there, id_, began, 1))
            del waiting[:per_round]
            if dice.random() < 0.25:
                place = dice.randrange(2)
                there[place].process.kill()
                there[place] = stack.enter_context(served(given, folder))
            else:
                place = dice.randrange(3)
                workers[place].kill()
                workers[place] = stack.enter_context(worker(given, folder))
        rows = db.read_now(lambda c: c.execute("SELECT session, id FROM team_turns").fetchall())
        by_session = dict(rows)
        assert len(rows) == len(asked)
        asked = {name: (by_session[id_], id_) for name, (_, id_) in asked.items()}
        wait_until(lambda: are_done(db, queue, [turn for turn, _ in asked.values()]), 900)
        for one in listeners:
            one.join(120)
            assert one.ids == sorted(set(one.ids)) and one.ended[0]["reason"] == "answered"
        check(db, queue, asked, marks)


@pytest.mark.slow
def test_a_few_kills_lose_double_and_reorder_nothing(url, tmp_path):
    rounds_of_kills(url, tmp_path, 4, 8, 1)


@pytest.mark.soak
def test_two_hundred_rounds_of_kills(url, tmp_path):
    rounds_of_kills(url, tmp_path, ROUNDS, 5 * ROUNDS, 19)


def is_taken_again(queue: DatabaseQueue, turn_id: str) -> bool:
    turn = read_result(queue.database, turn_id)
    return turn is not None and turn.attempts == 2


def stopped(url: str, folder: Path, rounds: int, halt: Callable[[Any], None], go_on: Callable[[Any], None],
            begun: Callable[[ExitStack, dict[str, str]], Any]) -> list[float]:  # fmt: skip
    """A worker that answers is halted beyond its lease, another takes over, the first goes on: it writes
    nothing. Gives how long each take-over took."""
    took: list[float] = []
    for number in range(rounds):
        stall = ScriptedReply("never seen", fault=Fault(stall_after=0))
        with PracticeServer(script=[stall, ScriptedReply("the answer")]) as model, ExitStack() as stack:
            db, queue = stack.enter_context(opened(url))
            given = environment(url, folder / f"home{number}", model, "practice")
            first = begun(stack, given)
            turn_id, session_id = ask(db, queue, "answer")
            model.wait_for_stall(1, 60)
            stack.enter_context(worker(given, folder))
            halt(first)
            since = time.monotonic()
            wait_until(partial(is_taken_again, queue, turn_id), 120)
            took.append(time.monotonic() - since)
            wait_until(partial(has_ended, queue, turn_id), 120)
            model.release()
            go_on(first)
            while "left" not in output_of(first).readline():
                pass
            messages = transcript(db, session_id).messages
            assert [message.text for message in messages if message.role == "assistant"] == ["the answer"]
    return took


@pytest.mark.slow
def test_a_worker_that_was_stopped_beyond_its_lease_writes_nothing(url, tmp_path):
    stopped(url, tmp_path, 1, *_by_signal(tmp_path))


@pytest.mark.soak
def test_workers_are_stopped_over_and_over_and_others_take_over_in_time(url, tmp_path):
    took = sorted(stopped(url, tmp_path, ROUNDS // 10, *_by_signal(tmp_path)))
    print([round(one, 2) for one in took])
    assert took[-1] <= LEASE_S + 2


def _by_signal(folder: Path) -> Any:
    return (
        lambda process: process.send_signal(signal.SIGSTOP),
        lambda process: process.send_signal(signal.SIGCONT),
        lambda stack, given: stack.enter_context(worker(given, folder)),
    )


class Relay:
    """Passes connections on, for what lives in another network."""

    def __init__(self, host: str, to: tuple[str, int]) -> None:
        self._to = to
        self._socket = socket.create_server((host, 0))
        self.port: int = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            other = socket.create_connection(self._to)
            self._open += [connection, other]
            for source, target in ((connection, other), (other, connection)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        for connection in (self._socket, *self._open):
            connection.close()


class Elsewhere:
    """A network of its own, which can be cut off."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.name, self.outside, self.inside = f"whet{os.getpid()}", f"wo{os.getpid()}", f"wi{os.getpid()}"
        self.host, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        self.relays: list[Relay] = []

    def __enter__(self) -> Elsewhere:
        run = self.run
        run("netns", "add", self.name)
        run("link", "add", self.outside, "type", "veth", "peer", "name", self.inside, "netns", self.name)
        run("addr", "add", f"{self.host}/24", "dev", self.outside)
        run("link", "set", self.outside, "up")
        run("-n", self.name, "addr", "add", f"{self.there}/24", "dev", self.inside)
        run("-n", self.name, "link", "set", self.inside, "up")
        run("-n", self.name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for relay in self.relays:
            relay.close()
        subprocess.run(["ip", "link", "del", self.outside], check=False, capture_output=True)
        self.run("netns", "del", self.name)

    @staticmethod
    def run(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)

    def seen(self, url: str) -> str:
        """The address by which what listens on this machine is reached from there."""
        port = int(re.findall(r"127\.0\.0\.1:(\d+)", url)[0])
        relay = Relay(self.host, ("127.0.0.1", port))
        self.relays.append(relay)
        return url.replace(f"127.0.0.1:{port}", f"{self.host}:{relay.port}")


@contextmanager
def cut_off(url: str, folder: Path) -> Iterator[Any]:
    with Elsewhere() as net:

        def begun(stack: ExitStack, given: dict[str, str]) -> subprocess.Popen[str]:
            there = given | {
                "WHET_STORE_URL": net.seen(url),
                "WHET_MODEL_BASE_URL": net.seen(given["WHET_MODEL_BASE_URL"]),
            }
            process = start(["worker", "--turns", "4"], there, folder, ("ip", "netns", "exec", net.name))
            stack.callback(process.communicate, timeout=60)
            stack.callback(process.kill)
            assert output_of(process).readline().startswith("working on")
            return process

        yield (
            lambda process: net.run("link", "set", net.outside, "down"),
            lambda process: net.run("link", "set", net.outside, "up"),
            begun,
        )


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root")
def test_a_worker_that_is_cut_off_for_leases_writes_nothing(url, tmp_path):
    with cut_off(url, tmp_path) as parts:
        took = stopped(url, tmp_path, 3, *parts)
    print([round(one, 2) for one in took])
    assert max(took) <= LEASE_S + 2


def turns_go_on(db_url: str, folder: Path, disturb: Callable[[], None], turns: int, times: int) -> None:
    """Turns are asked for, the database is disturbed while they run, and all of them are answered."""
    marks = folder / "marks.txt"
    names = [f"d{number}" for number in range(turns)]
    script = [reply for name in names for reply in script_of(name, marks)]
    with PracticeServer(script=script) as model, opened(db_url) as (db, queue), ExitStack() as stack:
        given = environment(db_url, folder / "home", model, "practice") | {"WHET_STORE_LEASE_S": "10"}
        for _ in range(2):
            stack.enter_context(worker(given, folder))
        asked: dict[str, tuple[str, str]] = {}
        for at in range(times):
            for name in names[at * turns // times : (at + 1) * turns // times]:
                asked[name] = ask(db, queue, f"<{name}>")
            model.wait_for_request(at + 1, 120)
            disturb()
        wait_until(lambda: are_done(db, queue, [turn for turn, _ in asked.values()]), 300)
        check(db, queue, asked, marks)


@contextmanager
def own_cluster(**more: Any) -> Iterator[Cluster]:
    server = TrialServer(**more)
    with closing(Cluster(server.url, server)) as cluster:
        yield cluster


@pytest.mark.slow
def test_turns_go_on_after_the_database_was_restarted(tmp_path):
    with own_cluster(syncs=True) as cluster:
        turns_go_on(cluster.database(), tmp_path, cluster.restart, 6, 2)


@pytest.mark.soak
def test_turns_go_on_after_many_restarts_of_the_database(tmp_path):
    with own_cluster(syncs=True) as cluster:
        turns_go_on(cluster.database(), tmp_path, cluster.restart, 60, 10)


def failover(folder: Path, turns: int) -> None:
    """The primary dies in the middle of turns, its replica is promoted; nothing that was answered is lost."""
    primary = TrialServer(syncs=True)
    replica: TrialServer | None = None
    try:
        replica = TrialServer(syncs=True, primary=primary)
        with connect(primary.url) as admin:
            schema.init(admin, STEPS)
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
        url = f"postgresql://whet@{hosts}/postgres?target_session_attrs=read-write"
        there = replica

        def die() -> None:
            primary.control("-m", "immediate", "-w", "stop")
            there.control("-w", "promote")
            with connect(there.url) as admin:
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                admin.execute("SELECT pg_reload_conf()")

        turns_go_on(url, folder, die, turns, 1)
    finally:
        if replica is not None:
            replica.close()
        primary.close()


@pytest.mark.slow
def test_turns_go_on_at_a_replica_that_was_promoted(tmp_path):
    failover(tmp_path, 4)
