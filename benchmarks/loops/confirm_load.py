"""Load on a confirmation daemon over kept connections: prints rates, latencies and the daemon's CPU per call.

python -m benchmarks.loops.confirm_load PORT PID SUBMIT_TOKEN APPROVE_TOKEN SECONDS [PHASE,...]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

PORT, PID, SUBMIT, APPROVE, SECONDS = (
    int(sys.argv[1]),
    int(sys.argv[2]),
    sys.argv[3],
    sys.argv[4],
    float(sys.argv[5]),
)
BODY = json.dumps({"action": "deploy", "description": "deploy it", "details": {"a": 1, "b": "two"}}).encode()
WANTED = sys.argv[6].split(",") if len(sys.argv) > 6 else []
TICKS = os.sysconf("SC_CLK_TCK")
REST_S = 30.0


def cpu_s() -> float:
    """The daemon's CPU seconds so far."""
    with open(f"/proc/{PID}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb() -> float:
    """The daemon's resident memory."""
    with open(f"/proc/{PID}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """The bytes of one call."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n").encode() + body


class Connection:
    """One kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def call(self, raw: bytes) -> bytes:
        """Send one call; give its body. Raises where the answer is a failure."""
        self.writer.write(raw)
        return await self.answer()

    async def answer(self) -> bytes:
        """Read one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        begin = head.index(b"content-length:") + 15
        body = await self.reader.readexactly(int(head[begin : head.index(b"\r\n", begin)]))
        if head[9:10] != b"2":
            raise RuntimeError(f"{head!r} {body!r}")
        return body


async def connect(count: int) -> list[Connection]:
    """Open connections, a few at a time."""
    made: list[Connection] = []
    for begin in range(0, count, 100):
        opening = [asyncio.open_connection("127.0.0.1", PORT) for _ in range(min(100, count - begin))]
        made += [Connection(*pair) for pair in await asyncio.gather(*opening)]
    return made


async def phase(name: str, clients: int, call: Callable[[Connection], Awaitable[None]]) -> None:
    """Call for SECONDS over `clients` connections and print what came of it."""
    connections = await connect(clients)
    times: list[float] = []
    began, used = time.perf_counter(), cpu_s()

    async def work(connection: Connection) -> None:
        while (start := time.perf_counter()) - began < SECONDS:
            try:
                await call(connection)
            except StopIteration:
                return
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(work(connection) for connection in connections))
    took = time.perf_counter() - began
    times.sort()
    show(
        name,
        clients=clients,
        rate=len(times) / took,
        p50_ms=times[len(times) // 2] * 1000,
        p99_ms=times[int(len(times) * 0.99)] * 1000,
        cpu_ms=(cpu_s() - used) * 1000 / len(times),
    )
    for connection in connections:
        connection.writer.close()


def show(name: str, **figures: float) -> None:
    """Print one result as a JSON line."""
    print(json.dumps({"name": name, **{key: round(value, 4) for key, value in figures.items()}}), flush=True)


async def main() -> None:  # noqa: C901 a list of phases
    """Every phase in turn."""
    ids: list[str] = []

    async def submit(connection: Connection) -> None:
        ids.append(json.loads(await connection.call(request("POST", "/confirm", SUBMIT, BODY)))["id"])

    undecided: Iterator[str] = iter(())

    async def approve(connection: Connection) -> None:
        for one in undecided:
            await connection.call(request("POST", f"/confirm/{one}/approve", APPROVE))
            return
        await connection.call(request("GET", f"/confirm/{ids[0]}", SUBMIT))

    async def round_trip(connection: Connection) -> None:
        made = json.loads(await connection.call(request("POST", "/confirm", SUBMIT, BODY)))["id"]
        await connection.call(request("POST", f"/confirm/{made}/approve", APPROVE))
        await connection.call(request("GET", f"/confirm/{made}", SUBMIT))

    async def status(connection: Connection) -> None:
        await connection.call(request("GET", f"/confirm/{ids[0]}", SUBMIT))

    async def health(connection: Connection) -> None:
        await connection.call(request("GET", "/health", SUBMIT))

    await phase("warm-up", 16, submit)
    phases = [("submit", 1, submit), ("submit", 16, submit), ("submit", 64, submit), ("approve", 16, approve)]
    phases += [("round trip", 16, round_trip), ("status", 16, status)]
    phases += [("health", 1, health)] if "health1" in WANTED else []
    for name, clients, call in phases:
        if not WANTED or f"{name}{clients}".replace(" ", "") in WANTED:
            undecided = iter(list(ids[1:]))
            await phase(name, clients, call)
    if APPROVE and (not WANTED or "wake" in WANTED):
        await waiters(1000)
        await streams(1000)
    if APPROVE and (not WANTED or "idle" in WANTED):
        await idle(int(os.environ.get("IDLE_WAITERS", "10000")))
    if APPROVE and (not WANTED or "rest" in WANTED):
        await rest(1000)


async def waiters(count: int) -> None:
    """How long after the decision the last of `count` waiters on one request hears of it."""
    connections = await connect(count)
    decider = (await connect(1))[0]
    made = json.loads(await decider.call(request("POST", "/confirm", SUBMIT, BODY)))["id"]
    for connection in connections:
        connection.writer.write(request("GET", f"/confirm/{made}?wait=120", SUBMIT))
    await settled(decider, count)
    heard: list[float] = []

    async def hear(connection: Connection) -> None:
        await connection.answer()
        heard.append(time.perf_counter())

    hearing = [asyncio.ensure_future(hear(connection)) for connection in connections]
    await asyncio.sleep(0)
    began, used = time.perf_counter(), cpu_s()
    await decider.call(request("POST", f"/confirm/{made}/approve", APPROVE))
    await asyncio.gather(*hearing)
    heard.sort()
    show(
        "wake",
        clients=count,
        p50_ms=(heard[count // 2] - began) * 1000,
        p99_ms=(heard[int(count * 0.99)] - began) * 1000,
        cpu_ms=(cpu_s() - used) * 1000,
    )
    for connection in connections:
        connection.writer.close()


async def streams(count: int) -> None:
    """How long after the decision the last of `count` event streams has heard of it."""
    connections = await connect(count)
    decider = (await connect(1))[0]
    made = json.loads(await decider.call(request("POST", "/confirm", SUBMIT, BODY)))["id"]
    for connection in connections:
        connection.writer.write(request("GET", f"/events?request={made}", SUBMIT))
        await connection.reader.readuntil(b": events after ")
    heard: list[float] = []

    async def hear(connection: Connection) -> None:
        await connection.reader.readuntil(b"event: decided\n")
        heard.append(time.perf_counter())

    hearing = [asyncio.ensure_future(hear(connection)) for connection in connections]
    await asyncio.sleep(0.2)
    began, used = time.perf_counter(), cpu_s()
    await decider.call(request("POST", f"/confirm/{made}/approve", APPROVE))
    await asyncio.gather(*hearing)
    heard.sort()
    show(
        "streams",
        clients=count,
        p50_ms=(heard[count // 2] - began) * 1000,
        p99_ms=(heard[int(count * 0.99)] - began) * 1000,
        cpu_ms=(cpu_s() - used) * 1000,
    )
    for connection in connections:
        connection.writer.close()


async def settled(connection: Connection, count: int) -> None:
    """Wait until the daemon says that `count` clients wait. Raises RuntimeError after two minutes."""
    line = f"whet_confirm_waiting_clients {count}\n".encode()
    until_s = time.perf_counter() + 120
    while line not in await connection.call(request("GET", "/metrics", SUBMIT)):
        if time.perf_counter() > until_s:
            raise RuntimeError(f"the daemon never had {count} waiting clients")
        await asyncio.sleep(0.05)


async def idle(count: int) -> None:
    """The daemon's memory while `count` clients wait: of two principals, as one may hold a quarter of its
    files."""
    asker = (await connect(1))[0]
    made = json.loads(await asker.call(request("POST", "/confirm", SUBMIT, BODY)))["id"]
    before = rss_mb()
    connections = await connect(count)
    for number, connection in enumerate(connections):
        token = APPROVE if number % 2 else SUBMIT
        connection.writer.write(request("GET", f"/confirm/{made}?wait=300", token))
    await settled(asker, count)
    show("idle", clients=count, rss_mb=rss_mb(), grown_mb=rss_mb() - before)
    for connection in connections:
        connection.writer.close()


async def rest(count: int) -> None:
    """The daemon's CPU, in percent of a core, while `count` clients wait and nothing happens."""
    asker = (await connect(1))[0]
    made = json.loads(await asker.call(request("POST", "/confirm", SUBMIT, BODY)))["id"]
    for name, path in (("rest polls", f"/confirm/{made}?wait=300"), ("rest streams", "/events")):
        connections = await connect(count)
        for connection in connections:
            connection.writer.write(request("GET", path, SUBMIT))
        await asyncio.sleep(3.0)
        began, used = time.perf_counter(), run_s()
        await asyncio.sleep(REST_S)
        show(name, clients=count, percent=(run_s() - used) / (time.perf_counter() - began) * 100)
        for connection in connections:
            connection.writer.close()


def run_s() -> float:
    """The daemon's CPU seconds so far, to the nanosecond."""
    folder = f"/proc/{PID}/task"
    stats = (Path(folder, task, "schedstat").read_text() for task in os.listdir(folder))
    return sum(int(text.split()[0]) for text in stats) / 1e9


if __name__ == "__main__":
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main())
