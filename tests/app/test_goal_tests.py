"""What a claimed run of tests is worth: its runner was there before the goal, and no test was lost."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.app.goal_runs import Judge, claim, finish, pursue
from tests.rewind.running import ANSWER, call
from whet.app.goal_tests import lost_tests, new_program
from whet.app.goals import GoalWish
from whet.contract.receipts import CallEffects, FileLines, TestCounts

_TEST = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"


@pytest.mark.parametrize(
    ("made", "command"),
    [
        ("bin/pytest", "pytest -q"),
        ("bin/python3", "python3 -m unittest"),
        ("mine/pytest", "mine/pytest"),
        ("mine/pytest", "cd mine && ./pytest"),
        ("unittest.py", "python3 -m unittest"),
        ("mine/pytest/__init__.py", "PYTHONPATH=mine python3 -m pytest"),
        ("node_modules/.bin/jest", "npx jest"),
        (".venv/bin/pytest", "uv run pytest"),
        ("mine/activate", ". mine/activate; pytest"),
    ],
)
def test_a_runner_that_was_made_since_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, command: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    place = tmp_path / made
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    begun_s = place.stat().st_ctime - 0.001
    os.utime(place, (0, 0))  # its own time is no proof
    assert made in new_program(command, tmp_path, begun_s)
    assert not new_program(command, tmp_path, time.time() + 1)
    assert not new_program(f"{command} || true", tmp_path, begun_s)


def _ran(passed: int, skipped: int = 0, *changed: FileLines) -> CallEffects:
    return CallEffects(touched=changed, tests=TestCounts("pytest", passed, 0, skipped, direct=True))


@pytest.mark.parametrize(
    ("effects", "why"),
    [
        ([_ran(3)], ""),
        ([_ran(3), _ran(4)], ""),
        ([_ran(4), _ran(3)], "tests that ran: 3, before: 4"),
        ([_ran(3, 1), CallEffects(edits=(FileLines("tests/test_a.py", 1, 0),)), _ran(3, 1)], ""),
        ([CallEffects(edits=(FileLines("tests/test_a.py", 1, 0),)), _ran(3, 1)], "tests that are skipped: 1"),
        ([CallEffects(edits=(FileLines("a.py", 0, 9),)), _ran(3, 1)], ""),
        ([CallEffects(touched=(FileLines("tests/test_a.py", 0, 9),)), _ran(3)], "test files lost 9 lines"),
        (
            [
                CallEffects(touched=(FileLines("test_a.py", 0, 9), FileLines("tests/test_a.py", 9, 0))),
                _ran(3),
            ],
            "",
        ),
    ],
)
def test_what_was_lost_of_the_tests(effects: list[CallEffects], why: str) -> None:
    claimed = [one.tests for one in effects[-1:] if one.tests is not None]
    assert lost_tests(claimed, effects).startswith(why) and bool(why) == bool(lost_tests(claimed, effects))


@pytest.mark.parametrize(("answer", "state"), [("accept", "achieved"), (None, "budget")])
def test_fewer_tests_are_for_the_person_to_accept(tmp_path: Path, answer: str | None, state: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_a.py").write_text(f"{_TEST}    def test_b(self): assert False\n")
    command = "python3 -m unittest test_a"
    script = [
        call("write_file", path="test_a.py", content=_TEST),
        call("terminal", command=command),
        finish(claim("tests", command, "Ran 1 test")),
        ANSWER,
    ]
    person = Judge(answer)
    ended = asyncio.run(pursue(tmp_path, script, GoalWish("green", steps=len(script)), person))
    assert ended.goal.state == state
    assert ["test files lost 1 lines" in one for one in person.questions] == [True]
