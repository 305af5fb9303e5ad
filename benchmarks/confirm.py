"""The confirmation service beside an aiohttp daemon of the same contract, one commit per call, back to back.

Ours: tokens checked, hash chain, signed checkpoints, group commit; uvicorn with httptools on asyncio's own
loop. The comparison: no tokens, no chain; aiohttp on asyncio's own loop. Both check the same fields, keep the
whole request on disk, sync every acknowledged write and answer with the contract's members.
How many small commits the disk syncs a second, one after the other, is measured in the same run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, clean_environment
from benchmarks.peers import python_of, version_of
from benchmarks.table import Row
from whet_confirm import audit

COMMAND = "python -m benchmarks confirm"
Figures = dict[tuple[str, int], dict[str, float]]
EVENTS = 200_000


def run(runs: int, full: bool) -> list[Row]:
    """Measure both in turn; the median of `runs` (at most three: a turn takes half a minute)."""
    ours: list[Figures] = []
    theirs: list[Figures] = []
    commits: list[float] = []
    seconds = 5.0 if full else 2.0
    for _ in range(min(runs, 3)):
        with tempfile.TemporaryDirectory() as folder:
            commits.append(_commit_rate(Path(folder)))
            theirs.append(_peer(Path(folder), seconds))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(_whet(Path(folder), seconds))
    rates = _rates(_middle(ours), _middle(theirs), statistics.median(commits))
    return [*rates, *_waiting(_middle(ours)), *_hanging(2 * min(runs, 3) + 2), _verify()]


def _commit_rate(folder: Path) -> float:
    """Synced commits a second of one small row, one after the other: what the disk allows a single client."""
    connection = sqlite3.connect(folder / "commits.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (at REAL)")
    count, began = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began) < 1.0:
        connection.execute("INSERT INTO t VALUES (?)", (took_s,))
        count += 1
    connection.close()
    return count / took_s


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError("the daemon ended")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the daemon does not listen")


@contextmanager
def served(folder: Path, **variables: str) -> Generator[tuple[int, int, list[str]]]:
    """Run our service on `folder` as its home; gives its port, process and tokens."""
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "confirm", "serve", "--port", str(port), "--web-port", "-1",
         "--rate-limit", "100000000"],
        env=clean_environment(WHET_HOME=str(folder), **variables), stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        _until_listening(port, process)
        tokens = [
            (folder / "confirm" / f"{role}.token").read_text().strip() for role in ("submit", "approve")
        ]
        yield port, process.pid, tokens
    finally:
        process.terminate()
        process.wait(30)


def _whet(folder: Path, seconds: float) -> Figures:
    with served(folder) as (port, pid, tokens):
        return load(port, pid, tokens, seconds)


def _hanging(slices: int) -> list[Row]:
    """Submissions while the channel answers beside submissions while it hangs, in turn, a second each."""
    found: dict[bool, list[Figures]] = {False: [], True: []}
    with contextlib.ExitStack() as stack:
        running = {hangs: stack.enter_context(_with_channel(hangs)) for hangs in (False, True)}
        for number in range(slices):
            for hangs in (False, True) if number % 2 else (True, False):
                port, pid, tokens = running[hangs]
                found[hangs].append(load(port, pid, tokens, 1.0, "submit16,health1"))
    works, hung = (_middle(found[hangs])[("submit", 16)]["p99_ms"] for hangs in (False, True))
    change = hung / works - 1
    health = _middle(found[True])[("health", 1)]["p99_ms"]
    return [
        Row(
            "confirm hang", "confirmation: submit p99, 16 clients, while every channel hangs", "<= 10 % more",
            f"{change:+.0%} ({hung:.1f} ms beside {works:.1f} ms while it answers)", "none",
            change <= 0.10, COMMAND,
        ),
        Row(
            "confirm health", "confirmation: /health while every channel hangs", "p99 <= 20 ms",
            f"p99 {health:.1f} ms", "none", health <= 20, COMMAND,
        ),
    ]  # fmt: skip


@contextmanager
def _with_channel(hangs: bool) -> Generator[tuple[int, int, list[str]]]:
    """Run our service with one channel, whose vendor answers at once or never."""
    with tempfile.TemporaryDirectory() as name, _Vendor(hangs) as vendor:
        folder = Path(name)
        (folder / "confirm").mkdir()
        (folder / "confirm" / "channels.toml").write_text(
            f'[[channel]]\nkind = "telegram"\nchat = -1001\nbase_url = "{vendor.url}"\n'
        )
        with served(folder, TELEGRAM_BOT_TOKEN="123456789:" + "A" * 35) as running:
            yield running


class _Vendor:
    """A messaging vendor's address: takes every call, and answers each at once or never."""

    def __init__(self, hangs: bool) -> None:
        self._hangs = hangs
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []

    def __enter__(self) -> _Vendor:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            if not self._hangs:
                threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        buffer = b""
        with contextlib.suppress(OSError, ValueError):
            while part := sock.recv(65_536):
                buffer += part
                while (end := buffer.find(b"\r\n\r\n")) >= 0:
                    head = buffer[:end].lower()
                    said = re.search(rb"content-length: *(\d+)", head)
                    size = int(said[1]) if said else 0
                    if len(buffer) < end + 4 + size:
                        break
                    buffer = buffer[end + 4 + size :]
                    if b"getupdates" in head:
                        time.sleep(1.0)  # as the vendor's long poll does
                        body = b'{"ok":true,"result":[]}'
                    else:
                        body = b'{"ok":true,"result":{"message_id":7,"chat":{"id":-1001}}}'
                    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
                    sock.sendall(answer % len(body) + body)


@contextmanager
def served_peer(folder: Path, journal: str = "wal") -> Generator[tuple[int, int, list[str]]]:
    """Run the comparison on `folder` with this journal mode of SQLite; gives its port, process and tokens."""
    port = _free_port()
    script = str(ROOT / "benchmarks" / "loops" / "confirm_peer.py")
    process = subprocess.Popen(
        [str(python_of("aiohttp")), script, str(port), str(folder / "peer.db"), journal],
        env=clean_environment(),
    )
    try:
        _until_listening(port, process)
        yield port, process.pid, ["", ""]
    finally:
        process.terminate()
        process.wait(30)


def _peer(folder: Path, seconds: float) -> Figures:
    with served_peer(folder) as (port, pid, tokens):
        return load(port, pid, tokens, seconds)


def load(port: int, pid: int, tokens: Sequence[str], seconds: float, phases: str = "") -> Figures:
    command = [
        sys.executable,
        "-m",
        "benchmarks.loops.confirm_load",
        str(port),
        str(pid),
        *tokens,
        str(seconds),
        *([phases] if phases else []),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return {(str(row.pop("name")), int(row.pop("clients"))): row for row in rows}


def _middle(taken: Sequence[Figures]) -> Figures:
    return {
        key: {name: statistics.median(one[key][name] for one in taken) for name in taken[0][key]}
        for key in taken[0]
    }


# Name, clients, goal as text, and what must hold.
_GOALS: tuple[tuple[str, int, str, dict[str, float]], ...] = (
    ("submit", 1, "p50 <= 1.0, p99 <= 5 ms", {"p50_ms": 1.0, "p99_ms": 5.0}),
    (
        "submit",
        16,
        ">= 2,700/s, p99 <= 15 ms, CPU <= 0.45 ms",
        {"rate": 2700, "p99_ms": 15.0, "cpu_ms": 0.45},
    ),
    ("submit", 64, ">= 3,400/s, p99 <= 35 ms", {"rate": 3400, "p99_ms": 35.0}),
    ("approve", 16, ">= 3,000/s", {"rate": 3000}),
    ("round trip", 16, ">= 1,000/s", {"rate": 1000}),
    ("status", 16, ">= 5,000/s", {"rate": 5000}),
)


def _rates(ours: Figures, theirs: Figures, commits: float) -> list[Row]:
    peer = f"aiohttp {version_of('aiohttp')}"
    rows: list[Row] = []
    for name, clients, goal, limits in _GOALS:
        mine, other = ours[(name, clients)], theirs[(name, clients)]
        met = all(
            mine[key] >= limit if key == "rate" else mine[key] <= limit for key, limit in limits.items()
        )
        ratio = f"{mine['rate'] / other['rate']:.1f}x; CPU {mine['cpu_ms'] / other['cpu_ms']:.2f}x"
        if name != "status":
            ratio += f"; {mine['rate'] / commits:.1f} a synced commit of {commits:,.0f}/s"
        rows.append(
            Row(
                name=f"confirm {name} {clients}",
                measure=f"confirmation: {name}, {clients} clients",
                goal=goal,
                whet=f"{_line(mine)} ({ratio})",
                peers=f"{peer} {_line(other)}",
                met=met,
                command=COMMAND,
            )
        )
    return rows


def _line(figures: dict[str, float]) -> str:
    return (
        f"{figures['rate']:,.0f}/s, p50 {figures['p50_ms']:.1f} p99 {figures['p99_ms']:.1f} ms,"
        f" {figures['cpu_ms']:.2f} ms CPU"
    )


def _waiting(ours: Figures) -> list[Row]:
    wake, streams = ours[("wake", 1000)], ours[("streams", 1000)]
    key = next(key for key in ours if key[0] == "idle")
    idle = ours[key]
    return [
        Row(
            "confirm wake", "confirmation: decision to 1,000 waiters", "p99 <= 50 ms",
            f"p50 {wake['p50_ms']:.0f}, p99 {wake['p99_ms']:.0f} ms", "none can wait",
            wake["p99_ms"] <= 50, COMMAND,
        ),
        Row(
            "confirm streams", "confirmation: decision to 1,000 event streams", "p99 <= 50 ms",
            f"p50 {streams['p50_ms']:.0f}, p99 {streams['p99_ms']:.0f} ms", "none can wait",
            streams["p99_ms"] <= 50, COMMAND,
        ),
        Row(
            "confirm idle", f"confirmation: {key[1]:,} idle waiters", "<= 200 MB",
            f"{idle['grown_mb']:.0f} MB more, {idle['rss_mb']:.0f} MB in all", "none can wait",
            idle["grown_mb"] <= 200, COMMAND,
        ),
        *(
            Row(
                f"confirm {name}", f"confirmation: CPU while 1,000 {what} wait", "<= 0.3 % of a core",
                f"{ours[(name, 1000)]['percent']:.2f} %", "none can wait",
                ours[(name, 1000)]["percent"] <= 0.3, COMMAND,
            )
            for name, what in (("rest polls", "long polls"), ("rest streams", "event streams"))
        ),
    ]  # fmt: skip


def _verify() -> Row:
    """The audit log's check on its own, as events a second."""
    from whet_confirm.ledger import Tx
    from whet_confirm.open import ServicePaths, open_service
    from whet_confirm.service import CallerLimits

    with tempfile.TemporaryDirectory() as name:
        where = ServicePaths(Path(name) / "c.db", Path(name) / "confirm")
        service = open_service(where, policy=None, limits=CallerLimits())

        def fill(db: Any) -> None:
            tx = Tx(db, service.timeline.now_s(), service.key)
            data: dict[str, object] = {"status": "approved", "digest": "0" * 64, "resolved_at": 1.5}
            for _ in range(EVENTS):
                tx.record("login_failed", "", "alice", "agent", data)

        service.database.write_now(fill)
        keys = {service.key.id: service.key}
        began, used = time.perf_counter(), os.times()
        report = service.database.read_now(lambda db: audit.verify(db, keys))
        wall_s = time.perf_counter() - began
        cpu_s = os.times().user + os.times().system - used.user - used.system
        service.database.close()
    rate = report.events / wall_s
    assert report.is_good
    shown = f"{rate:,.0f} events/s ({report.events / cpu_s:,.0f} per CPU second)"
    return Row(
        "confirm verify",
        "confirmation: audit verification",
        ">= 100,000 events/s",
        shown,
        "none",
        rate >= 1e5,
        COMMAND,
    )
