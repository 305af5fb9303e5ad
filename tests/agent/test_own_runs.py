"""Which command runs a known test runner by itself, and where: its words, folders and sourced files."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.agent.test_runs import (
    OwnRun,
    extract_test_run,
    mentions_runner,
    names_runner,
    parse_own_run,
    parse_own_task,
)

_ACTIVATE = ". .venv/bin/activate"


@each(
    ("command", "expected"),
    [
        ("pytest -q tests", OwnRun("pytest", ("pytest", "-q", "tests"))),
        ("cd api && cd v2 && pytest", OwnRun("pytest", ("pytest",), ("api", "v2"))),
        ("cd && pytest", OwnRun("pytest", ("pytest",))),
        (f"{_ACTIVATE} && pytest", OwnRun("pytest", ("pytest",), (), (".venv/bin/activate",))),
        ("source a/activate; cd b; pytest", OwnRun("pytest", ("pytest",), ("b",), ("a/activate",))),
        ("timeout 60 python3 -m pytest", OwnRun("pytest", ("timeout", "60", "python3", "-m", "pytest"))),
        ("npx jest # all of them", OwnRun("jest", ("npx", "jest"))),
        ("'pytest' \"-q\"", OwnRun("pytest", ("pytest", "-q"))),
        ("py\\test -q", OwnRun("pytest", ("pytest", "-q"))),
        ("go test ./... 2>&1", OwnRun("go test", ("go", "test", "./..."))),
        ("source a/other; pytest", None),
        ("cat log && pytest", None),
        ("pytest | tail", None),
        ("PATH=x pytest", None),
        ("make test", None),
        ("", None),
    ],
)
def test_a_runner_answers_for_a_command_that_ends_in_it(command: str, expected: OwnRun | None) -> None:
    assert parse_own_run(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make test", OwnRun("", ("make", "test"))),
        ("cd api; npm run test:all", OwnRun("", ("npm", "run", "test:all"), ("api",))),
        ("make -j4 -s test", OwnRun("", ("make", "-j4", "-s", "test"))),
        ("make test V=1", None),
        ("make -f other test", None),
        (f"{_ACTIVATE}; make test", None),
        ("pytest", None),
    ],
)
def test_a_task_of_the_workspace_is_run_as_it_is_written_there(command: str, expected: OwnRun | None) -> None:
    assert parse_own_task(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat log; cd api && pytest -q | tail -3", "cd api && pytest -q"),
        ("echo 'pytest; ls' && make test 2>&1", "make test"),
        ("pytest > log 2>&1; cat log", "pytest"),
        ("pytest; go test ./...", "go test ./..."),
        ("cd 'app'; pytest \"a.py\" -q | tail", "cd 'app' && pytest \"a.py\" -q"),
        ("cat <<end\npytest\nend", ""),
        ("make test V=1; ls", ""),
        ("ls", ""),
    ],
)
def test_the_part_that_runs_tests_is_taken_out(command: str, expected: str) -> None:
    assert extract_test_run(command) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pytest.main()", True),
        ('run(["go", "test"])', True),
        ("node --test", True),
        ("go on and test it", False),
        ("pytests", False),
    ],
)
def test_a_program_that_starts_a_runner_speaks_of_it(source: str, expected: bool) -> None:
    assert mentions_runner(source) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls; pytest -q | tail -1", True),
        ("timeout 5 uv run go test", True),
        ("timeout pytest", False),
        ("echo pytest", False),
        ("go build", False),
        ("timeout 5", False),
    ],
)
def test_a_command_names_the_runner_that_it_runs(command: str, expected: bool) -> None:
    assert names_runner(command) is expected
