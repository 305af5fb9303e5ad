"""A project whose packages are hard links, as uv and pnpm make them, beside the same tree copied.

Where uv is installed it makes the virtual environment; otherwise 11,000 files are linked from a folder that
stands for its cache. What is measured is a step with the command `true`: the workspace is recorded before
and after it, in this process. CPU, the command's included.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import clean_environment, median
from benchmarks.rewind import cpu_ms
from benchmarks.table import Row
from benchmarks.timed_server import Reply, TimedServer
from whet.clock import SystemClock
from whet.rewind.recorder import Workspace
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step

_GOAL_RATIO = 1.2
_PACKAGES = ("tiktoken", "litellm", "numpy", "pexpect")
_FILES = 11_000
_STEPS = 20
_FIRST = {"none": "", "that only reads": "ls", "that writes": "touch new"}
_GOAL_FIRST_S, _GOAL_FIRST_MB = 0.5, 20


def run(runs: int, full: bool) -> list[Row]:
    """Measure both trees step by step in turn, and the first step of each."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # links don't lead to another file system
        folder = Path(name)
        maker = _make_linked(folder)
        shutil.copytree(folder / "linked", folder / "copied", symlinks=True)
        linked, files = _count(folder / "linked")
        arms = {arm: _Arm(folder, arm) for arm in ("linked", "copied")}
        for _ in range(max(1, runs) * _STEPS // 5):
            for arm in arms.values():
                arm.step()
        steps = {name: median(arm.steps_ms) for name, arm in arms.items()}
        for arm in arms.values():
            arm.close()
        first = _first_command(folder, max(1, runs))
    ratio = steps["linked"] / steps["copied"]
    return [
        Row(
            "linked",
            f"a step with `true` in a tree that {maker} made, {linked:,} of {files:,} files hard links, CPU",
            f"≤ {_GOAL_RATIO} times the same tree copied",
            f"{ratio:.2f} times ({steps['linked']:.1f} ms, copied {steps['copied']:.1f} ms)",
            "none measured",
            ratio <= _GOAL_RATIO,
            "python -m benchmarks linked",
            {"linked": steps["linked"], "copied": steps["copied"]},
            "ms",
            [arm.first_line() for arm in arms.values()],
        ),
        first,
    ]


class _Spent(NamedTuple):
    wall_s: float
    cpu_s: float
    written_mb: float


def _first_command(folder: Path, runs: int) -> Row:
    """Run sessions with no command or one, each in the linked tree and with a home of its own."""
    spent: dict[str, list[_Spent]] = {kind: [] for kind in _FIRST}
    for _ in range(runs):
        for kind, command in _FIRST.items():
            shutil.copytree(folder / "linked", folder / "first", symlinks=True, copy_function=_link_linked)
            replies = [Reply(tool="terminal", arguments={"command": command})] if command else []
            spent[kind].append(_session(folder, [*replies, Reply(["done"])]))
            for path in (folder / "first", folder / "first-home"):
                shutil.rmtree(path)
    one, *others = (
        _Spent(
            median([each.wall_s for each in samples]),
            median([each.cpu_s for each in samples]),
            median([each.written_mb for each in samples]),
        )
        for samples in spent.values()
    )
    more = {
        kind: _Spent(other.wall_s - one.wall_s, other.cpu_s - one.cpu_s, other.written_mb - one.written_mb)
        for kind, other in zip([*_FIRST][1:], others, strict=True)
    }
    said = "; ".join(
        f"{kind} {cost.wall_s:.2f} s, {cost.cpu_s * 1000:,.0f} ms of CPU, {cost.written_mb:.0f} MB"
        for kind, cost in more.items()
    )
    return Row(
        "linked-first",
        "a session's first command in that tree, with the sandbox's and the record's start",
        f"≤ {_GOAL_FIRST_S} s, ≤ {_GOAL_FIRST_MB} MB written",
        said,
        "none measured",
        all(cost.wall_s <= _GOAL_FIRST_S and cost.written_mb <= _GOAL_FIRST_MB for cost in more.values()),
        "python -m benchmarks linked",
    )


def _session(folder: Path, replies: list[Reply]) -> _Spent:
    with TimedServer(replies) as server:
        whet = [str(Path(sys.executable).parent / "whet"), "chat", "-q", "go"]
        options = ["--provider", "bench", "--base-url", server.base_url, "--model", "timed"]
        environment = clean_environment(WHET_HOME=str(folder / "first-home"))
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [*whet, *options]
        subprocess.run(command, cwd=folder / "first", env=environment, check=True, capture_output=True)
        wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Spent(wall_s, cpu_s, (after.ru_oublock - before.ru_oublock) * 512 / 1e6)


class _Arm:
    """One of the trees, its record, and what its steps cost."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name, self._root, self._home = name, folder / name, folder / f"home-{name}"
        self._workspace = Workspace(self._root, self._home, RecordLimits(), SystemClock())
        self.steps_ms: list[float] = []
        self._number = 0
        began = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_oublock
        self._first_ms = cpu_ms(self._work)
        self._first_wall_s = time.perf_counter() - began
        self._written_bytes = 512 * (resource.getrusage(resource.RUSAGE_SELF).ru_oublock - before)
        self._record_bytes = sum(file.stat().st_size for file in self._home.rglob("*") if file.is_file())

    def step(self) -> None:
        self.steps_ms.append(cpu_ms(self._work))

    def close(self) -> None:
        self._workspace.close()

    def first_line(self) -> str:
        """Say what the first step cost."""
        return (
            f"the first step, {self._name}: {self._first_ms:,.0f} ms of CPU, {self._first_wall_s:.1f} s,"
            f" {self._record_bytes / 1e6:.0f} MB in the record, {self._written_bytes / 1e6:.0f} MB written"
        )

    def _work(self) -> None:
        self._number += 1
        record, _ = begin_step(self._workspace, "s", 1, self._number)
        subprocess.run(["sh", "-c", "true"], cwd=self._root, check=True)
        end_step(self._workspace, record)


def _make_linked(folder: Path) -> str:
    """Make `folder`/linked; return the name of what made it."""
    root = folder / "linked"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    if uv := shutil.which("uv"):
        environment = {**os.environ, "UV_CACHE_DIR": str(folder / "cache"), "UV_LINK_MODE": "hardlink"}
        done = subprocess.run([uv, "venv", "-q"], cwd=root, env=environment, check=False)
        install = [uv, "pip", "install", "-q", *_PACKAGES]
        if not done.returncode and not subprocess.run(install, cwd=root, env=environment).returncode:
            return "uv"
    for number in range(_FILES):
        cached = folder / "cache" / f"package{number // 15}" / f"module{number}.py"
        name = root / "packages" / cached.parent.name / cached.name
        for path in (cached, name):
            path.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text(f"value = {number}\n" * (number % 300))
        os.link(cached, name)
    return "os.link"


def _link_linked(source: str, target: str) -> None:
    """Link a file that has other names, and copy any other: a repository has files of its own."""
    if os.lstat(source).st_nlink > 1:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _count(root: Path) -> tuple[int, int]:
    files = [path.lstat() for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(file.st_nlink > 1 for file in files), len(files)
