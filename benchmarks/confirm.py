"""The confirmation service beside a minimal aiohttp daemon with one commit per call, back to back.

Ours: tokens checked, hash chain, signed checkpoints, group commit; uvicorn with httptools on asyncio's own
loop. The comparison: no tokens, no chain; aiohttp on asyncio's own loop. Both sync every acknowledged write.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, clean_environment
from benchmarks.peers import python_of, version_of
from benchmarks.table import Row
from whet.confirm import audit

COMMAND = "python -m benchmarks confirm"
Figures = dict[tuple[str, int], dict[str, float]]
EVENTS = 200_000


def run(runs: int, full: bool) -> list[Row]:
    """Measure both in turn; the median of `runs` (at most three: a turn takes half a minute)."""
    ours: list[Figures] = []
    theirs: list[Figures] = []
    seconds = 5.0 if full else 2.0
    for _ in range(min(runs, 3)):
        with tempfile.TemporaryDirectory() as folder:
            theirs.append(_peer(Path(folder), seconds))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(_whet(Path(folder), seconds))
    return [*_rates(_middle(ours), _middle(theirs)), *_waiting(_middle(ours)), _verify()]


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


def _whet(folder: Path, seconds: float) -> Figures:
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "confirm", "serve", "--port", str(port), "--web-port", "-1",
         "--rate-limit", "100000000"],
        env=clean_environment(WHET_HOME=str(folder)), stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        _until_listening(port, process)
        tokens = [
            (folder / "confirm" / f"{role}.token").read_text().strip() for role in ("submit", "approve")
        ]
        return _load(port, process.pid, tokens, seconds)
    finally:
        process.terminate()
        process.wait(30)


def _peer(folder: Path, seconds: float) -> Figures:
    port = _free_port()
    script = str(ROOT / "benchmarks" / "loops" / "confirm_peer.py")
    process = subprocess.Popen(
        [str(python_of("aiohttp")), script, str(port), str(folder / "peer.db")], env=clean_environment()
    )
    try:
        _until_listening(port, process)
        return _load(port, process.pid, ["", ""], seconds)
    finally:
        process.terminate()
        process.wait(30)


def _load(port: int, pid: int, tokens: Sequence[str], seconds: float) -> Figures:
    command = [
        sys.executable,
        "-m",
        "benchmarks.loops.confirm_load",
        str(port),
        str(pid),
        *tokens,
        str(seconds),
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


def _rates(ours: Figures, theirs: Figures) -> list[Row]:
    peer = f"aiohttp {version_of('aiohttp')}"
    rows: list[Row] = []
    for name, clients, goal, limits in _GOALS:
        mine, other = ours[(name, clients)], theirs[(name, clients)]
        met = all(
            mine[key] >= limit if key == "rate" else mine[key] <= limit for key, limit in limits.items()
        )
        ratio = mine["rate"] / other["rate"]
        rows.append(
            Row(
                name=f"confirm {name} {clients}",
                measure=f"confirmation: {name}, {clients} clients",
                goal=goal,
                whet=f"{_line(mine)} ({ratio:.1f}x)",
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
    wake = ours[("wake", 1000)]
    key = next(key for key in ours if key[0] == "idle")
    idle = ours[key]
    return [
        Row(
            "confirm wake", "confirmation: decision to 1,000 waiters", "p99 <= 50 ms",
            f"p50 {wake['p50_ms']:.0f}, p99 {wake['p99_ms']:.0f} ms", "none can wait",
            wake["p99_ms"] <= 50, COMMAND,
        ),
        Row(
            "confirm idle", f"confirmation: {key[1]:,} idle waiters", "<= 200 MB",
            f"{idle['grown_mb']:.0f} MB more, {idle['rss_mb']:.0f} MB in all", "none can wait",
            idle["grown_mb"] <= 200, COMMAND,
        ),
    ]  # fmt: skip


def _verify() -> Row:
    """The audit log's check on its own, as events a second."""
    from whet.confirm.ledger import Tx
    from whet.confirm.open import Places, open_service
    from whet.confirm.service import Limits

    with tempfile.TemporaryDirectory() as name:
        where = Places(Path(name) / "c.db", Path(name) / "confirm")
        service = open_service(where, policy=None, limits=Limits())

        def fill(db: Any) -> None:
            tx = Tx(db, service.timeline.now_s(), service.key)
            data: dict[str, object] = {"status": "approved", "digest": "0" * 64, "resolved_at": 1.5}
            for _ in range(EVENTS):
                tx.record("login_failed", "", "alice", "agent", data)

        service.database.write_now(fill)
        keys = audit.read_keys(where.public_key)
        began, used = time.perf_counter(), os.times()
        report = service.database.read_aside(lambda db: audit.verify(db, keys))
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
