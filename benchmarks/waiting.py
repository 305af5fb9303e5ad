"""1,000 sessions in one process, all waiting on the model at the same time."""

from __future__ import annotations

import sys

from benchmarks.measure import run as run_process
from benchmarks.overhead import practice_server
from benchmarks.table import Row


def run(runs: int, full: bool) -> list[Row]:
    """Memory, and whether each session was answered."""
    with practice_server() as base_url:
        sample = run_process([sys.executable, "-m", "benchmarks.loops.whet_waiting", base_url, "1000"])
    facts = sample.printed
    return [
        Row(
            "waiting",
            "1,000 sessions waiting on the model in one process",
            "≤ 250 MB, none starved",
            f"{facts['rss_mb']:.0f} MB, {facts['answered']:.0f} answered, "
            f"first after {facts['first_s']:.1f} s, last {facts['last_s']:.1f} s",
            "none published",
            facts["rss_mb"] <= 250 and facts["answered"] == 1000,
            "python -m benchmarks waiting",
        )
    ]
