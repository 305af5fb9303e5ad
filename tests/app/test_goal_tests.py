"""What a claimed run of tests is worth: its runner was there before the goal, and no test was lost."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.app.goal_runs import Judge, claim, finish, pursue
from tests.rewind.running import ANSWER, call
from whet.contract.receipts import CallEffects, FileLines, TestCounts
from whet.goals.test_proof import describe_lost_tests, find_new_program, make_test_command
from whet.goals.text import GoalWish

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
    path = tmp_path / made
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    begun_s = path.stat().st_ctime - 0.001
    os.utime(path, (0, 0))  # its own time is no proof
    assert made in find_new_program(command, tmp_path, begun_s)
    assert not find_new_program(command, tmp_path, time.time() + 1)
    assert made in find_new_program(make_test_command(f"{command} || true", tmp_path), tmp_path, begun_s)


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("pip install -e . && pytest -q", "pytest -q"),
        (
            "set -o pipefail; python -m pytest -k 'a | b' 2>&1 | tee log",
            "set -o pipefail && python -m pytest -k 'a | b'",
        ),
        ("pytest || true", "pytest"),
        ("(cd sub; uv run pytest -q) && echo ok", "cd sub && uv run pytest -q"),
        (
            "source .venv/bin/activate\npip install x\npytest tests # all",
            "source .venv/bin/activate && pytest tests",
        ),
        ("cargo build && cargo test --all", "cargo test --all"),
        ("cd web && npm ci && npx jest", "cd web && npx jest"),
        ("go vet ./... && go test ./...", "go test ./..."),
        ("npm ci && npm test", "npm test"),
        ("npm run check | cat", "npm run check"),
        ("make test", "make test"),
        ("make", "make"),
        ("make -j8 all 2>&1 | tail", "make -j8 all"),
        ("cd py && tox -e py311", "cd py && tox -e py311"),
        # what no test runner would run, or not as the workspace says
        ("make log", ""),
        ("npm run log", ""),
        ("npm run none", ""),
        ("make test PYTHON=./mine", ""),
        ("PYTHON=./mine make test", ""),
        ("export PYTHON=./mine && make test", ""),
        ("make -f mine test", ""),
        ("npm test --script-shell ./mine", ""),
        ("cd web && make test", ""),
        ("PATH=mine pytest; true", ""),
        ("cat log", ""),
        # text that was no command
        ("cat > run.sh <<E\npytest\nE", ""),
        ("echo '; pytest'", ""),
        ("ls # ; pytest", ""),
        ("run() { pytest; }; true", ""),
        ("echo $(pytest)", ""),
    ],
)
def test_the_part_that_runs_tests_is_taken_out_of_a_command(tmp_path: Path, command: str, part: str) -> None:
    (tmp_path / "Makefile").write_text(
        "PYTHON ?= python3\n.PHONY: test\nall: lint test\ntest: made\n\t@$(PYTHON) -m pytest $(ARGS)\n"
        "made lint:\n\ttrue\nlog:\n\tcat log\n"
    )
    scripts = {"test": "jest", "check": "tsc && jest", "log": "cat log"}
    (tmp_path / "package.json").write_text(json.dumps({"scripts": scripts}))
    (tmp_path / "py").mkdir()
    (tmp_path / "py" / "tox.ini").write_text("[testenv]\ncommands = pytest {posargs}\n")
    (tmp_path / "web").mkdir()
    expected = f"cd {shlex.quote(str(tmp_path))} && {part}" if part else ""
    assert make_test_command(command, tmp_path) == expected


@pytest.mark.slow
@pytest.mark.parametrize("made_during_the_goal", [False, True])
def test_a_task_that_is_older_than_the_goal_proves_tests(
    tmp_path: Path, *, made_during_the_goal: bool
) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    (tmp_path / "work").mkdir()
    makefile = "test:\n\tpython3 -m unittest test_a\n"
    if not made_during_the_goal:
        (tmp_path / "work" / "Makefile").write_text(makefile)
    script = [
        call("write_file", path="test_a.py", content=_TEST),
        *([call("write_file", path="Makefile", content=makefile)] if made_during_the_goal else []),
        call("terminal", command="make test"),
        finish(claim("tests", "make test", "Ran 1 test")),
        ANSWER,
    ]
    ended = asyncio.run(pursue(tmp_path, script, GoalWish("Make all tests pass.", steps=len(script))))
    assert ended.goal.state == ("budget" if made_during_the_goal else "achieved"), ended.goal.said
    assert ("Makefile was made or changed" in ended.goal.said) == made_during_the_goal


@pytest.mark.slow
def test_tests_that_fail_when_whet_runs_them_itself_end_no_goal(tmp_path: Path) -> None:
    command = "python3 -m unittest test_a; true"
    rounds = [
        (
            call("write_file", path="test_a.py", content=text),
            call("terminal", command=command),
            finish(claim("tests", command, "Ran 1 test")),
            ANSWER,
        )
        for text in (f"{_TEST}import atexit, os\natexit.register(os._exit, 3)\n", _TEST)
    ]
    script = [reply for one in rounds for reply in one]
    wish = GoalWish(_GREEN, steps=len(script))
    ended = asyncio.run(pursue(tmp_path, script, wish, Judge("accept")))
    assert (ended.goal.state, ended.goal.round) == ("achieved", 2), ended.goal.said


_GREEN = "Make all tests of test_a.py pass."
_PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
_PLUGIN = (
    "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    (yield).get_result().outcome = 'passed'\n"
)
_EASED = {
    "test_a.py": f"{_TEST}    def test_b(self): self.assertEqual(1, 2)\n",
    "Makefile": "include what.mk\ntest:\n\tpython3 -m unittest $(WHAT)\n",
    "what.mk": "WHAT = test_a\n",
    "test_easy.py": _TEST,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "command"),
    [
        ("sed -i 's/(1, 2)/(1, 1)/' test_a.py", "python3 -m unittest test_a"),
        (
            "sed -i 's/    def test_b/    @unittest.expectedFailure\\n    def test_b/' test_a.py",
            "python3 -m unittest test_a",
        ),
        ("sed -i 's/def test_b/def try_b/' test_a.py", "python3 -m unittest"),
        ("echo WHAT = test_easy > what.mk", "make test"),
        (f"cat > easy.py <<END\n{_PLUGIN}END", f"PYTHONPATH=. {_PYTEST} -p easy test_a.py"),
    ],
)
def test_tests_that_pass_only_with_other_files_than_the_programs_are_asked_about(
    tmp_path: Path, made: str, command: str
) -> None:
    for name, text in _EASED.items():
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    script = [
        call("terminal", command=made),
        call("terminal", command=command),
        finish(claim("tests", command, "passed" if "pytest" in command else "OK")),
        ANSWER,
    ]
    nobody = Judge()
    text = _GREEN if "test_a" in command else "Make all tests pass."
    ended = asyncio.run(pursue(tmp_path, script, GoalWish(text, steps=len(script)), nobody))
    assert ended.goal.state == "budget" and len(nobody.questions) == 1, ended.goal.said


@pytest.mark.slow
def test_new_tests_beside_those_that_were_there_are_no_question(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_a.py").write_text(_TEST)
    command = "python3 -m unittest test_a test_new"
    script = [
        call("write_file", path="test_new.py", content=_TEST),
        call("write_file", path="notes.md", content="new\n"),
        call("terminal", command=command),
        finish(claim("tests", command, "Ran 2 tests")),
        ANSWER,
    ]
    nobody = Judge()
    ended = asyncio.run(pursue(tmp_path, script, GoalWish(_GREEN, steps=len(script)), nobody))
    assert ended.goal.state == "achieved" and not nobody.questions, ended.goal.said


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
    claimed = [effect.tests for effect in effects[-1:] if effect.tests is not None]
    assert describe_lost_tests(claimed, effects).startswith(why) and bool(why) == bool(
        describe_lost_tests(claimed, effects)
    )


@pytest.mark.slow
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
    ended = asyncio.run(pursue(tmp_path, script, GoalWish(_GREEN, steps=len(script)), person))
    assert ended.goal.state == state
    assert ["test_a.py (changed)" in question for question in person.questions] == [True]
