"""A team's database against the home's own file: what a durable step costs, and what the queue can do.

The server is the system's PostgreSQL with its own settings, syncing included, in a temporary folder, beside
the clients on this machine's cores. A step is what a turn writes for one call: an answer that asks for it,
its start, its result. CPU is the client's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Barrier

import apsw

from benchmarks import team_turns
from benchmarks.search import asked
from benchmarks.store import fill, index_all
from benchmarks.table import Row
from whet.clock import SystemClock
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.search import search
from whet.store.sessions import NewSession
from whet.store.team import TeamDatabase, init
from whet.store.transcript import Transcript
from whet.team.queue import AskedTurn, DatabaseQueue
from whet_lab.practice.database import TrialServer

STEPS, SESSIONS = 150, 16
WORKER_STEPS, WORKER_SESSIONS = 50, 8
MESSAGES = int(os.environ.get("TEAM_MESSAGES", "2000"))
"""How many messages the person has in whose messages is searched."""
RESULT = "The build of the orders service failed at step 7: missing header in src/price.c, line 212. " * 8


async def _steps(database: StateDatabase, count: int, latencies: list[float]) -> None:
    clock = SystemClock()
    log = await Transcript.create(database, NewSession(id=clock.new_id()), clock)
    turn = await log.begin_turn(Message(role="user", content="go"))
    for number in range(count):
        began = time.perf_counter()
        call = ToolCall(f"call_{number}", "terminal", '{"command": "make"}')
        await log.append_reply(turn, Message(role="assistant", content="", tool_calls=(call,)), Usage(), "m")
        (asked,) = log.open_calls(turn)
        await log.store_call_start(turn, asked, "rule")
        result = Message(role="tool", content=RESULT, tool_call_id=call.id, tool_name=call.name)
        await log.store_call_result(turn, asked, result, output=ToolOutput(RESULT), duration_s=0.1)
        latencies.append(time.perf_counter() - began)
    await log.end_turn(turn, "answered", "")


def measured(database: StateDatabase, at_once: int) -> tuple[float, float, float]:
    """Give milliseconds of latency (median) and of CPU for a step, and steps a second."""
    latencies: list[float] = []
    asyncio.run(_steps(database, 20, []))

    async def all_of_them() -> None:
        await asyncio.gather(*(_steps(database, STEPS, latencies) for _ in range(at_once)))

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(all_of_them())
    took, used, count = time.perf_counter() - began, time.process_time() - cpu, STEPS * at_once
    return statistics.median(latencies) * 1000, used / count * 1000, count / took


def _queue_rate(url: str, count: int) -> float:
    """Turns a second that are asked for, taken and ended, one at a time by one process."""
    clock = SystemClock()
    with closing(TeamDatabase.open_url(url)) as database:
        queue = DatabaseQueue(database)
        names = [clock.new_id() for _ in range(count)]

        def ask(name: str) -> Callable[..., None]:
            def work(connection: object) -> None:
                sessions.create(connection, NewSession(name), "2026-11-21T09:00:00.000Z")  # type: ignore[arg-type]
                queue.ask(connection, AskedTurn(name, name, "x"))  # type: ignore[arg-type]

            return work

        began = time.perf_counter()
        for name in names:
            database.write_now(ask(name))
            for taken in queue.take("me", 1):
                database.write_now(lambda db, one=taken: queue.end(db, one, "answered", ""))
        return count / (time.perf_counter() - began)


def _worker(url: str, at_once: int, ready: Barrier) -> tuple[float, float, float]:
    """Do steps in a process of its own; gives when it began and ended, and its CPU seconds."""
    with closing(TeamDatabase.open_url(url)) as database:
        asyncio.run(_steps(database, 20, []))
        ready.wait()

        async def all_of_them() -> None:
            await asyncio.gather(*(_steps(database, WORKER_STEPS, []) for _ in range(at_once)))

        began, cpu = time.monotonic(), time.process_time()
        asyncio.run(all_of_them())
        return began, time.monotonic(), time.process_time() - cpu


def _of_workers(url: str, count: int) -> tuple[float, float]:
    """Give the steps a second of so many processes at once, and the CPU milliseconds of each step."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as shared, context.Pool(count) as pool:
        ready = shared.Barrier(count)
        found = pool.starmap(_worker, [(url, WORKER_SESSIONS, ready)] * count, chunksize=1)
    steps = count * WORKER_SESSIONS * WORKER_STEPS
    took = max(end for _, end, _ in found) - min(began for began, _, _ in found)
    return steps / took, sum(cpu for _, _, cpu in found) / steps * 1000


def _workers_row(url: str, runs: int) -> Row:
    """Steps a second with 1, 2 and 3 workers, in turn, so that the machine's load is the same for each."""
    found = [[_of_workers(url, count) for count in (1, 2, 3)] for _ in range(runs)]
    rates, cpus = ([statistics.median(one[at][of] for one in found) for at in range(3)] for of in (0, 1))
    apart = max(cpus) / min(cpus) - 1
    return Row(
        "team-workers",
        f"durable steps a second of 1, 2, 3 workers, {WORKER_SESSIONS} sessions each; CPU of a step",
        "grows until the cores are used; CPU within 15 %",
        f"{' / '.join(f'{rate:,.0f}' for rate in rates)} steps/s;"
        f" {' / '.join(f'{cpu:.2f}' for cpu in cpus)} ms CPU, within {apart:.0%}"
        f" ({os.cpu_count()} cores, the server on them)",
        "none comparable",
        apart <= 0.15 and max(rates[1:]) >= rates[0] * 0.95,
        "python -m benchmarks team",
    )


def _cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0])


def _search_row(database: TeamDatabase) -> Row:
    """The server's CPU for queries of every kind in one person's messages, at the 95th percentile of each."""
    fill(database, MESSAGES)
    index_all(database)
    database.run(lambda db: db.execute("ANALYZE"))

    def cpu_ms(query: str) -> float:
        def work(connection: apsw.Connection) -> float:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None  # it always gives one
            before = _cpu_ns(row[0])
            search(connection, query, 10, profile="")
            return (_cpu_ns(row[0]) - before) / 1e6

        return database.read_now(work)

    times: dict[str, float] = {}
    for one in asked(MESSAGES):
        if one.profile is None:
            found = [cpu_ms(query) for query in one.queries * 2]
            times[one.kind] = statistics.quantiles(found[len(one.queries) :], n=20)[18]
    return Row(
        "team-search",
        f"search in {MESSAGES:,} messages of one person, the server's CPU ms at p95 by kind of query",
        "≤ 30 each, at 1,000,000",
        "; ".join(f"{kind} {value:.1f}" for kind, value in times.items()),
        "none comparable",
        max(times.values()) <= 30 and MESSAGES >= 1_000_000,
        "TEAM_MESSAGES=1000000 python -m benchmarks team",
    )


def run(runs: int, full: bool) -> list[Row]:
    """A durable step on both databases, alone and of 16 sessions at once; the queue's rate; 1, 2 and 3
    workers; search."""
    server = TrialServer(syncs=True)
    try:
        init(server.url)
        with tempfile.TemporaryDirectory() as name:
            own = StateDatabase.open(Path(name) / "state.db", SystemClock())
            team = TeamDatabase.open_url(server.url)
            try:
                alone = [(measured(own, 1), measured(team, 1)) for _ in range(max(2, runs))]
                together = [(measured(own, SESSIONS), measured(team, SESSIONS)) for _ in range(max(2, runs))]
                workers = _workers_row(server.url, max(2, runs))
                found = _search_row(team)
            finally:
                own.close()
                team.close()
        rate = _queue_rate(server.url, 200)
    finally:
        server.close()
    rows = [_row("alone", "one session", alone), _row("together", f"{SESSIONS} sessions at once", together)]
    queue = Row(
        "team-queue",
        "a team's queue: turns asked for, taken and ended, one process",
        "≥ 50 a second",
        f"{rate:,.0f} a second",
        "none comparable",
        rate >= 50,
        "python -m benchmarks team",
    )
    return [*rows, queue, workers, found, *team_turns.rows()]


def _row(name: str, what: str, found: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> Row:
    own, team = ([statistics.median(one[side][at] for one in found) for at in range(3)] for side in (0, 1))
    latency, cpu = team[0] - own[0], team[1] - own[1]
    most_ms = 5 * (1 if name == "alone" else SESSIONS)
    return Row(
        f"team-{name}",
        f"what PostgreSQL adds to a durable step (three writes), {what}",
        f"≤ 1 ms CPU, ≤ {most_ms} ms latency",
        f"{cpu:+.2f} ms CPU, {latency:+.1f} ms ({team[0]:.1f} against {own[0]:.1f} ms;"
        f" {team[2]:,.0f} against {own[2]:,.0f} steps/s)",
        "none comparable",
        cpu <= 1 and latency <= most_ms,
        "python -m benchmarks team",
    )
