"""The whole program beside its code at an older commit: `python -m benchmarks.against COMMIT`.

Both answer a question and do a job of commands, in turn, against one paced model server, each run in a home
of its own. Neither uses the sandbox, which an older commit may not have, unless `--sandboxed` is given.
Printed are the medians of both, and of each round's ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from benchmarks.measure import ROOT, run_in
from benchmarks.overhead import practice_server
from benchmarks.programs import PROGRAMS

STEPS = 50
_SHAPES = {"burst": "paced-30-0", "pieces 1 ms apart": "paced-100-1"}


def main() -> None:
    """Run both and print a line for each measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sandboxed", action="store_true", help="commands run in the sandbox")
    asked = parser.parse_args()
    with older_source(asked.commit) as older, practice_server("paced_server") as base_url:
        for shape, model in _SHAPES.items():
            found: dict[Path, list[tuple[float, float]]] = {older: [], ROOT / "src": []}
            for number in range(asked.rounds + 1):
                for source in sorted(found, reverse=bool(number % 2)):
                    once, job = (
                        _spent_s(source, base_url, f"{model}-{steps}", asked.sandboxed)
                        for steps in (0, STEPS)
                    )
                    if number:  # the first round fills caches
                        found[source].append((once * 1000, (job - once) * 1000 / STEPS))
            _say(shape, found[ROOT / "src"], found[older])


@contextlib.contextmanager
def older_source(commit: str) -> Iterator[Path]:
    """Give a folder with the source as it was at a commit, which goes afterwards."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as name, tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(name, filter="data")
        yield Path(name, "src")


def _spent_s(source: Path, base_url: str, model: str, sandboxed: bool) -> float:
    is_unconfined = not sandboxed and (source / "whet" / "sandbox").exists()
    program = PROGRAMS["Whet, unconfined" if is_unconfined else "Whet"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        call = program.invoke(home, base_url, model)
        return run_in(work, call.command, HOME=str(home), PYTHONPATH=str(source), **call.environment).cpu_s


def _say(shape: str, now: list[tuple[float, float]], before: list[tuple[float, float]]) -> None:
    for at, what in enumerate(("a question, whole", "a step with the command `true`")):
        ratio = statistics.median(new[at] / old[at] for new, old in zip(now, before, strict=True))
        new, old = (statistics.median(one[at] for one in each) for each in (now, before))
        print(f"{what}, {shape}: {new:.1f} ms CPU beside {old:.1f} ({ratio:.2f}x)")


if __name__ == "__main__":
    main()
