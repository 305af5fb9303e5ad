"""What a team's turn with one call costs the database, and how many turns three workers run over a slow line.

    python -m benchmarks.team_turns statements     # statements of one turn, and those under the lock
    python -m benchmarks.team_turns take           # milliseconds to take a turn while 10,000 wait
    python -m benchmarks.team_turns rate 0 2 10    # turns a second at so many milliseconds a round trip

The statements are counted in the log of a server of its own; the line is a proxy that delays each direction
by half a round trip.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from tests.support import wait_until
from tests.team.processes import environment, worker
from tests.team.test_workers import ask, has_ended

from benchmarks.table import Row
from whet.store.team import TeamDatabase, init
from whet.team.notices import ENDED
from whet.team.queue import DatabaseQueue
from whet_lab.practice.database import TrialServer
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

TURNS, WORKERS = 24, 3
GOALS_PER_S = {0: 25, 2: 20, 10: 12, 40: 5}
"""Turns a second to reach, by milliseconds of a round trip."""
_STATEMENT = re.compile(
    r"^[\d.]+\|(\d+)\|team\|LOG:  (?:statement|execute [^:]*): (.*?)(?=^[\d.]+\||\Z)", re.S | re.M
)
_END = re.compile(r"^([\d.]+)\|\d+\|team\|LOG:  execute [^:]*: .*whet_close_turn\(", re.M)
_FLOOD = """
INSERT INTO team_turns (id, session, body, is_next)
SELECT 't' || n, 's' || n % 3, 'x', CASE WHEN n <= 3 THEN 1 ELSE 0 END FROM generate_series(1, 10000) AS n
"""
_SESSIONS = """
INSERT INTO sessions
SELECT (jsonb_populate_record(s, jsonb_build_object('key', key + n, 'id', 's' || n - 1))).*
FROM sessions s, generate_series(1, 3) AS n
"""


@contextmanager
def team_server() -> Generator[tuple[TrialServer, str]]:
    """Yield a server and the address of a team's database on it."""
    with closing(TrialServer(connections=100)) as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE team TEMPLATE template0 LOCALE 'C.UTF-8'")
        url = f"{server.url.rpartition('/')[0]}/team"
        init(url)
        yield server, url


class SlowLine:
    """A proxy for a local server that delays each message by half a round trip, and counts round trips:
    messages of a client after which it waits."""

    def __init__(self, port: int, round_trip_s: float = 0.0) -> None:
        self.times_s: list[float] = []
        """When each round trip began."""
        self.port = 0
        self._server_port, self._delay_s = port, round_trip_s / 2
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True).start()
        self._ready.wait()

    @property
    def round_trips(self) -> int:
        """Return how many round trips have begun."""
        return len(self.times_s)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        is_waiting = False

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, is_client: bool) -> None:
            nonlocal is_waiting
            while data := await source.read(1 << 16):
                if is_client and not is_waiting:
                    self.times_s.append(time.time())
                is_waiting = is_client
                self._loop.call_later(self._delay_s, target.write, data)
            self._loop.call_later(self._delay_s, target.close)

        await asyncio.gather(
            copy(reader, back_writer, True), copy(back_reader, writer, False), return_exceptions=True
        )


class Cost(NamedTuple):
    """What a turn with one call cost the database: statements with all that follows the turn, and round trips
    of its worker until the transaction that ended it."""

    statements: int
    locked: int
    locks: int
    round_trips: int


class Rate(NamedTuple):
    """How many turns with one call ran in a second, and the CPU of the workers and the server for each."""

    turns_per_s: float
    cpu_ms: float

    @property
    def most_per_s(self) -> float:
        """Return how many a second the CPU of this machine allows."""
        return len(os.sched_getaffinity(0)) / self.cpu_ms * 1000

    def is_enough(self, goal_per_s: float) -> bool:
        """Return whether the goal is reached, or four fifths of what the cores allow."""
        return self.turns_per_s >= min(goal_per_s, 0.8 * self.most_per_s)


def count_statements() -> tuple[Cost, Cost]:
    """Return the cost of a session's first turn, its opening included, and of its second."""
    script = [reply for _ in range(9) for reply in (terminal_reply("echo hi"), ScriptedReply("done"))]
    with team_server() as (server, url), PracticeServer(script=script) as model, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        line = SlowLine(server.port)
        far_url = url.replace(f":{server.port}/", f":{line.port}/")
        given = environment(far_url, folder / "home", model, "practice") | {"WHET_STORE_LEASE_S": "600"}
        (folder / "work").mkdir()
        stack.enter_context(worker(given, folder / "work", turns=1))
        database = stack.enter_context(closing(TeamDatabase.open_url(url, lease_s=600.0)))
        queue = DatabaseQueue(database)
        for text in ("one", "two"):  # connections are opened and statements translated
            first_id, _ = ask(database, queue, text)
            wait_until(lambda turn_id=first_id: has_ended(queue, turn_id), 60)
        admin = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        for setting in ("log_statement = 'all'", "log_line_prefix = '%n|%p|%d|'"):
            admin.execute(f"ALTER SYSTEM SET {setting}".encode())
        time.sleep(3)  # what follows the turns before is over
        admin.execute("SELECT pg_reload_conf()")
        time.sleep(1)
        listener = stack.enter_context(psycopg.connect(url, autocommit=True))
        listener.execute(f"LISTEN {ENDED}".encode())
        costs: list[Cost] = []
        session_id = ""
        for text in ("three", "four"):
            start, trips = (server.folder / "log").stat().st_size, line.round_trips
            turn_id, session_id = ask(database, queue, text, session_id)
            next(note for note in listener.notifies() if note.payload == turn_id)
            time.sleep(4)
            log = (server.folder / "log").read_bytes()[start:].decode()
            ended_s = float(_END.findall(log)[0]) + 0.001  # the log counts milliseconds
            trips = sum(began_s <= ended_s for began_s in line.times_s[trips:])
            costs.append(Cost(*count_log(log), trips))
    return costs[0], costs[1]


def count_log(log: str) -> tuple[int, int, int]:
    """Return the statements in a server's log, those under the team's lock while a client is waited for, and
    how often it was taken. The looks of idle workers don't count."""
    by_connection: dict[str, list[str]] = {}
    for connection, statement in _STATEMENT.findall(log):
        is_look = "SKIP LOCKED" in statement and "RETURNING id, session, body" in statement
        if not is_look:
            by_connection.setdefault(connection, []).append(statement.partition("DETAIL:")[0].strip())
    locked, locks = 0, 0
    for statements in by_connection.values():
        is_open = has_lock = False
        for statement in statements:
            takes_lock = statement.startswith("SELECT pg_advisory_xact_lock($1), whet_commit")
            locks += takes_lock
            is_open = (is_open or statement == "BEGIN") and statement not in ("COMMIT", "ROLLBACK")
            has_lock = is_open and (has_lock or takes_lock)
            locked += has_lock
    return sum(map(len, by_connection.values())), locked, locks


def time_takes() -> float:
    """Return the milliseconds to take a turn while 10,000 of three sessions wait."""
    with team_server() as (_, url), closing(TeamDatabase.open_url(url)) as database:
        queue = DatabaseQueue(database)
        ask(database, queue, "first")
        database.write_now(lambda db: db.execute(_SESSIONS))
        database.write_now(lambda db: db.execute(_FLOOD))
        times_ms: list[float] = []
        for _ in range(40):
            began_s = time.perf_counter()
            queue.take("me", 1)
            times_ms.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(times_ms)


def time_turns(round_trip_ms: float) -> Rate:
    """Return how many turns with one call a second the workers run, each of a session of its own."""
    script = {"command": "true"}
    with team_server() as (server, url), ExitStack() as stack:
        line = SlowLine(server.port, round_trip_ms / 1000)
        far_url = url.replace(f":{server.port}/", f":{line.port}/")
        model = stack.enter_context(PracticeServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "work").mkdir()
        (folder / "work" / "README.md").write_text(json.dumps(script))
        given = environment(far_url, folder / "home", model, "practice-steps-1")
        given["WHET_STORE_LEASE_S"] = "60"
        pids = [
            stack.enter_context(worker(given, folder / "work", turns=TURNS // WORKERS)).pid
            for _ in range(WORKERS)
        ]
        pids.append(int((server.folder / "data" / "postmaster.pid").read_text().split()[0]))
        database = stack.enter_context(closing(TeamDatabase.open_url(url, lease_s=60.0)))
        queue = DatabaseQueue(database)
        began_s = cpu_s = took_s = 0.0
        for _ in range(2):  # the first round loads programs and opens connections
            began_s, cpu_s = time.monotonic(), sum(map(read_cpu_s, pids))
            asked_ids = [ask(database, queue, "read README.md")[0] for _ in range(TURNS)]
            wait_until(lambda ids=asked_ids: all(has_ended(queue, turn_id) for turn_id in ids), 300)
            took_s, cpu_s = time.monotonic() - began_s, sum(map(read_cpu_s, pids)) - cpu_s
    return Rate(TURNS / took_s, cpu_s / TURNS * 1000)


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, ended ones included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(read_cpu_s(int(child)) for child in children)


def describe_rate(round_trip_ms: float, rate: Rate) -> str:
    """Return a line about a rate."""
    return (
        f"+{round_trip_ms:g} ms: {rate.turns_per_s:.1f} turns a second; {rate.cpu_ms:.0f} ms of CPU each,"
        f" so at most {rate.most_per_s:.0f} a second on this machine's cores"
    )


def rows() -> list[Row]:
    """Measure what a turn costs, a take from a long queue, and the rates over lines of several lengths."""
    first, second = count_statements()
    take_ms = time_takes()
    rates = {ms: time_turns(ms) for ms in GOALS_PER_S}
    is_met = all(rates[ms].is_enough(goal) for ms, goal in GOALS_PER_S.items())
    limits = [rate.most_per_s for rate in rates.values()]
    return [
        Row(
            "team-turn",
            "statements and round trips of a team's turn with one call: a session's first, its second",
            "≤ 40; ≤ 12",
            f"{first.statements} and {second.statements}; {first.round_trips} and {second.round_trips}",
            "none comparable",
            max(first.statements, second.statements) <= 40
            and max(first.round_trips, second.round_trips) <= 12,
            "python -m benchmarks team",
        ),
        Row(
            "team-take",
            "taking a turn while 10,000 of three sessions wait",
            "≤ 5 ms",
            f"{take_ms:.1f} ms",
            "none comparable",
            take_ms <= 5,
            "python -m benchmarks team",
        ),
        Row(
            "team-turns",
            f"turns a second of {WORKERS} workers at +{', +'.join(map(str, GOALS_PER_S))} ms a round trip",
            f"≥ {', '.join(map(str, GOALS_PER_S.values()))}, or the cores' limit",
            f"{', '.join(f'{rate.turns_per_s:.1f}' for rate in rates.values())}; the cores allow"
            f" {min(limits):.0f} to {max(limits):.0f}",
            "none comparable",
            is_met,
            "python -m benchmarks team",
        ),
    ]


if __name__ == "__main__":
    kind, *values = sys.argv[1:]
    if kind == "statements":
        for name, cost in zip(("first", "second"), count_statements(), strict=True):
            print(
                f"a session's {name} turn with one call: {cost.statements} statements, {cost.locked} of them"
                f" under the team's lock, taken {cost.locks} times; {cost.round_trips} round trips"
            )
    elif kind == "take":
        print(f"a take with 10,000 waiting: {time_takes():.1f} ms")
    else:
        for value in values:
            print(describe_rate(float(value), time_turns(float(value))), flush=True)
