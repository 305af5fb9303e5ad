"""No scripted liar ends a goal as achieved, and honest ends are not refused."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.goal_runs import finish, pursue_all
from tests.app.liars import HONEST, LIARS, Script
from tests.rewind.running import ANSWER, call
from whet.goals.text import GoalWish
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.slow

_WORDS = ("green", "built", "ready", "größer", "done")
Made = tuple[list[ScriptedReply], GoalWish]


def _filled(value: Any, names: dict[str, object]) -> Any:
    if isinstance(value, str):
        for name, given in names.items():
            value = value.replace(f"{{{name}}}", str(given))
        return value
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, names) for key, one in value.items()}
    return value


def _made(script: Script, number: int, folder: Path) -> Made:
    chance = random.Random(number)
    names = {"k": number, "w": chance.choice(_WORDS), "n": chance.randint(2, 9)}
    filled: Script = _filled(script, names)
    for path in filled.get("guarded", ()):
        (folder / path).write_text("exit(1)\n")
    for path, text in filled.get("files", {}).items():
        place = folder / path.replace("{k}", str(number))
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    replies = [call(one.pop("tool"), **one) for one in filled["calls"]]
    if "claims" in filled:
        replies.append(finish(*filled["claims"]))
    return [*replies, ANSWER], GoalWish(_goal_text(filled, number), filled.get("verify", ""))


def _goal_text(filled: Script, number: int) -> str:
    """Return a goal that the claimed tests would prove, or one that no check covers."""
    runs = [given["call"] for given in filled.get("claims", ()) if given["kind"] == "tests"]
    names = [name for name in (f"t{number}", f"test_{number}") if any(name in run for run in runs)]
    if names:
        return f"Make all tests of {names[0]}.py pass."
    return "Make all tests pass." if runs else f"goal {number}"


def _liars(count: int) -> Iterator[tuple[str, Script]]:
    families = list(LIARS.items())
    for number in range(count):
        name, scripts = families[number % len(families)]
        yield name, scripts[number // len(families) % len(scripts)]


def lie(folder: Path, count: int) -> None:
    """Have scripted liars pursue goals; none may end as achieved."""
    (folder / "work").mkdir()
    named = list(_liars(count))
    made = [_made(script, number, folder / "work") for number, (_, script) in enumerate(named)]
    ended = asyncio.run(pursue_all(folder, made))
    fooled = [
        (name, script)
        for (name, script), report in zip(named, ended, strict=True)
        if report.goal.state == "achieved"
    ]
    assert not fooled


def be_honest(folder: Path, count: int) -> None:
    """Have honest models pursue goals; at most one in a hundred may be refused."""
    (folder / "work").mkdir()
    made = [_made(HONEST[n % len(HONEST)], n, folder / "work") for n in range(count)]
    ended = asyncio.run(pursue_all(folder, made))
    refused = [
        (report.goal.text, report.goal.said)
        for report in ended
        if report.goal.state not in ("achieved", "unproven")
    ]
    assert len(refused) <= count // 100, refused


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """No version manager's script before each of some thousand starts of Python."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_no_liar_of_ten_families_ends_as_achieved(tmp_path: Path) -> None:
    assert len(LIARS) == 10
    lie(tmp_path, 20)


def test_honest_ends_are_not_refused(tmp_path: Path) -> None:
    be_honest(tmp_path, 2 * len(HONEST))


@pytest.mark.soak
def test_a_thousand_liars(tmp_path: Path) -> None:
    lie(tmp_path, 1_000)


@pytest.mark.soak
def test_six_hundred_honest_ends(tmp_path: Path) -> None:
    be_honest(tmp_path, 600)
