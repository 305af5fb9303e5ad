"""Where a figure comes from: the commit it was measured at, and whether its code changed since.

The code that a row measures is its benchmark's modules and all that they import from this project. A
benchmark that starts the program as a process measures the whole program.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.declared import COMMANDS
from benchmarks.measure import ROOT
from benchmarks.shipped import find_modules

Benchmark = Callable[..., Any]


def current_commit(root: Path = ROOT) -> str:
    """Return the short id of the commit that is measured, with a + if files differ; "" without git."""
    commit = _git(root, "rev-parse", "--short=8", "HEAD")
    return commit + "+" * bool(commit and _git(root, "status", "--porcelain", "--", "src", "benchmarks"))


def benchmark_of(command: str) -> str:
    """Return the name of the benchmark that a row's command runs."""
    match = re.search(r"-m benchmarks ([\w-]+)", command)
    return match[1] if match else ""


@functools.cache
def measured_paths(benchmark: str, run: Benchmark, root: Path = ROOT) -> tuple[str, ...]:
    """Return the paths of the code that a benchmark measures, sorted, relative to the project."""
    modules = (run.__module__, *COMMANDS.get(benchmark, ()))
    outside = [
        path for path in find_modules(modules, root, is_whole=False) if root / "src" not in path.parents
    ]
    own = {path.relative_to(root).as_posix() for path in outside}
    if any('"whet"' in path.read_text("utf-8") for path in outside):
        return (*sorted(own), "src/whet")
    return tuple(sorted(own | {path.relative_to(root).as_posix() for path in find_modules(modules, root)}))


def is_changed_since(commit: str, paths: Sequence[str], root: Path = ROOT) -> bool:
    """Tell whether these paths differ from `commit`; also true if git does not know that commit."""
    base = commit.rstrip("+")
    if not base:
        return True
    command = ["git", "diff", "--quiet", f"{base}^{{commit}}", "HEAD", "--", *paths]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode != 0
    except OSError:
        return True


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if not done.returncode else ""
