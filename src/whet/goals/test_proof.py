"""Judge whether a test run proves something: its runner must be older than the goal, and no test may be lost.

If the exit code of a command proves nothing (a pipe, `|| true`, an installation before the tests), Whet can
run the part that runs tests again. The age of programs, and of files that define a task, is their ctime,
which no command can set. Lost tests may be legitimate, so a person can accept them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from whet.agent.test_runs import OwnRun, extract_test_run, names_runner, parse_own_run, parse_own_task
from whet.contract.receipts import CallEffects, TestCounts
from whet.contract.texts import from_json
from whet.goals.base import read_text
from whet.goals.roles import is_test_name

_INSTALLED = (".venv/bin", "venv/bin", "node_modules/.bin")
_PACKAGE = ("package.json",)
_TASK_FILES = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": _PACKAGE,
    "pnpm": _PACKAGE,
    "yarn": _PACKAGE,
    "tox": ("tox.ini", "tox.toml", "setup.cfg", "pyproject.toml"),
    "nox": ("noxfile.py",),
}
_RULE = re.compile(r"^([^\s#:=][^#:=]*):(?!=)([^=\n]*)\n((?:\t[^\n]*\n|[ ]*\n)*)", re.MULTILINE)
_VARIABLE = re.compile(r"^(?:export\s+)?(\w+)\s*[:?]?=\s*([^\n]*)", re.MULTILINE)
_USED = re.compile(r"\$[({](\w+)[)}]")


def find_new_program(command: str, folder: Path, begun_s: float) -> str:
    """Return a program or module that a command in `folder` runs tests with, or that hides the runner's, and
    that has changed since `begun_s`. Returns an empty string if there is none."""
    run = parse_own_run(command) or parse_own_task(command)
    if run is None:
        return ""
    for path in _list_programs(run, find_run_folder(command, folder)):
        if read_change_time_s(path) > begun_s:
            return str(path)
    return ""


def find_run_folder(command: str, folder: Path) -> Path:
    """Return the folder in which a command that is started in `folder` runs tests, or `folder` if it runs
    none."""
    run = parse_own_run(command) or parse_own_task(command)
    for inner in run.folders if run is not None else ():
        folder = folder / os.path.expanduser(inner)
    return folder


def make_test_command(command: str, folder: Path) -> str:
    """Return a command with which Whet can run the tests of a command in `folder` itself, or an empty
    string."""
    test_command = extract_test_run(command)
    if not test_command:
        return ""
    task = parse_own_task(test_command)
    if task is not None and not _tests_by_task(task, folder):
        return ""
    return f"cd {shlex.quote(str(folder))} && {test_command}"


def _tests_by_task(task: OwnRun, folder: Path) -> bool:
    """Return whether the task's definition in a file of the workspace runs a known test runner."""
    for inner in task.folders:
        folder = folder / os.path.expanduser(inner)
    program, *arguments = task.words
    names = [word for word in arguments if not word.startswith("-")]
    path = _task_file(program, folder)
    text = read_text(path) if path is not None else ""
    if program == "make":
        return names_runner(_recipes(text, names))
    if path is not None and path.name in _PACKAGE:
        return names_runner(_script(text, names[-1] if names else ""))
    return any(name in text for name in ("pytest", "unittest"))


def _task_file(program: str, folder: Path) -> Path | None:
    """Return the file that defines a task."""
    return next((folder / name for name in _TASK_FILES[program] if (folder / name).is_file()), None)


def _recipes(makefile: str, targets: Sequence[str]) -> str:
    """Return the recipe lines that make runs for targets, with variables as the file sets them."""
    rules = {
        name: (needs.split(), body)
        for names, needs, body in _RULE.findall(makefile + "\n")
        for name in names.split()
    }
    variables = dict(_VARIABLE.findall(makefile))
    first = [name for name in rules if not name.startswith(".")][:1]
    pending = [*(targets or first)]
    lines: list[str] = []
    while pending:
        if (rule := rules.pop(pending.pop(), None)) is None:
            continue
        needs, body = rule
        pending += needs
        lines += [line.lstrip("\t@-+") for line in body.splitlines()]
    return "\n".join(_USED.sub(lambda used: variables.get(used[1], ""), line) for line in lines)


def _script(package: str, name: str) -> str:
    """Return the command of a package's script by its name."""
    try:
        scripts = from_json(package, _Package).scripts
    except (msgspec.DecodeError, UnicodeError):
        return ""
    return scripts.get({"t": "test"}.get(name, name), "")


class _Package(msgspec.Struct, frozen=True):
    scripts: dict[str, str] = {}


def describe_lost_tests(claimed: Sequence[TestCounts], effects: Sequence[CallEffects]) -> str:
    """Return the line about lost tests: fewer ran than in an earlier run, more were skipped after a test file
    had changed, or test files lost lines. Returns an empty string if no tests were lost."""
    runs = [record.tests for record in effects if record.tests is not None]
    for runner in dict.fromkeys(counts.runner for counts in claimed):
        count = sum(counts.passed + counts.failed for counts in claimed if counts.runner == runner)
        max_count = max(
            (counts.passed + counts.failed for counts in runs if counts.runner == runner), default=0
        )
        if count < max_count:
            return f"tests that ran: {count:,}, before: {max_count:,}"
    gained_lines = [_count_gained_lines(record) for record in effects]
    first = next((index for index, gains in enumerate(gained_lines) if gains), len(effects))
    before = max((record.tests.skipped for record in effects[:first] if record.tests is not None), default=0)
    skipped = max((counts.skipped for counts in claimed), default=0)
    if first < len(effects) and skipped > before:
        return f"tests that are skipped: {skipped:,}, before they were changed: {before:,}"
    lost_lines = -sum(map(sum, gained_lines))
    return f"test files lost {lost_lines:,} lines" if lost_lines > 0 else ""


def _count_gained_lines(effects: CallEffects) -> list[int]:
    """Return how many lines each changed test file gained in a call."""
    changed = (*effects.edits, *effects.touched)
    return [change.added - change.removed for change in changed if is_test_name(change.path)]


def _list_programs(run: OwnRun, folder: Path) -> Iterator[Path]:
    """Yield the programs and files that a run may use; they need not exist."""
    if not run.runner and (task_file := _task_file(run.words[0], folder)) is not None:
        yield task_file
    modules = [folder]
    for word in run.words:
        name, _, value = word.partition("=")
        if name == "PYTHONPATH":
            modules += [folder / part for part in value.split(os.pathsep)]
    for word in (*run.words, *run.sourced):
        if "/" in word and "=" not in word:
            yield folder / word
        elif (program := shutil.which(word)) is not None:
            yield Path(program)
    for name in {run.runner.partition(" ")[0], "python", "python3"}:
        yield from (folder / subfolder / name for subfolder in _INSTALLED)
    for module in modules if run.runner else ():
        yield from (module / f"{run.runner}.py", module / run.runner / "__init__.py")


def read_change_time_s(path: Path) -> float:
    """Return when a file, or the target of a link, last changed (ctime in s), or 0.0 if it does not exist or
    is a folder."""
    try:
        return max(path.lstat().st_ctime, path.stat().st_ctime) if not path.is_dir() else 0.0
    except OSError:
        return 0.0
