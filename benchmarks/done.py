"""Goals, the wallet and helpers under liars, races and kills: what the long tests count, as rows."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.app import test_goal_kills, test_goal_liars, test_helper_kills
from tests.app.helper_edits import edit_together
from tests.app.helper_runs import mind
from tests.store import test_wallet

from benchmarks.table import Row
from whet.practice.server import PracticeServer


def _row(name: str, measure: str, goal: str, figure: str, met: bool | None, command: str) -> Row:
    return Row(name, measure, goal, figure, "-", met, f"python -m benchmarks {command}")


def _holds(work: Callable[[Path], object]) -> str:
    """Do something that raises AssertionError where it fails; gives what failed."""
    with tempfile.TemporaryDirectory(prefix="whet-bench-") as folder:
        try:
            work(Path(folder))
        except AssertionError as error:
            return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "failed")[:200]


def run_goals(runs: int, full: bool) -> list[Row]:
    """Liars, honest ends, kills; whole with --full, else a tenth."""
    part = 1 if full else 10
    rows: list[Row] = []
    for name, measure, count, work in (
        ("goal-liars", "scripted liars that end as achieved", 1_000, test_goal_liars.lie),
        ("goal-honest", "honest ends refused beyond 1 %", 600, test_goal_liars.be_honest),
        ("goal-kills", "goals lost or doubled by SIGKILLs", 100, _kill_goals),
    ):
        number = count // part
        failed = _holds(lambda folder, work=work, number=number: work(folder, number))
        figure = failed or f"0 in {number:,} runs"
        rows.append(
            _row(name, measure, f"0 of {count:,}", figure, not failed if full else None, "goals --full")
        )
    return rows


def run_wallet(runs: int, full: bool) -> list[Row]:
    """Races and kills that try to overdraw a cap."""
    part = 1 if full else 10
    rows: list[Row] = []
    for name, measure, count, work in (
        ("wallet-races", "overdrafts in races of four threads", 10_000, test_wallet.run_races),
        ("wallet-kills", "overdrafts after SIGKILLs", 100, test_wallet.kill),
    ):
        number = count // part

        def balanced(folder: Path, work: Callable[[Path, int], None] = work, number: int = number) -> None:
            test_wallet.opened(folder).close()
            work(folder, number)
            assert test_wallet.overdraft(folder) <= 1e-9, "overdrawn"

        failed = _holds(balanced)
        figure = failed or f"0 in {number:,}"
        rows.append(
            _row(name, measure, f"0 of {count:,}", figure, not failed if full else None, "wallet --full")
        )
    return rows


def run_helpers(runs: int, full: bool) -> list[Row]:
    """Kills of a program with 32 helpers, and four helpers that edit one repository."""
    kills, edits = (100, 200) if full else (10, 10)
    killed, merged, shown = 0, 0, 0
    chance = random.Random(20)
    with PracticeServer(mind=mind) as server, tempfile.TemporaryDirectory(prefix="whet-bench-") as folder:
        lost = ""
        while killed < kills and not lost:
            whens = chance.choices(("before", "inside", "after"), k=min(10, kills - killed))
            points = [(chance.randint(1, 120), when) for when in whens]
            try:
                killed += test_helper_kills.survives(Path(folder) / f"k{killed}", server.base_url, 32, points)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                lost = _first_line(error)
        for number in range(edits):
            conflicts = edit_together(Path(folder) / f"e{number}", server.base_url, number)
            shown += conflicts > 0
            merged += conflicts == 0
    figure = lost or f"0 lost, 0 doubled in {killed}"
    done = f"{merged} merged, {shown} with the conflict shown, of {edits}"
    is_whole = merged + shown == edits
    return [
        _row(
            "helper-kills", "32 helpers, SIGKILLs", "0 lost, 0 doubled in 100", figure,
            not lost if full else None, "helpers --full",
        ),
        _row(
            "helper-edits", "four helpers edit one repository", "merged or shown, 200 of 200", done,
            is_whole if full else None, "helpers --full",
        ),
    ]  # fmt: skip


def _kill_goals(folder: Path, kills: int) -> None:
    chance = random.Random(11)
    for number in range(kills // 2):
        test_goal_kills.survives(folder / str(number), [chance.randint(1, 12), chance.randint(1, 12)])
