"""What a run of tests is worth as proof: whether its runner is older than the goal, and no test was lost.

Programs are judged by when the kernel last saw them change, which no command can set back. Tests that were
taken away are no lie by themselves: what is said here is for a person to accept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.agent.test_runs import OwnRun, own_run
from whet.app.goal_roles import is_test_name
from whet.contract.receipts import CallEffects, TestCounts

_INSTALLED = (".venv/bin", "venv/bin", "node_modules/.bin")


def new_program(command: str, folder: Path, begun_s: float) -> str:
    """Give a program, or a module that hides the runner's, that a command in `folder` runs tests with and
    that was made since; empty where there is none."""
    run = own_run(command)
    if run is None:
        return ""
    for inner in run.folders:
        folder = folder / os.path.expanduser(inner)
    return next((str(path) for path in _programs(run, folder) if _changed_s(path) > begun_s), "")


def lost_tests(claimed: Sequence[TestCounts], effects: Sequence[CallEffects]) -> str:
    """Say how fewer tests than before stand behind an end: fewer ran than in an earlier run, more were
    skipped with tests changed, or lines of test files went; empty where nothing of it is so."""
    runs = [one.tests for one in effects if one.tests is not None]
    for runner in dict.fromkeys(one.runner for one in claimed):
        now = sum(one.passed + one.failed for one in claimed if one.runner == runner)
        most = max((one.passed + one.failed for one in runs if one.runner == runner), default=0)
        if now < most:
            return f"tests that ran: {now:,}, before: {most:,}"
    first = next((at for at, one in enumerate(effects) if _test_lines(one)), len(effects))
    before = max((one.tests.skipped for one in effects[:first] if one.tests is not None), default=0)
    skipped = max((one.skipped for one in claimed), default=0)
    if first < len(effects) and skipped > before:
        return f"tests that are skipped: {skipped:,}, before they were changed: {before:,}"
    gone = -sum(sum(_test_lines(one)) for one in effects)
    return f"test files lost {gone:,} lines" if gone > 0 else ""


def _test_lines(effects: CallEffects) -> list[int]:
    """Give how many lines each test file that a call changed has gained."""
    changed = (*effects.edits, *effects.touched)
    return [one.added - one.removed for one in changed if is_test_name(one.path)]


def _programs(run: OwnRun, folder: Path) -> Iterator[Path]:
    """Give what a run may come to be carried out by, as far as it is there."""
    modules = [folder]
    for word in run.words:
        name, _, value = word.partition("=")
        if name == "PYTHONPATH":
            modules += [folder / part for part in value.split(os.pathsep)]
    for word in (*run.words, *run.sourced):
        if "/" in word and "=" not in word:
            yield folder / word
        elif (found := shutil.which(word)) is not None:
            yield Path(found)
    for name in {run.runner.partition(" ")[0], "python", "python3"}:
        yield from (folder / place / name for place in _INSTALLED)
    for module in modules:
        yield from (module / f"{run.runner}.py", module / run.runner / "__init__.py")


def _changed_s(path: Path) -> float:
    """Give when a file, or what it leads to, was last changed; 0 where there is none."""
    try:
        return max(path.lstat().st_ctime, path.stat().st_ctime) if not path.is_dir() else 0.0
    except OSError:
        return 0.0
