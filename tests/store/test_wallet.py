"""Caps hold whoever asks: in races, after kills, and for what has no price."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec
import pytest

from whet.clock import SystemClock
from whet.contract.errors import BudgetReached
from whet.store import goals, sessions, wallet
from whet.store.database import StateDatabase
from whet.store.goals import GoalRow
from whet.store.sessions import NewSession
from whet.store.wallet import Asked, Cap

_AT = datetime(2026, 11, 22, tzinfo=UTC).isoformat()
_SCOPES = [("day", "2026-11-22"), ("session", "s")]
_CAPS = {"day": Cap(1.0, 0, "wallet.daily_usd"), "session": Cap(5.0, 90_000, "wallet.session_usd")}


def _asked(usd: float | None = 0.1, tokens: int = 100) -> Asked:
    return Asked("s", "turn", "m", usd, tokens, _AT)


def opened(path: Path) -> StateDatabase:
    return StateDatabase.open(path / "state.db", SystemClock())


def _reserve(database: StateDatabase, asked: Asked) -> wallet.Reserved:
    return database.write_now(lambda db: wallet.reserve(db, asked, _SCOPES, _CAPS, 0.8))


def test_a_call_that_may_pass_a_cap_is_refused_before_it_is_made_and_reserves_nothing(tmp_path: Path) -> None:
    database = opened(tmp_path)
    _reserve(database, _asked(0.95))
    with pytest.raises(BudgetReached) as refused:
        _reserve(database, _asked(0.06))
    assert "day's cap" in refused.value.message and refused.value.hint == "wallet.daily_usd"
    assert database.read_now(lambda db: wallet.spent(db, _SCOPES[1])) == (0.95, 100)
    database.close()


def test_settling_frees_what_was_not_spent_and_happens_once(tmp_path: Path) -> None:
    database = opened(tmp_path)
    held = _reserve(database, _asked(0.9, 900))
    for _ in range(2):
        database.write_now(lambda db: wallet.settle(db, held.id, 0.25, 70))
    usd, tokens = database.read_now(lambda db: wallet.spent(db, _SCOPES[0]))
    assert (round(usd, 9), tokens) == (0.25, 70)
    assert database.read_now(wallet.unsettled) == 0
    database.close()


def test_what_is_near_its_cap_says_so_once_before_it_stops(tmp_path: Path) -> None:
    database = opened(tmp_path)
    told = [line for _ in range(10) for line in _reserve(database, _asked()).near]
    assert len(told) == 1 and "day's cap is near: $0.80 of $1.00" in told[0]
    with pytest.raises(BudgetReached):
        _reserve(database, _asked())
    database.close()


def test_it_is_said_before_a_call_that_has_no_room_however_little_is_spent(tmp_path: Path) -> None:
    database = opened(tmp_path)
    told: list[str] = []
    with pytest.raises(BudgetReached):
        for _ in range(9):
            held = _reserve(database, msgspec.structs.replace(_asked(0.5), prompt_tokens=50))
            told += held.near
            database.write_now(lambda db, held=held: wallet.settle(db, held.id, 0.2, 60))
    assert len(told) == 1 and "$0.40 of $1.00 is spent, the next call may have no room" in told[0]
    database.close()


def test_tokens_cap_what_has_no_price(tmp_path: Path) -> None:
    database = opened(tmp_path)
    _reserve(database, _asked(None, 60_000))
    with pytest.raises(BudgetReached, match=r"90,000 tokens"):
        _reserve(database, _asked(None, 60_000))
    database.close()


def _race(folder: Path, tries: int, seed: int) -> None:
    database, chance = opened(folder), random.Random(seed)
    for _ in range(tries):
        try:
            held = _reserve(database, _asked(chance.choice((0.01, 0.03))))
        except BudgetReached:
            continue
        if chance.random() < 0.9:
            real = chance.uniform(0, 0.01)
            database.write_now(lambda db, held=held, real=real: wallet.settle(db, held.id, real, 3))
    database.close()


def overdraft(folder: Path) -> float:
    """Give how far the sums are above the cap, checked against the calls themselves."""
    database = opened(folder)
    summed = database.read_now(lambda db: wallet.spent(db, _SCOPES[0]))[0]
    real = database.read_now(lambda db: next(db.execute("SELECT coalesce(sum(usd), 0) FROM wallet_calls")))[0]
    database.close()
    assert abs(summed - real) < 1e-6
    return max(0.0, real - 1.0)


def run_races(folder: Path, tries: int) -> None:
    threads = [threading.Thread(target=_race, args=(folder, tries // 4, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kill(folder: Path, rounds: int) -> None:
    context = multiprocessing.get_context("fork")
    chance = random.Random(7)
    for number in range(rounds):
        child = context.Process(target=_race, args=(folder, 5_000, number))
        child.start()
        child.join(chance.uniform(0.01, 0.08))
        if child.pid is not None and child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()


@pytest.mark.parametrize(("work", "count"), [(run_races, 400), (kill, 4)])
def test_races_and_kills_never_overdraw(
    tmp_path: Path, work: Callable[[Path, int], None], count: int
) -> None:
    opened(tmp_path).close()
    work(tmp_path, count)
    assert overdraft(tmp_path) == 0.0


@pytest.mark.soak
@pytest.mark.parametrize(("work", "count"), [(run_races, 10_000), (kill, 100)])
def test_ten_thousand_races_and_a_hundred_kills_never_overdraw(
    tmp_path: Path, work: Callable[[Path, int], None], count: int
) -> None:
    opened(tmp_path).close()
    work(tmp_path, count)
    assert overdraft(tmp_path) == 0.0


def test_a_goals_budget_counts_its_helpers_and_only_while_it_is_pursued(tmp_path: Path) -> None:
    database = opened(tmp_path)

    def prepare(db: apsw.Connection) -> None:
        sessions.create(db, NewSession("root"), _AT)
        sessions.create(db, NewSession("helper", parent_session_id="root", kind="child"), _AT)
        goals.add(db, GoalRow("g", "root", "x", "", {}, 0.5, 0, "running", 1, begun=_AT))

    def ask(db: apsw.Connection) -> wallet.Reserved:
        scopes = wallet.scopes_of(db, "helper", "2026-11-22")
        return wallet.reserve(db, _asked(0.4), scopes, {}, 0.8)

    database.write_now(prepare)
    database.write_now(ask)
    with pytest.raises(BudgetReached) as refused:
        database.write_now(ask)
    assert refused.value.hint == "--budget"
    assert database.read_now(lambda db: wallet.spent(db, ("session", "root"))) == (0.4, 100)
    database.write_now(lambda db: goals.end(db, "g", "cancelled", "", _AT))
    database.write_now(ask)
    assert database.read_now(lambda db: wallet.spent(db, ("goal", "g"))) == (0.4, 100)
    database.close()
