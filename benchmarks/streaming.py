"""What a call costs when its answer comes as answers do: in pieces, some time apart, also through TLS.

The counterpart is a paced server in a process of its own. CPU of the client's process, per call; every client
in turn, so that a busy machine hits all alike. `http.client` blocks and does nothing else: it is the floor.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.listening import self_signed

from benchmarks.measure import Sample, in_turn, median
from benchmarks.overhead import practice_server
from benchmarks.table import Row

CLIENTS = {
    "Whet": "whet",
    "its client alone": "client",
    "http.client": "http.client",
    "httpx2": "httpx2",
}
BURST_GOAL_MS = 1.3
FLOOR_MS = 0.32
"""What a burst call took with http.client where the goals in ms were set; elsewhere the ratio counts."""
PACED_GOAL_MS = 8.0
PACED_FLOOR_MS = 3.7
PACED_GOAL_RATIO = 2.2
# Pieces, milliseconds between them, calls in a run, TLS.
SHAPES = {
    "burst": (30, 0, 40, False),
    "paced": (100, 1, 20, False),
    "paced-tls": (100, 1, 20, True),
    "paced-30-20": (30, 20, 6, False),
    "paced-300-1": (300, 1, 8, False),
}
FULL = {"paced-300-20": (300, 20, 4, False), "burst-tls": (30, 0, 40, True)}


def run(runs: int, full: bool) -> list[Row]:
    """CPU per call of each shape."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = self_signed(Path(folder), "localhost")
        shapes = {**SHAPES, **(FULL if full else {})}
        return [_row(name, *shape, runs, certificate) for name, shape in shapes.items()]


def _row(
    name: str, pieces: int, gap_ms: int, calls: int, is_secure: bool, runs: int, certificate: Path
) -> Row:
    secure = [str(certificate)] if is_secure else []
    with practice_server("paced_server", *secure) as base_url:
        commands = {
            client: [
                sys.executable,
                "-m",
                "benchmarks.loops.paced_client",
                kind,
                base_url,
                f"paced-{pieces}-{gap_ms}",
                str(calls),
            ]
            for client, kind in CLIENTS.items()
        }
        samples = in_turn(commands, runs, SSL_CERT_FILE=str(certificate))
    each = {client: _costs(found) for client, found in samples.items()}
    cost = {client: median(found) for client, found in each.items()}
    floor = cost["http.client"]
    goals = {
        "burst": (
            f"≤ {BURST_GOAL_MS} CPU ms beside {FLOOR_MS} of http.client: ≤ {BURST_GOAL_MS / FLOOR_MS:.1f} x",
            cost["Whet"] <= BURST_GOAL_MS / FLOOR_MS * floor,
        ),
        "paced": (
            f"≤ {PACED_GOAL_MS:g} CPU ms beside {PACED_FLOOR_MS} of http.client: ≤ {PACED_GOAL_RATIO} x",
            cost["Whet"] <= PACED_GOAL_RATIO * floor,
        ),
    }
    goal, met = goals.get(name, ("", None))
    apart = f"{gap_ms} ms apart" if gap_ms else "at once"
    return Row(
        f"streaming-{name}",
        f"a model call, durable, whose answer comes in {pieces} pieces {apart}{', TLS' if is_secure else ''}",
        goal or "for comparison",
        f"{cost['Whet']:.2f} ms ({min(each['Whet']):.2f} to {max(each['Whet']):.2f}),"
        f" {cost['Whet'] / floor:.2f} x http.client",
        ", ".join(f"{client} {ms:.2f}" for client, ms in cost.items() if client != "Whet"),
        met,
        "python -m benchmarks streaming",
        bars=cost,
        unit="CPU ms",
        details=[
            "Whet: gate, tool, store with fsync, events. The others store nothing and run no tool."
            f" The least of {runs} runs: "
            + ", ".join(f"{client} {min(found):.2f}" for client, found in each.items())
            + "."
        ],
    )


def floor_ms(runs: int) -> float:
    """Give what a burst call costs with http.client now."""
    pieces, gap_ms, calls, _ = SHAPES["burst"]
    with practice_server("paced_server") as base_url:
        command = [sys.executable, "-m", "benchmarks.loops.paced_client", "http.client", base_url]
        samples = in_turn({"floor": [*command, f"paced-{pieces}-{gap_ms}", str(calls)]}, runs)
    return median(_costs(samples["floor"]))


def _costs(samples: list[Sample]) -> list[float]:
    return [sample.printed["call_ms"] for sample in samples]
