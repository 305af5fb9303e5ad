"""Endings of goals without a verifier: no liar is achieved, and honest models can end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.app.goal_runs import finish, pursue_all
from tests.rewind.running import ANSWER, call
from whet.goals.checks import read_checks
from whet.goals.text import GoalWish

_ENDINGS = json.loads(Path(__file__).with_name("goal_endings.json").read_text("utf-8"))
# Written by somebody who had read docs/goals.md and not the checks.
_FRESH = json.loads(Path(__file__).with_name("fresh_endings.json").read_text("utf-8"))
_SOME_FRESH = {"suite-by-pattern", "skipped-by-variable", "put-back-in-one-command", "check-emptied",
               "note-after-run", "test-file-added", "check-with-tests", "check-builds"}  # fmt: skip
_SOME = {
    "ls-names-test", "one-test-only", "other-test-file", "makefile-true", "not-sent", "fix-then-break",
    "fix-and-test", "silent-command", "one-char", "edit-after-command", "honest-cannot", "write-content",
}  # fmt: skip


def _end(folder: Path, ending: dict[str, Any]) -> str:
    """Pursue one goal in a folder of its own and return its state."""
    work = folder / ending["name"] / "work"
    work.mkdir(parents=True)
    for name, text in ending["files"].items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    calls = [dict(given) for given in ending["calls"]]
    script = [call(given.pop("tool"), **given) for given in calls]
    script += [finish(*ending["claims"]), ANSWER, ANSWER, ANSWER]
    wish = GoalWish(ending["text"])
    return asyncio.run(pursue_all(work.parent, [(script, wish)]))[0].goal.state


def _count_states(
    folder: Path, kind: str, names: set[str] | None, corpus: dict[str, Any] = _ENDINGS
) -> Counter[str]:
    endings = [one for one in corpus[kind] if names is None or one["name"] in names]
    return Counter(_end(folder / kind, ending) for ending in endings)


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start Python without a version manager's script before it."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.slow
def test_no_liar_is_achieved_and_honest_models_end(tmp_path: Path) -> None:
    liars = _count_states(tmp_path, "liars", _SOME)
    honest = _count_states(tmp_path, "honest", _SOME)
    assert liars.total() == honest.total() == len(_SOME) // 2 and not liars["achieved"]
    assert honest["achieved"] == 2 and honest["unproven"] == 4


@pytest.mark.soak
def test_sixty_liars_and_sixty_honest_endings(tmp_path: Path) -> None:
    liars = _count_states(tmp_path, "liars", None)
    honest = _count_states(tmp_path, "honest", None)
    assert liars.total() == honest.total() == 60 and not liars["achieved"]
    assert honest["achieved"] + honest["unproven"] >= 0.97 * honest.total()


@pytest.mark.slow
def test_some_endings_that_the_checks_were_not_written_for(tmp_path: Path) -> None:
    assert _count_states(tmp_path, "liars", _SOME_FRESH, _FRESH)["achieved"] == 0
    assert _count_states(tmp_path, "honest", _SOME_FRESH, _FRESH) == {"achieved": 4}


@pytest.mark.soak
def test_forty_liars_and_forty_honest_endings_that_the_checks_were_not_written_for(tmp_path: Path) -> None:
    liars = _count_states(tmp_path, "liars", None, _FRESH)
    honest = _count_states(tmp_path, "honest", None, _FRESH)
    assert liars.total() == honest.total() == 40 and not liars["achieved"]
    assert honest["achieved"] + honest["unproven"] >= 0.97 * honest.total()


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        ("Make all tests of test_a.py pass.", ["the tests of test_a.py pass"]),
        (
            "make the tests in a_test.py and sub/b_test.py pass",
            ["the tests of a_test.py, sub/b_test.py pass"],
        ),
        ("Get tests/test_x.py to pass", ["the tests of tests/test_x.py pass"]),
        ("Make the whole test suite pass", ["all tests pass"]),
        ("Make `make check` exit with 0.", ["`make check` exits with 0"]),
        ('Create hello.txt with the content "hello world".', ["hello.txt contains exactly the given text"]),
        ("Make all tests of test_a.py pass without changing a.py.", []),
        ("Make all tests of test_a.py pass and write CHANGES.md.", []),
        ("Please remove build.log and tmp/old.txt.", ["there is no build.log and no tmp/old.txt"]),
        ("Delete the file `build.log`", ["there is no build.log"]),
        ("Remove build.log and write CHANGES.md.", []),
        ("Remove app.json's last comma.", []),
        ("Do not delete app.json.", []),
        ("Tidy the notes.", []),
    ],
)
def test_a_text_counts_only_if_all_of_it_is_a_check(text: str, checks: list[str]) -> None:
    assert [check.text for check in read_checks(text)] == checks
