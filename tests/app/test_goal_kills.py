"""A goal survives kill -9 at any point: none is lost, and no round is asked for twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, shell
from whet.clock import SystemClock
from whet.store import goals, sessions
from whet.store.database import StateDatabase
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

_CHECK = 'test "$(grep -c . rounds.txt)" -ge 2\n'
_ROOT = Path(__file__).parents[2]


def _child(folder: Path, base_url: str, at: int) -> int:
    command = [sys.executable, "-m", "tests.app.goal_child", str(folder), base_url, str(at)]
    return subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, timeout=120).returncode


def survives(folder: Path, kills: list[int]) -> None:
    """Kill a goal's program at these events, then have it end."""
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "check.sh").write_text(_CHECK)
    replies: list[ScriptedReply] = []
    for _ in range(len(kills) + 4):
        replies += [shell("echo round >> rounds.txt"), ANSWER]
    with PracticeServer(script=replies) as server:
        for at in kills:
            assert _child(folder, server.base_url, at) in (-signal.SIGKILL, 0)
        assert _child(folder, server.base_url, 0) == 0
    database = StateDatabase.open(folder / "home" / "state.db", SystemClock())
    goal_rows = database.read_now(goals.list_goals)
    assert [goal_row.state for goal_row in goal_rows] == ["achieved"]
    (goal,) = goal_rows
    key = database.read_now(lambda db: sessions.key_of(db, goal.session))
    turns = database.read_now(
        lambda db: next(db.execute("SELECT count(*) FROM turns WHERE session = ?", (key,)))[0]
    )
    assert turns == goal.round == goal.asked
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 5])
def test_a_goal_goes_on_where_a_kill_left_it(tmp_path: Path, at: int) -> None:
    survives(tmp_path, [at])


@pytest.mark.soak
def test_a_hundred_kills_lose_no_goal_and_double_none(tmp_path: Path) -> None:
    chance = random.Random(11)
    for number in range(50):
        survives(tmp_path / str(number), [chance.randint(1, 12), chance.randint(1, 12)])
