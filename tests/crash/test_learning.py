"""kill -9 at the steps of learning: ledger and files agree afterwards, and each call took effect once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def killed_everywhere(folder: Path, every: int) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.crash.learning_driver", str(folder), str(every)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(points: list[dict[str, object]]) -> None:
    whole, *others = points
    assert whole["steps"] > 60  # type: ignore[operator]
    assert sum(not point["lived"] for point in others) >= 5
    for point in others:
        assert point["disagree"] == [], point
        for fact in ("rows", "memory", "skill", "litter"):
            assert point[fact] == whole[fact], (point["at"], fact, point[fact])


@pytest.mark.slow
def test_ledger_and_files_agree_after_kill_9(tmp_path: Path) -> None:
    check(killed_everywhere(tmp_path, 11))


@pytest.mark.soak
def test_ledger_and_files_agree_after_kill_9_at_every_step(tmp_path: Path) -> None:
    check(killed_everywhere(tmp_path, 1))
