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
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
from tests.support import wait_until
from tests.team.processes import environment, worker
from tests.team.test_workers import ask, has_ended

from whet.postgres.lane import WRITE_LOCK
from whet.store.team import TeamDatabase, init
from whet.team.queue import DatabaseQueue
from whet_lab.practice.database import TrialServer
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

TURNS, WORKERS = 24, 3
_STATEMENT = re.compile(r"^(\d+)\|team\|LOG:  (?:statement|execute [^:]*): (.*?)(?=^\d+\||\Z)", re.S | re.M)
_FLOOD = """
INSERT INTO team_turns (id, session, body, is_next)
SELECT 't' || n, 's' || n % 3, 'x', CASE WHEN n <= 3 THEN 1 ELSE 0 END FROM generate_series(1, 10000) AS n
"""
_OLD_FLOOD = """
INSERT INTO team_turns (id, session, body)
SELECT 't' || n, 's' || n % 3, 'x' FROM generate_series(1, 10000) AS n
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


@contextmanager
def slow_line(port: int, round_trip_s: float) -> Generator[int]:
    """Yield the port of a proxy for a local server that delays each message."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            loop.call_later(round_trip_s / 2, writer.write, data)
        loop.call_later(round_trip_s / 2, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer), return_exceptions=True)

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True).start()
    ready.wait()
    yield ports[0]


def count_statements() -> None:
    """Print the statements of one turn, of the worker and of the process that asked for it."""
    script = [reply for _ in range(9) for reply in (terminal_reply("echo hi"), ScriptedReply("done"))]
    with team_server() as (server, url), PracticeServer(script=script) as model, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given = environment(url, folder / "home", model, "practice") | {"WHET_STORE_LEASE_S": "600"}
        (folder / "work").mkdir()
        stack.enter_context(worker(given, folder / "work", turns=1))
        database = stack.enter_context(closing(TeamDatabase.open_url(url, lease_s=600.0)))
        queue = stack.enter_context(closing(DatabaseQueue(database)))
        for text in ("one", "two"):  # connections are opened and statements translated
            first_id, _ = ask(database, queue, text)
            wait_until(lambda turn_id=first_id: has_ended(queue, turn_id), 60)
        admin = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        for setting in ("log_statement = 'all'", "log_line_prefix = '%p|%d|'"):
            admin.execute(f"ALTER SYSTEM SET {setting}".encode())
        time.sleep(3)  # what follows the turns before is over
        admin.execute("SELECT pg_reload_conf()")
        time.sleep(1)
        start = (server.folder / "log").stat().st_size
        turn_id, _ = ask(database, queue, "three")
        time.sleep(6)
        text = (server.folder / "log").read_text()[start:]
        assert has_ended(queue, turn_id)
    print(summary(text))


def summary(log: str) -> str:
    """Return the counts of a server's log, without the looks of idle workers."""
    by_connection: dict[str, list[str]] = {}
    for connection, statement in _STATEMENT.findall(log):
        is_look = "SKIP LOCKED" in statement and "RETURNING id, session, body" in statement
        if not is_look:
            by_connection.setdefault(connection, []).append(statement.partition("DETAIL:")[0].strip())
    locked, locks = 0, 0
    for statements in by_connection.values():
        has_lock = False
        for statement in statements:
            locks += str(WRITE_LOCK) in statement
            has_lock = has_lock or str(WRITE_LOCK) in statement
            locked += has_lock
            has_lock = has_lock and statement not in ("COMMIT", "ROLLBACK")
    total = sum(map(len, by_connection.values()))
    return f"{total} statements, {locked} of them under the team's write lock, which was taken {locks} times"


def time_takes() -> None:
    """Print how long it takes to take a turn while 10,000 of three sessions wait."""
    with team_server() as (_, url), closing(TeamDatabase.open_url(url)) as database:
        queue = DatabaseQueue(database)
        ask(database, queue, "first")
        database.write_now(lambda db: db.execute(_SESSIONS))
        try:
            database.write_now(lambda db: db.execute(_FLOOD))
        except Exception:  # noqa: BLE001 - a version without the column
            database.write_now(lambda db: db.execute(_OLD_FLOOD))
        times_ms: list[float] = []
        for _ in range(40):
            began_s = time.perf_counter()
            queue.take("me", 1)
            times_ms.append((time.perf_counter() - began_s) * 1000)
    print(f"a take with 10,000 waiting: {statistics.median(times_ms):.1f} ms (median of {len(times_ms)})")


def time_turns(round_trip_ms: float) -> None:
    """Print how many turns with one call a second the workers run."""
    script = {"command": "true"}
    with team_server() as (server, url), ExitStack() as stack:
        port = stack.enter_context(slow_line(server.port, round_trip_ms / 1000))
        far_url = url.replace(f":{server.port}/", f":{port}/")
        model = stack.enter_context(PracticeServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "work").mkdir()
        (folder / "work" / "README.md").write_text(json.dumps(script))
        given = environment(far_url, folder / "home", model, "practice-steps-1")
        given["WHET_STORE_LEASE_S"] = "60"
        for _ in range(WORKERS):
            stack.enter_context(worker(given, folder / "work", turns=8))
        database = stack.enter_context(closing(TeamDatabase.open_url(url, lease_s=60.0)))
        queue = stack.enter_context(closing(DatabaseQueue(database)))
        began_s = time.monotonic()
        asked_ids = [ask(database, queue, "read README.md")[0] for _ in range(TURNS)]
        wait_until(lambda: all(has_ended(queue, turn_id) for turn_id in asked_ids), 300)
        took_s = time.monotonic() - began_s
    print(f"+{round_trip_ms:g} ms: {TURNS / took_s:.1f} turns a second ({TURNS} turns, {WORKERS} workers)")


if __name__ == "__main__":
    kind, *values = sys.argv[1:]
    if kind == "statements":
        count_statements()
    elif kind == "take":
        time_takes()
    else:
        for value in values:
            time_turns(float(value))
