"""Faults of an installation, planted in a copy of the tree: for each, a check that CI runs turns red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "docs", "benchmarks", "examples", "typings", "requirements", "deploy")
FILES = (
    "pyproject.toml",
    "Makefile",
    "mkdocs.yml",
    "README.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "CHANGELOG.md",
)
IMPORTS = ("tests/imports.py",)  # of `make check`
MARKS = "not soak and not live"  # what `make test` and `make slow` run together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Plant(NamedTuple):
    """A line that is put into a file (after another one, or at the end), the checks that run, and what the
    failing one prints."""

    path: str
    line: str
    checks: tuple[str, ...]
    expected: str
    after: str = ""


REGISTRIES = ("tests/test_registries.py",)
JOBS = ("tests/installed/test_jobs.py",)
BENCHMARKS = (
    "tests/test_benchmarks.py::test_every_benchmark_runs_the_shipped_settings_or_declares_the_difference",
)
NAMED = (
    "tests/test_readme.py::test_each_command_of_the_pages_is_one_that_there_is",
    "tests/test_pages_name.py",
)
RUN = ("tests/test_pages_run.py::test_what_a_page_tells_to_type_works_in_a_fresh_home[memory.md]",)
PLANTS = {
    "an extra's package in a core command": Plant(
        "src/whet/cli/version.py", "import psycopg", IMPORTS, "whet.cli.version -> psycopg"
    ),
    "a registry filled by import": Plant(
        "src/whet/cli/version.py",
        'from whet.cli import command_table\ncommand_table.COMMANDS["planted"] = ("", "")',
        REGISTRIES,
        "whet.cli.command_table.COMMANDS",
    ),
    "a command without a main job": Plant(
        "src/whet/cli/command_table.py",
        '    "planted": ("whet.cli.version:version", "Print the version."),',
        JOBS,
        "planted",
        after="COMMANDS: dict[str, tuple[str, str]] = {",
    ),
    "a benchmark with a changed setting": Plant(
        "benchmarks/startup.py",
        'import os\nos.environ["WHET_SANDBOX_MODE"] = "off"',
        BENCHMARKS,
        "sandbox.mode",
    ),
    "a page with a command that fails": Plant(
        "docs/memory.md", "\n    whet config get memory.planted", RUN, "memory.planted"
    ),
    "a sentence with a command that is not there": Plant(
        "README.md", "\nRun `whet memories`.", NAMED, "whet memories"
    ),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("planted")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    return tree


def run_checks(tree: Path, checks: tuple[str, ...]) -> tuple[int, str]:
    """Run checks in the copy; return the exit code and what was printed."""
    pytest_words = ("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", MARKS)
    words = checks if checks == IMPORTS else (*pytest_words, *checks)
    environ = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTEST_XDIST_WORKER": ""}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_the_copy_is_green(tree: Path) -> None:
    for checks in (IMPORTS, (*REGISTRIES, *JOBS, *BENCHMARKS, *NAMED, *RUN)):
        code, printed = run_checks(tree, checks)
        assert code == 0, printed[-3000:]


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_turns_a_check_red(tree: Path, name: str) -> None:
    plant = PLANTS[name]
    path = tree / plant.path
    whole = path.read_text("utf-8")
    assert plant.after in whole
    after = f"{plant.after}\n{plant.line}"
    path.write_text(whole.replace(plant.after, after) if plant.after else f"{whole}\n{plant.line}\n", "utf-8")
    try:
        code, printed = run_checks(tree, plant.checks)
    finally:
        path.write_text(whole, "utf-8")
    assert code == 1 and plant.expected in printed, printed[-3000:]
