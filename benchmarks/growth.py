"""How a conversation's total CPU grows with its steps: 20, 200, 1,000."""

from __future__ import annotations

import math

from benchmarks.measure import in_turn, median
from benchmarks.overhead import LOOPS, loop_command, practice_server
from benchmarks.table import Row

STEPS = (20, 200, 1000)
SLOW = ("openai SDK", "pydantic-ai")


def run(runs: int, full: bool) -> list[Row]:
    """Total CPU at each length; slow peers stop at 200 unless `full`."""
    totals: dict[str, dict[int, float]] = {name: {} for name in LOOPS}
    with practice_server() as base_url:
        for steps in STEPS:
            names = [name for name in LOOPS if steps < 1000 or full or name not in SLOW]
            commands = {name: loop_command(name, base_url, steps) for name in names}
            samples = in_turn(commands, 1 if steps == 1000 else min(runs, 3))
            for name in names:
                totals[name][steps] = median([s.printed["loop_cpu_s"] for s in samples[name]])
    ours = totals["Whet"]
    exponent = math.log(ours[1000] / ours[200]) / math.log(5)
    lines = ["| steps | " + " | ".join(LOOPS) + " |", "|---|" + "---|" * len(LOOPS)]
    for steps in STEPS:
        cells = [f"{totals[name][steps]:.2f}" if steps in totals[name] else "not run" for name in LOOPS]
        lines.append(f"| {steps} | " + " | ".join(cells) + " |")
    slow = ", ".join(f"{name} at 200: {totals[name][200]:.1f} s" for name in SLOW)
    return [
        Row(
            "growth",
            "1,000-step conversation, total",
            "≤ 6 CPU s, exponent ≤ 1.2",
            f"{ours[1000]:.1f} s, exponent {exponent:.2f} (200 to 1,000)",
            f"httpx {totals['httpx'][1000]:.1f} s; {slow}",
            ours[1000] <= 6 and exponent <= 1.2,
            "python -m benchmarks growth",
            details=["Total CPU seconds of one conversation:", "", *lines],
        )
    ]
