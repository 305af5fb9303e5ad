"""The confirmation service beside another: `python -m benchmarks.confirm_against COMMIT`, or `aiohttp`.

COMMIT is our code as it was then, `aiohttp` the comparison of `benchmarks confirm` with the journal mode of
SQLite that `--journal` names. Both run at once, each on a home of its own, and are loaded in turn, a second
each, so that whatever else the machine does falls on both. Printed are medians over the rounds, and those of
each round's ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Generator
from pathlib import Path

from benchmarks.against import older_source
from benchmarks.confirm import Figures, load, served, served_peer
from benchmarks.measure import ROOT

_PHASES = (("submit", 1), ("submit", 16), ("approve", 16), ("status", 16))
Address = tuple[int, int, list[str]]


def main() -> None:
    """Load both and print a line for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--journal", default="wal", choices=("wal", "delete"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        theirs = stack.enter_context(_other(Path(name), asked.other, asked.journal))
        ours = stack.enter_context(served(Path(name) / "ours", PYTHONPATH=str(ROOT / "src")))
        for line in lines(*_rounds(theirs, ours, asked.rounds)):
            print(line)


@contextlib.contextmanager
def _other(folder: Path, other: str, journal: str) -> Generator[Address]:
    """Run our service at an older commit, or the comparison; gives its port, process and tokens."""
    if other == "aiohttp":
        with served_peer(folder, journal) as address:
            yield address
    else:
        with older_source(other) as older, served(folder / "older", PYTHONPATH=str(older)) as address:
            yield address


def _rounds(theirs: Address, ours: Address, rounds: int) -> tuple[list[Figures], list[Figures]]:
    figures: dict[bool, list[Figures]] = {False: [], True: []}
    phases = ",".join(f"{name}{clients}" for name, clients in _PHASES)
    for number in range(rounds):
        for is_ours in (False, True) if number % 2 else (True, False):
            port, pid, tokens = ours if is_ours else theirs
            figures[is_ours].append(load(port, pid, tokens, 1.0, phases))
    return figures[False], figures[True]


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
