"""A team's queue against two job engines on PostgreSQL: the same jobs, workers that are killed and stopped,
connections that are cut. `pip install procrastinate absurd-sdk absurdctl` for the other two.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psycopg

from benchmarks.table import Row
from whet_lab.practice.database import TrialServer

_PROGRAM = Path(__file__).parent / "loops" / "queue_jobs.py"
_ENGINES = {"whet": "whet", "procrastinate": "procrastinate", "absurd": "absurd_sdk"}
JOBS, WORKERS, KILLS = 150, 3, 12
_STOPPED_S, _BETWEEN_S, _END_S = 5.0, 0.7, 120.0


class Came(msgspec.Struct, frozen=True):
    """What came of an engine's jobs: never ended; begun again; run to their end more than once; seconds from
    a job's begin to its next one, at most; seconds in all; CPU milliseconds of a job."""

    lost: int
    again: int
    twice: int
    gap_s: float
    took_s: float
    own_cpu_ms: float
    server_cpu_ms: float

    @property
    def line(self) -> str:
        """All of it in a line."""
        return (
            f"{self.lost} lost, {self.again} begun again, {self.twice} run to the end twice,"
            f" {self.gap_s:.1f} s at most until a job was begun again, {JOBS / self.took_s:.0f} jobs/s,"
            f" CPU {self.own_cpu_ms:.1f} + {self.server_cpu_ms:.1f} ms a job (workers + server)"
        )


class _Trial:
    """One engine in a database of its own."""

    def __init__(self, engine: str, server: TrialServer, folder: Path) -> None:
        self._engine = engine
        self._server = server
        self._url = f"{server.url.rpartition('/')[0]}/{engine}"
        self._marks = folder / f"{engine}.txt"
        self._marks.touch()
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {engine} TEMPLATE template0 LOCALE 'C.UTF-8'".encode())
        self._call("setup")

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, str(_PROGRAM), self._engine, words[0], self._url, *words[1:]]

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=300
        )
        return done.stdout.decode().strip()

    def _worker(self) -> subprocess.Popen[bytes]:
        command = self._command("work", str(self._marks))
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(self) -> Came:
        """Have the jobs done by workers of which one at random is killed, stopped for a while or cut off."""
        dice = random.Random(19)
        self._call("ask", str(JOBS))
        server_s, own_s, began = self._server_cpu_s(), _children_cpu_s(), time.monotonic()
        workers = [self._worker() for _ in range(WORKERS)]
        try:
            for number in range(KILLS):
                time.sleep(_BETWEEN_S)
                one = workers.pop(dice.randrange(WORKERS))
                if number % 4 == 3:
                    one.send_signal(signal.SIGSTOP)
                    time.sleep(_STOPPED_S)
                    one.send_signal(signal.SIGCONT)
                    workers.append(one)
                elif number % 4 == 2:
                    workers.append(one)
                    self._cut()
                else:
                    one.kill()
                    one.wait()
                    workers.append(self._worker())
            self._until_ended()
        finally:
            for one in workers:
                one.kill()
                one.wait()
        took_s = time.monotonic() - began
        own_ms = (_children_cpu_s() - own_s) / JOBS * 1000
        server_ms = (self._server_cpu_s() - server_s) / JOBS * 1000
        return self._came(took_s, own_ms, server_ms)

    def _cut(self) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (self._engine,)
            )

    def _until_ended(self) -> None:
        until_s = time.monotonic() + _END_S
        while int(self._call("ended") or 0) < JOBS and time.monotonic() < until_s:
            time.sleep(0.5)

    def _came(self, took_s: float, own_ms: float, server_ms: float) -> Came:
        begun: dict[int, list[float]] = defaultdict(list)
        ended: dict[int, int] = defaultdict(int)
        for line in self._marks.read_text().splitlines():
            number, what, at = line.split()
            if what == "begun":
                begun[int(number)].append(float(at))
            else:
                ended[int(number)] += 1
        gaps = [later - first for times in begun.values() for first, later in itertools.pairwise(times)]
        return Came(
            lost=JOBS - int(self._call("ended") or 0),
            again=len(gaps),
            twice=sum(times > 1 for times in ended.values()),
            gap_s=max(gaps, default=0.0),
            took_s=took_s,
            own_cpu_ms=own_ms,
            server_cpu_ms=server_ms,
        )

    def _server_cpu_s(self) -> float:
        """The server's CPU, its processes that ended included."""
        main = int((self._server.folder / "data" / "postmaster.pid").read_text().split()[0])
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(path.parent.name) == main:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == main:
                ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(runs: int, full: bool) -> list[Row]:
    """The same jobs and the same deaths for each engine, in turn."""
    found: dict[str, list[Came]] = defaultdict(list)
    for _ in range(max(1, runs)):
        server = TrialServer(syncs=True)
        try:
            with TemporaryDirectory() as name:
                for engine, module in _ENGINES.items():
                    if importlib.util.find_spec(module) is not None:
                        found[engine].append(_Trial(engine, server, Path(name)).run())
        finally:
            server.close()
    said = {engine: _median(found[engine]).line for engine in found}
    own = found["whet"]
    return [
        Row(
            "queues",
            f"{JOBS} jobs of 250 ms, {WORKERS} workers, {KILLS} times a kill -9, a stop for"
            f" {_STOPPED_S:.0f} s or a cut of all connections; a worker counts as dead after 2 s",
            "none lost, taken over ≤ 4 s",
            said["whet"],
            "; ".join(
                f"{engine}: {said.get(engine, 'not installed')}" for engine in _ENGINES if engine != "whet"
            ),
            not any(one.lost for one in own) and max(one.gap_s for one in own) <= 4,
            "python -m benchmarks queues",
        )
    ]


def _median(found: list[Came]) -> Came:
    """Give the worst of what was lost or doubled, and the medians of the rest."""

    def middle(of: Callable[[Came], float]) -> float:
        return statistics.median(map(of, found))

    return Came(
        lost=max(one.lost for one in found),
        again=max(one.again for one in found),
        twice=max(one.twice for one in found),
        gap_s=max(one.gap_s for one in found),
        took_s=middle(lambda one: one.took_s),
        own_cpu_ms=middle(lambda one: one.own_cpu_ms),
        server_cpu_ms=middle(lambda one: one.server_cpu_ms),
    )
