"""Many one-shots at once on a home that does not exist yet: each creates, or waits, and all are answered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.running import flags, start
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet_lab.practice.server import PracticeServer


def _ask_at_once(folder: Path, count: int) -> list[tuple[int, str]]:
    """Return the exit code and the last line on standard error of each one-shot that was not answered."""
    with PracticeServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "WHET_HOME", str(folder / "home"))
        arguments = ["chat", "--json", *flags(server), "-q"]
        running = [start([*arguments, f"word {number}"], folder) for number in range(count)]
        ends = [process.communicate() for process in running]
    return [
        (process.returncode, err.decode()[-300:])
        for number, (process, (out, err)) in enumerate(zip(running, ends, strict=True))
        if process.returncode or f"word {number}" not in json.loads(out)["text"]
    ]


def _count_sessions(home: Path) -> int:
    database = StateDatabase.open(home / "state.db", SystemClock())
    ((count,),) = database.read_now(
        lambda db: db.execute(
            "SELECT count(DISTINCT session) FROM turns WHERE reason = 'answered'"
        ).fetchall()
    )
    database.close()
    return count


@pytest.mark.slow
def test_one_shots_at_once_on_a_new_home_are_all_answered(tmp_path: Path) -> None:
    assert _ask_at_once(tmp_path, 8) == []
    assert _count_sessions(tmp_path / "home") == 8


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_fifty_one_shots_at_once_on_a_new_home_are_all_answered(tmp_path: Path, number: int) -> None:
    assert _ask_at_once(tmp_path, 50) == [], f"round {number}"
    assert _count_sessions(tmp_path / "home") == 50
