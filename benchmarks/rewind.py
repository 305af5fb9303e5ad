"""Files that can be taken back: what recording a step costs where nothing changed, beside git.

Every tree is source-like: 15 files of up to 4 KB in a folder. CPU time, the children's included. `git status`
and `git add -A` run with a repository of their own outside the tree, with its index warm: what tools that
keep shadow repositories pay for each step.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.measure import median
from benchmarks.table import Row
from whet.clock import SystemClock
from whet.rewind.database import Record
from whet.rewind.recorder import Workspace
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step
from whet.rewind.taking_back import Scope, take_back

_GOALS_MS = {1_000: 5.0, 20_000: 40.0}
_TREE = "that the benchmark wrote, 15 a folder, no links"


def make_tree(root: Path, files: int) -> None:
    """Fill `root` with so many files."""
    rng = random.Random(files)
    for number in range(files):
        folder = root / f"package{number // 15 % 40}" / f"part{number // 15}"
        if number % 15 == 0:
            folder.mkdir(parents=True)
        words = [
            rng.choice(["value", "return", "self", "index", "  "]) for _ in range(rng.randrange(10, 600))
        ]
        (folder / f"module{number}.py").write_text(" ".join(words) + str(number))


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of this process and of its children."""
    before = os.times()
    began = time.process_time()
    work()
    own, after = time.process_time() - began, os.times()
    return (own + after[2] + after[3] - before[2] - before[3]) * 1_000


def measured(folder: Path, files: int, runs: int) -> dict[str, float]:
    """Give each figure in CPU milliseconds."""
    root, home = folder / "work", folder / "home"
    make_tree(root, files)
    clock, turns = SystemClock(), count(2)
    workspace = Workspace(root, home, RecordLimits(), clock)
    found: dict[str, float] = {}

    def step(turn: int, number: int) -> None:
        end_step(workspace, begin_step(workspace, "s", turn, number)[0])

    def whole() -> None:
        with workspace.exclusive():
            workspace.scan()

    found["first"] = cpu_ms(lambda: step(1, 1))
    found["turn"] = median([cpu_ms(lambda: step(next(turns), 1)) for _ in range(runs)])
    found["step"] = median([cpu_ms(lambda n=n: step(1_000_000, n)) for n in range(1, runs + 2)][1:])
    found["whole"] = median([cpu_ms(whole) for _ in range(runs)])
    workspace.close()
    workspace = Workspace(root, home, RecordLimits(), clock)
    found["process"] = cpu_ms(lambda: step(2_000_000, 1))
    record = begin_step(workspace, "s", 3_000_000, 1)[0]
    for path in list(root.rglob("*.py"))[: files // 10]:
        path.unlink()
    end_step(workspace, record)
    back = Record(0, "s", 3_000_000, 1, "rewind", 0, 0, 0)
    found["restore"] = cpu_ms(
        lambda: take_back(workspace, record, back, Scope({"s"}, force=False, files=(), edited={}))
    )
    assert sum(1 for _ in root.rglob("*.py")) == files
    workspace.close()
    git = ["git", f"--git-dir={folder / 'shadow'}", f"--work-tree={root}"]
    subprocess.run(["git", "init", "-q", "--bare", str(folder / "shadow")], check=True)
    found["git first"] = cpu_ms(lambda: subprocess.run([*git, "add", "-A"], check=True))
    for name, command in (("git add -A", ["add", "-A"]), ("git status", ["status", "--porcelain"])):
        call = [*git, *command]
        found[name] = median(
            [cpu_ms(lambda c=call: subprocess.run(c, check=True, capture_output=True)) for _ in range(runs)]
        )
    return found


def run(runs: int, full: bool) -> list[Row]:
    """Measure both sizes of tree."""
    rows: list[Row] = []
    for files, goal_ms in _GOALS_MS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = measured(Path(folder), files, max(5, runs))
        git = f"git add -A {found['git add -A']:.0f} ms, git status {found['git status']:.0f} ms"
        rows.append(
            Row(
                f"rewind-{files}",
                f"recording a step before and after it, {files:,} files {_TREE}, nothing changed, CPU",
                f"≤ {goal_ms:.0f} ms",
                f"{found['step']:.1f} ms",
                git,
                found["step"] <= goal_ms,
                "python -m benchmarks rewind",
                {"Whet": found["step"], "Whet, every file": found["whole"]}
                | {name: found[name] for name in ("git add -A", "git status")},
                "ms",
                [
                    f"the first record of the workspace {found['first']:,.0f} ms"
                    f" (git add -A: {found['git first']:,.0f} ms);"
                    f" the first step of a new process {found['process']:.0f} ms;"
                    f" a rewind of {files // 10:,} deleted files {found['restore']:,.0f} ms",
                    f"a scan of every file, as the first of a process is and one every ten minutes,"
                    f" {found['whole']:.0f} ms; every other one is where the kernel heard of changes",
                ],
            )
        )
        rows.append(
            Row(
                f"rewind-first-{files}",
                f"the same for the first step of a turn, {files:,} files {_TREE}, CPU",
                f"≤ {goal_ms:.0f} ms",
                f"{found['turn']:.1f} ms",
                git,
                found["turn"] <= goal_ms,
                "python -m benchmarks rewind",
            )
        )
    return rows
