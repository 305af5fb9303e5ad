"""Goals, the wallet and helpers under liars, races and kills: what the long tests count, as rows."""

from __future__ import annotations

import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
from tests.app import test_goal_kills, test_goal_liars, test_helper_kills
from tests.app.helper_edits import edit_together
from tests.app.helper_runs import mind
from tests.store import test_wallet

from benchmarks.table import Row
from whet.cli import cost
from whet.clock import SystemClock, iso
from whet.config.schema import WalletSettings
from whet.contract.messages import Usage
from whet.store import sessions, turns
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.turns import TurnRecord
from whet_lab.practice.server import PracticeServer


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
    with (
        PracticeServer(responder=mind) as server,
        tempfile.TemporaryDirectory(prefix="whet-bench-") as folder,
    ):
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


_FIRST_DAY = datetime(2026, 8, 3, tzinfo=UTC)
_HISTORY_DAYS = 28
_JUDGED_DAYS = 140
_FORECAST_AT = (10, 12, 14, 16)
_INPUT, _CACHED, _OUTPUT = 3e-6, 0.3e-6, 15e-6
"""USD per token."""


def run_forecast(runs: int, full: bool) -> list[Row]:
    """What `whet cost` says that a day will come to, at four times of working days of 50 turns."""
    missed = {hour: [] for hour in _FORECAST_AT}  # type: dict[int, list[float]]
    with tempfile.TemporaryDirectory(prefix="whet-bench-") as folder:
        database = StateDatabase.open(Path(folder) / "state.db", SystemClock())
        try:
            for number in range(_HISTORY_DAYS + _JUDGED_DAYS):
                day, done = _FIRST_DAY + timedelta(days=number), _turns_of(number)
                said, spent = dict[float, float](), 0.0
                for hour in (*_FORECAST_AT, 23.99):
                    now = day + timedelta(hours=hour)
                    some = [one for one in done if one[0] < now]
                    done = [one for one in done if one not in some]
                    database.write_now(lambda db, some=some: _keep(db, some))
                    found = database.read_now(
                        lambda db, now=now: cost.build_report(db, WalletSettings(), now, 7)
                    )
                    assert found.forecast_usd is not None and found.today_usd is not None  # all are priced
                    said[hour], spent = found.forecast_usd, found.today_usd
                if number >= _HISTORY_DAYS and day.weekday() < 5:
                    for hour, errors in missed.items():
                        errors.append(said[hour] / spent - 1)
        finally:
            database.close()
    every = [error for errors in missed.values() for error in errors]
    off = statistics.mean(every)
    figure = ", ".join(
        f"{hour}:00 {statistics.median(map(abs, errors)):.0%}" for hour, errors in missed.items()
    )
    return [
        _row(
            "forecast", f"forecast against spent, {len(missed[10])} days of 50 turns: median miss at",
            "≤ 20 %", f"{figure}; mean {off:+.0%}",
            all(statistics.median(map(abs, errors)) <= 0.2 for errors in missed.values()), "forecast",
        )
    ]  # fmt: skip


_Turn = tuple[datetime, str, int, float]


def _turns_of(number: int) -> list[_Turn]:
    """Give a day's turns as (when, session, number, USD): 50 on a working day, few on others; in bursts
    around ten, half past two and five, each a session that grows, mostly from the cache; the last is long."""
    chance = random.Random(number)
    day = _FIRST_DAY + timedelta(days=number)
    is_working = day.weekday() < 5
    left = 50 if is_working else chance.randint(0, 12)
    made: list[_Turn] = []
    while left:
        name, context = f"d{number}n{left}", chance.uniform(5e3, 4e4)
        hours = chance.choice((chance.gauss(10, 1), chance.gauss(14.5, 1.5), chance.gauss(17, 1)))
        hours = max(0.1, hours if is_working else chance.uniform(11, 22))
        for turn in range(1, 1 + min(left, chance.randint(2, 12))):
            left -= 1
            hours = min(23.9, hours + chance.expovariate(15))
            usd, is_warm = 0.0, turn > 1 and chance.random() < 0.85
            for _ in range(1 + int(chance.expovariate(0.25))):
                read = context * (0.92 if is_warm else 0.0)
                usd += (context - read) * _INPUT + read * _CACHED + chance.expovariate(1 / 600) * _OUTPUT
                context, is_warm = context + chance.expovariate(1 / 1_500), True
            made.append((day + timedelta(hours=hours), name, turn, usd))
    *others, last = sorted(made) or [(day, "", 0, 0.0)]
    return [*others, (*last[:3], 3 * last[3])] if last[1] else []


def _keep(connection: apsw.Connection, made: list[_Turn]) -> None:
    for at, name, number, usd in made:
        if number == 1:
            sessions.create(connection, NewSession(id=name, title=""), iso(at))
        key, record = sessions.key_of(connection, name), TurnRecord(f"{name}t{number}", name, number, iso(at))
        record.usage = Usage(cost_usd=usd)
        turns.begin_turn(connection, key, record)
        turns.end_turn(connection, key, record, "answered", "", iso(at))


def _kill_goals(folder: Path, kills: int) -> None:
    chance = random.Random(11)
    for number in range(kills // 2):
        test_goal_kills.survives(folder / str(number), [chance.randint(1, 12), chance.randint(1, 12)])
