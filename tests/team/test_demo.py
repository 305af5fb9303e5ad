"""The demo's chapter `team` shows what it claims."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_CHECKS = {
    "team_init",
    "killed_answered",
    "killed_by_another",
    "killed_ran_once",
    "stopped_answered",
    "stopped_by_another",
    "stopped_ran_once",
    "fence_refuses",
}


@pytest.mark.slow
def test_one_worker_is_killed_and_one_stopped_and_both_turns_are_answered() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "demo", "--chapter", "team", "--json"],
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"] and {check["name"] for check in shown["checks"]} == _CHECKS
