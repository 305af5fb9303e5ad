"""A verifier whose output shows failed tests, or none that passed, ends no goal, despite exit code 0."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.app.goal_runs import pursue_all
from tests.rewind.running import ANSWER
from whet.goals.text import GoalWish

_FILES = {
    "test_bad.py": "import unittest\nclass T(unittest.TestCase):\n"
    "    def test_a(self): self.assertEqual(1, 2)\n    def test_b(self): pass\n",
    "test_good.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n",
    "test_none.py": "# nothing yet\n",
    "many.py": "import sys\nfor number in range(100_000): print('line', number)\n",
    "run.sh": 'python3 -m unittest "$1" || true\n',
}


def _states(folder: Path, commands: list[str]) -> dict[str, str]:
    for name, text in _FILES.items():
        (folder / "work").mkdir(exist_ok=True)
        (folder / "work" / name).write_text(text)
    scripts = [([ANSWER], GoalWish("the tests pass", command)) for command in commands]
    return {done.goal.verify: done.goal.state for done in asyncio.run(pursue_all(folder, scripts))}


@pytest.mark.slow
def test_a_shown_failure_is_no_pass(tmp_path: Path) -> None:
    states = _states(
        tmp_path,
        [
            "python3 -m unittest test_bad 2>&1 | tail -5",
            "python3 -m unittest test_bad || true",
            "python3 -m unittest test_bad > log.txt 2>&1 || true",
            "python3 -m unittest test_bad 2>&1 | tail -1",
            "python3 -m unittest test_bad 2>&1 | tee log.txt >/dev/null",
            "python3 -m unittest test_none || true",
            "python3 -m unittest test_none 2>&1 | tail -5",
            "sh run.sh test_bad 2>&1 | cat",
            "sh run.sh test_none",
        ],
    )
    assert not {command: state for command, state in states.items() if state == "achieved"}


@pytest.mark.slow
def test_an_early_end_of_a_pipe_is_no_failure(tmp_path: Path) -> None:
    states = _states(
        tmp_path,
        [
            "python3 -m unittest test_good 2>&1 | tail -5",
            "python3 -m unittest test_good 2>&1 | grep -q OK",
            "python3 -m unittest test_good 2>&1 | tee log.txt",
            "! python3 -m unittest test_bad",
            "python3 -m unittest test_bad 2>&1 | grep -q failures=1",
            "python3 many.py 2>/dev/null | grep -q 'line 3'",
            "seq 1 1000000 | head -1",
            "ls nothing 2>/dev/null | wc -l | grep -qx 0",
        ],
    )
    assert not {command: state for command, state in states.items() if state != "achieved"}
