"""The confirmation service beside its code at an older commit: `python -m benchmarks.confirm_against COMMIT`.

Both run at once, each on a home of its own, and are loaded in turn, a second each, so that whatever else the
machine does falls on both. Printed are medians over the rounds, and those of each round's ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from pathlib import Path

from benchmarks.against import older_source
from benchmarks.confirm import Figures, load, served
from benchmarks.measure import ROOT

_PHASES = (("submit", 1), ("submit", 16), ("approve", 16), ("status", 16))


def main() -> None:
    """Load both and print a line for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=12)
    asked = parser.parse_args()
    with older_source(asked.commit) as older, tempfile.TemporaryDirectory() as name:
        for line in lines(*_rounds(Path(name), older, asked.rounds)):
            print(line)


def _rounds(folder: Path, older: Path, rounds: int) -> tuple[list[Figures], list[Figures]]:
    found: dict[Path, list[Figures]] = {older: [], ROOT / "src": []}
    wanted = ",".join(f"{name}{clients}" for name, clients in _PHASES)
    with contextlib.ExitStack() as stack:
        running = {
            source: stack.enter_context(served(folder / f"home{number}", PYTHONPATH=str(source)))
            for number, source in enumerate(found)
        }
        for number in range(rounds):
            for source in sorted(found, reverse=bool(number % 2)):
                port, pid, tokens = running[source]
                found[source].append(load(port, pid, tokens, 1.0, wanted))
    return found[older], found[ROOT / "src"]


def lines(before: list[Figures], now: list[Figures]) -> list[str]:
    """Say for each phase the CPU of a call and the rate, now and before, and the ratio."""
    said: list[str] = []
    for phase in _PHASES:
        for key, unit in (("cpu_ms", "ms CPU"), ("rate", "/s")):
            pairs = [(new[phase][key], old[phase][key]) for new, old in zip(now, before, strict=True)]
            ratio = statistics.median(new / old for new, old in pairs)
            new, old = (statistics.median(each) for each in zip(*pairs, strict=True))
            said.append(f"{phase[0]} {phase[1]}: {new:.3g} {unit} beside {old:.3g} ({ratio:.2f}x)")
    return said


if __name__ == "__main__":
    main()
