"""Judge a test run as proof: its runner must be older than the goal, and no test may be lost.

If the exit code of a command proves nothing (a pipe, `|| true`, an installation before it), Whet can run
the part that runs tests again. Programs, and files that define a task, are judged by their ctime, which no
command can set back. Removed tests are not fraud by themselves: the texts of this module are for a person
to accept.
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


def new_program(command: str, folder: Path, begun_s: float) -> str:
    """Return a program, or a module that hides the runner's, that a command in `folder` runs tests with and
    that was changed since `begun_s`, else an empty string."""
    run = parse_own_run(command) or parse_own_task(command)
    if run is None:
        return ""
    folder = run_folder(command, folder)
    return next((str(path) for path in _programs(run, folder) if last_change_s(path) > begun_s), "")


def run_folder(command: str, folder: Path) -> Path:
    """Return the folder that a command in `folder` runs tests in, or `folder` if it runs none."""
    run = parse_own_run(command) or parse_own_task(command)
    for inner in run.folders if run is not None else ():
        folder = folder / os.path.expanduser(inner)
    return folder


def rerunnable_part(command: str, folder: Path) -> str:
    """Return the part of a command in `folder` that runs tests and that Whet can run from there itself, or an
    empty string."""
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
    pending, lines = [*(targets or first)], list[str]()
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


def lost_tests(claimed: Sequence[TestCounts], effects: Sequence[CallEffects]) -> str:
    """Return how the tests became fewer: fewer ran than in an earlier run, more were skipped after tests
    changed, or test files lost lines. An empty string if none of it happened."""
    runs = [record.tests for record in effects if record.tests is not None]
    for runner in dict.fromkeys(record.runner for record in claimed):
        now = sum(record.passed + record.failed for record in claimed if record.runner == runner)
        most = max((record.passed + record.failed for record in runs if record.runner == runner), default=0)
        if now < most:
            return f"tests that ran: {now:,}, before: {most:,}"
    first = next((at for at, record in enumerate(effects) if _test_lines(record)), len(effects))
    before = max((record.tests.skipped for record in effects[:first] if record.tests is not None), default=0)
    skipped = max((record.skipped for record in claimed), default=0)
    if first < len(effects) and skipped > before:
        return f"tests that are skipped: {skipped:,}, before they were changed: {before:,}"
    gone = -sum(sum(_test_lines(record)) for record in effects)
    return f"test files lost {gone:,} lines" if gone > 0 else ""


def _test_lines(effects: CallEffects) -> list[int]:
    """Return the number of lines that each changed test file gained in a call."""
    changed = (*effects.edits, *effects.touched)
    return [change.added - change.removed for change in changed if is_test_name(change.path)]


def _programs(run: OwnRun, folder: Path) -> Iterator[Path]:
    """Yield the programs and files that may carry out a run; they need not exist."""
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


def last_change_s(path: Path) -> float:
    """Return when a file, or its link's target, last changed (ctime in s), or 0.0 if it does not exist."""
    try:
        return max(path.lstat().st_ctime, path.stat().st_ctime) if not path.is_dir() else 0.0
    except OSError:
        return 0.0
