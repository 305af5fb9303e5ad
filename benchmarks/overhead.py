"""What a harness costs per model call: the same 20 and 120 steps through each, one trivial tool.

The counterpart is the practice server in a process of its own. CPU is what the harness's process used
between the first request and the last answer, imports left out; memory is the process's peak.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measure import ROOT, clean_environment, in_turn, median
from benchmarks.peers import python_of, version_of
from benchmarks.table import Row

LOOPS = {
    "httpx": "httpx_loop",
    "openai SDK": "openai_loop",
    "pydantic-ai": "pydantic_ai_loop",
    "Whet": "whet_loop",
}
PEER_OF = {"httpx": "httpx", "openai SDK": "openai", "pydantic-ai": "pydantic-ai"}


@contextmanager
def practice_server(name: str = "practice_server", *arguments: str) -> Iterator[str]:
    """A server of `benchmarks/loops` in a process of its own; gives its base URL."""
    command = [sys.executable, "-m", f"benchmarks.loops.{name}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment(), cwd=ROOT, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def loop_command(name: str, base_url: str, steps: int) -> list[str]:
    """The command that runs one harness's loop."""
    python = sys.executable if name == "Whet" else str(python_of(PEER_OF[name]))
    return [python, "-m", f"benchmarks.loops.{LOOPS[name]}", base_url, str(steps)]


def run(runs: int, full: bool) -> list[Row]:
    """CPU per call at 20 steps, and peak memory after 120 calls."""
    with practice_server() as base_url:
        short = in_turn({name: loop_command(name, base_url, 20) for name in LOOPS}, runs)
        long = in_turn({name: loop_command(name, base_url, 119) for name in LOOPS}, max(1, runs // 2))
    each = {
        name: [s.printed["loop_cpu_s"] * 1000 / s.printed["calls"] for s in samples]
        for name, samples in short.items()
    }
    cost = {name: median(values) for name, values in each.items()}
    memory = {name: median([s.printed["rss_mb"] for s in samples]) for name, samples in long.items()}
    others = [name for name in LOOPS if name != "Whet"]
    versions = ", ".join(f"{PEER_OF[name]} {version_of(PEER_OF[name])}" for name in others)
    return [
        Row(
            "overhead",
            "overhead per model call at 20 steps, durable",
            "≤ 3 CPU ms",
            f"{cost['Whet']:.1f} ms ({min(each['Whet']):.1f} to {max(each['Whet']):.1f})",
            ", ".join(f"{name} {cost[name]:.1f} ({cost[name] / cost['Whet']:.1f}x)" for name in others),
            cost["Whet"] <= 3,
            "python -m benchmarks overhead",
            bars=cost,
            unit="CPU ms",
            details=[
                f"None of the peers' loops stores anything; Whet's is durable at each step. {versions}."
            ],
        ),
        Row(
            "memory",
            "peak memory after a 120-call run",
            "≤ 60 MB",
            f"{memory['Whet']:.0f} MB",
            ", ".join(f"{name} {memory[name]:.0f}" for name in others),
            memory["Whet"] <= 60,
            "python -m benchmarks overhead",
            bars=memory,
            unit="MB",
        ),
    ]
