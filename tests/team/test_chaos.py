"""Hundreds of faults of every kind on one team while turns run: two leases, three clocks, failovers."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import wait_until
from tests.team.processes import environment, start
from tests.team.test_soak import check, script_of
from tests.team.test_workers import are_done, ask, opened, transcript
from whet.contract.errors import StoreError
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.store.migrations import STEPS
from whet.store.team import TeamDatabase
from whet.team.queue import DatabaseQueue
from whet.team.taking import MAX_LOST
from whet_lab.practice.database import TrialServer
from whet_lab.practice.server import PracticeServer

FAULTS, FAILOVERS = int(os.environ.get("CHAOS_FAULTS", "500")), int(os.environ.get("CHAOS_FAILOVERS", "6"))
SESSIONS, END_S = 60, 60.0
WORKERS = ((4.0, 0), (4.0, 1), (20.0, 0), (20.0, -1))
"""The lease of each worker in seconds, and by how many hours its clock is wrong."""
CLOCK = """
import os
from datetime import timedelta
from whet import clock
hours = int(os.environ["WHET_TEST_HOURS_OFF"])
now, unix_ms = clock.SystemClock.now, clock.SystemClock.unix_ms
clock.SystemClock.now = lambda self: now(self) + timedelta(hours=hours)
clock.SystemClock.unix_ms = lambda self: unix_ms(self) + hours * 3_600_000
"""


class Line:
    """A worker's way to the database: it can be cut, or left half open, and follows the primary."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self._passes = threading.Event()
        self._passes.set()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.server_port))
                except OSError:  # the primary is away
                    client.close()
                    continue
                self._open = [*self._open[-200:], client, server]
                thread = threading.Thread(target=self._carry, args=(client, server), daemon=True)
                self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
                thread.start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
            back.start()
            self._forward(client, server)
            back.join()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._passes.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Pass nothing on; both ends believe that the connection stands."""
        self._passes.clear()

    def thaw(self) -> None:
        """Pass on again, what was held back first."""
        self._passes.set()

    def cut(self) -> None:
        """Break all connections."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.thaw()

    def close(self) -> None:
        self.cut()
        self._socket.close()
        for thread in self._threads:
            thread.join(10)


class Primary:
    """A primary and its synchronous replica, which takes its place when it dies and gets a replica."""

    def __init__(self) -> None:
        self.server, self.port = TrialServer(connections=200), 0
        with connect(self.server.url) as admin:
            schema.init(admin, STEPS)
        self._follow()

    def _follow(self) -> None:
        self.port: int = self.server.port
        self.replica = TrialServer(connections=200, primary=self.server)
        self._set_standby("*")

    def _set_standby(self, names: str) -> None:
        with connect(self.server.url) as admin:
            admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
            admin.execute("SELECT pg_reload_conf()")

    def crash(self) -> None:
        """Crash the primary and start it again."""
        self.server.control("-m", "immediate", "-w", "restart")

    def fail_over(self) -> None:
        """Crash the primary for good and promote its replica."""
        self.server.control("-m", "immediate", "-w", "stop")
        self.replica.control("-w", "promote")
        self.server.close()
        self.server = self.replica
        self._set_standby("")
        self._follow()

    def close(self) -> None:
        self.replica.close()
        self.server.close()


class Team:
    """Workers, each with its line, and the faults that they meet."""

    def __init__(self, primary: Primary, folder: Path, model: PracticeServer, dice: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.lines = [Line(primary.port) for _ in (*WORKERS, "client")]
        self._primary, self._folder, self._model, self._dice = primary, folder, model, dice
        self._stopped: dict[int, float] = {}
        self._frozen: dict[int, float] = {}
        (folder / "sitecustomize.py").write_text(CLOCK)
        self.workers = [self._start(index) for index in range(len(WORKERS))]

    def _start(self, index: int) -> subprocess.Popen[str]:
        lease_s, hours_off = WORKERS[index]
        url = self.url(index)
        own = environment(url, self._folder / "home", self._model, "practice")
        own |= {"WHET_STORE_LEASE_S": f"{lease_s:g}", "WHET_TEST_HOURS_OFF": str(hours_off)}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self._folder), os.environ.get("PYTHONPATH"))))
        with (self._folder / f"worker{index}.log").open("a") as log:
            return start(["worker", "--turns", "8"], own, self._folder, output=log)

    def url(self, index: int) -> str:
        return f"postgresql://whet@127.0.0.1:{self.lines[index].port}/postgres"

    def disturb(self, kind: str) -> None:
        self.counts[kind] += 1
        index = self._dice.randrange(len(WORKERS))
        lease_s = WORKERS[index][0]
        until_s = time.monotonic() + self._dice.uniform(0.2, 1.5) * min(lease_s, 8.0)
        match kind:
            case "worker killed":
                self.workers[index].kill()
                self.workers[index].wait(60)
                self._stopped.pop(index, None)
                self.workers[index] = self._start(index)
            case "worker stopped":
                self.workers[index].send_signal(signal.SIGSTOP)
                self._stopped[index] = until_s
            case "line half open":
                self.lines[index].freeze()
                self._frozen[index] = until_s
            case "line cut":
                self._frozen.pop(index, None)
                self.lines[index].cut()
            case "database crashed":
                self._primary.crash()
            case _:
                self._primary.fail_over()
                for line in self.lines:
                    line.server_port = self._primary.port
                    line.cut()
        self.go_on(time.monotonic())

    def go_on(self, now_s: float) -> None:
        """Let go on what was stopped or held back long enough."""
        for index, until_s in [*self._stopped.items()]:
            if until_s <= now_s:
                self.workers[index].send_signal(signal.SIGCONT)
                del self._stopped[index]
        for index, until_s in [*self._frozen.items()]:
            if until_s <= now_s:
                self.lines[index].thaw()
                del self._frozen[index]

    def close(self) -> None:
        for process in self.workers:
            process.kill()
            process.wait(60)
        for line in self.lines:
            line.close()


@contextmanager
def team(folder: Path, model: PracticeServer, dice: random.Random) -> Generator[tuple[Team, Primary]]:
    primary = Primary()
    try:
        there = Team(primary, folder, model, dice)
        try:
            yield there, primary
        finally:
            there.close()
    finally:
        primary.close()


def list_faults(dice: random.Random) -> list[str]:
    kinds = ("worker killed", "worker stopped", "line half open", "line cut", "database crashed")
    faults: list[str] = dice.choices(kinds, (30, 25, 20, 20, 5), k=FAULTS - FAILOVERS)
    for number in range(FAILOVERS):
        faults.insert((number + 1) * len(faults) // (FAILOVERS + 1), "failover")
    return faults


def asking(db: TeamDatabase, queue: DatabaseQueue, text: str, session_id: str) -> tuple[str, str]:
    """Ask for a turn. While the database is away for longer than its clients wait, ask again."""
    while True:
        try:
            return ask(db, queue, text, session_id)
        except StoreError:
            time.sleep(0.5)


def holds(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except StoreError:
        return False


def check_order(db: TeamDatabase, names: dict[str, str], order: list[str]) -> int:
    """See that each session has its turns in the order in which they were asked for. Return how many were set
    aside, which lets the next ones pass, and were released."""
    rows = db.read_now(
        lambda c: c.execute("SELECT body FROM team_turns WHERE passed >= ?", (MAX_LOST,)).fetchall()
    )
    released = {body for (body,) in rows}
    for session_id in set(names.values()):
        asked = [f"<{name}>" for name in order if names[name] == session_id and f"<{name}>" not in released]
        stored = [message.text for message in transcript(db, session_id).messages if message.role == "user"]
        assert [text for text in stored if text in asked] == asked, session_id
    return len(released)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_turns_run_once_and_in_order_through_hundreds_of_faults(tmp_path: Path) -> None:
    dice, marks = random.Random(int(os.environ.get("CHAOS_SEED", "41"))), tmp_path / "marks.txt"
    faults = list_faults(dice)
    order = [f"c{number}" for number in range(len(faults))]
    script = [reply for name in order for reply in script_of(name, marks)]
    with PracticeServer(script=script) as model, ExitStack() as stack:
        there, _ = stack.enter_context(team(tmp_path, model, dice))
        db, queue = stack.enter_context(opened(there.url(len(WORKERS))))
        asked: dict[str, tuple[str, str]] = {}
        sessions = [""] * SESSIONS
        for number, (name, fault) in enumerate(zip(order, faults, strict=True)):
            place = number % SESSIONS
            asked[name] = asking(db, queue, f"<{name}>", sessions[place])
            sessions[place] = asked[name][1]
            there.disturb(fault)
            time.sleep(dice.uniform(0.1, 1.0))
            there.go_on(time.monotonic())
        there.go_on(time.monotonic() + 100)
        ended_s = time.monotonic()
        turn_ids = [turn_id for turn_id, _ in asked.values()]
        wait_until(lambda: holds(lambda: are_done(db, queue, turn_ids)), 900)
        took_s = time.monotonic() - ended_s
        done = Counter(marks.read_text().splitlines())
        print(
            dict(there.counts),
            f"{len(order)} turns, {len(done)} effects, {sum(done.values()) - len(done)} twice;",
        )
        print(f"all ended {took_s:.0f} s after the last fault")
        check(db, queue, asked, marks)
        released = check_order(db, {name: session_id for name, (_, session_id) in asked.items()}, order)
        print(f"{released} turns were set aside and released")
        assert released < len(order) / 10
    assert took_s <= END_S
