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
from whet.store.sessions import NewSession
from whet.store.wallet import Cap, PlannedCall

_AT = datetime(2026, 11, 22, tzinfo=UTC).isoformat()
_SCOPES = [("day", "2026-11-22"), ("session", "s")]
_CAPS = {"day": Cap(1.0, 0, "wallet.daily_usd"), "session": Cap(5.0, 90_000, "wallet.session_usd")}


def _asked(usd: float | None = 0.1, tokens: int = 100) -> PlannedCall:
    return PlannedCall("s", "turn", "m", usd, tokens, _AT)


def opened(path: Path) -> StateDatabase:
    return StateDatabase.open(path / "state.db", SystemClock())


def _reserve(database: StateDatabase, asked: PlannedCall) -> wallet.Reservation:
    return database.write_now(lambda db: wallet.reserve(db, asked, _SCOPES, _CAPS, 0.8))


def test_a_call_that_may_pass_a_cap_is_refused_before_it_and_reserves_nothing(db: StateDatabase) -> None:
    _reserve(db, _asked(0.95))
    with pytest.raises(BudgetReached) as refused:
        _reserve(db, _asked(0.06))
    assert "day's cap" in refused.value.message and refused.value.hint == "wallet.daily_usd"
    assert db.read_now(lambda c: wallet.read_spending(c, _SCOPES[1])) == (0.95, 100)


def test_settling_frees_what_was_not_spent_and_happens_once(db: StateDatabase) -> None:
    held = _reserve(db, _asked(0.9, 900))
    for _ in range(2):
        db.write_now(lambda c: wallet.settle(c, held.id, 0.25, 70))
    usd, tokens = db.read_now(lambda c: wallet.read_spending(c, _SCOPES[0]))
    assert (round(usd, 9), tokens) == (0.25, 70)
    assert db.read_now(wallet.read_open_reservations).count == 0


def test_an_answer_above_its_reservation_is_reserved_for_later_ones_and_fades(db: StateDatabase) -> None:
    def call(usd: float, tokens: int) -> None:
        held = _reserve(db, _asked(0.01, 100))
        db.write_now(lambda c: wallet.settle(c, held.id, usd, tokens, _asked(0.01, 100)))

    call(0.11, 10_100)
    held = _reserve(db, _asked(0.01, 100))
    usd, tokens = db.read_now(lambda c: wallet.read_spending(c, _SCOPES[1]))
    assert (round(usd, 9), tokens) == (0.22, 20_200)
    db.write_now(lambda c: wallet.settle(c, held.id, 0.0, 0))
    for _ in range(3):
        call(0.0, 0)
    assert db.read_now(lambda c: wallet.read_spending(c, ("overrun", "m")))[1] == 7_290


def test_answers_that_are_always_above_the_expected_cost_are_reserved_whole(db: StateDatabase) -> None:
    asked = _asked(0.01, 100)
    for _ in range(12):
        held = _reserve(db, asked)
        db.write_now(lambda c, number=held.id: wallet.settle(c, number, 0.03, 300, asked))
    _reserve(db, asked)
    assert db.read_now(lambda c: wallet.read_spending(c, _SCOPES[1]))[1] == 13 * 300


def test_a_call_waits_for_those_under_way_until_their_model_is_known(db: StateDatabase) -> None:
    asked = msgspec.structs.replace(_asked(0.1, 100), doubt=wallet.Doubt(0.5, 5_000, _AT))
    held = [_reserve(db, asked), _reserve(db, asked)]
    with pytest.raises(wallet.CallsUnderWay):
        _reserve(db, asked)
    db.write_now(lambda c: wallet.settle(c, held[0].id, 0.1, 90, asked))
    _reserve(db, asked)


def test_a_call_waits_for_living_calls_that_may_leave_room(db: StateDatabase) -> None:
    asked = msgspec.structs.replace(_asked(0.6, 1_000), doubt=wallet.Doubt(0.0, 0, _AT))
    other = _reserve(db, msgspec.structs.replace(asked, session="other"))
    with pytest.raises(wallet.CallsUnderWay):
        _reserve(db, asked)
    with pytest.raises(BudgetReached) as refused:
        _reserve(db, msgspec.structs.replace(asked, usd=1.1))
    assert type(refused.value) is BudgetReached, "the call has no room alone"
    db.write_now(lambda c: wallet.settle(c, other.id, 0.5, 900, asked))
    other = _reserve(db, msgspec.structs.replace(asked, session="other", usd=0.45))
    with pytest.raises(BudgetReached) as refused:
        _reserve(db, msgspec.structs.replace(asked, usd=0.2))
    assert type(refused.value) is BudgetReached, "the last call of the model cost as much as is reserved"


def _reserve_and_die(folder: Path, asked: PlannedCall) -> None:
    _reserve(opened(folder), asked)
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_call_of_a_killed_process_is_not_under_way(tmp_path: Path) -> None:
    """It counts as reserved, and later calls neither wait for it nor reserve what it may cost beyond that."""
    opened(tmp_path).close()
    asked = msgspec.structs.replace(_asked(0.3, 100), doubt=wallet.Doubt(0.5, 5_000, _AT))
    child = multiprocessing.get_context("fork").Process(
        target=_reserve_and_die, args=(tmp_path, msgspec.structs.replace(asked, session="other"))
    )
    child.start()
    child.join()
    database = opened(tmp_path)
    held = _reserve(database, asked)
    database.write_now(lambda c: wallet.settle(c, held.id, 0.3, 90, asked))
    assert database.read_now(wallet.read_open_reservations).count == 1
    with pytest.raises(BudgetReached) as refused:
        _reserve(database, msgspec.structs.replace(asked, usd=0.5))
    assert type(refused.value) is BudgetReached, "no call is under way that could leave room"
    database.close()


def test_a_sum_that_no_setting_caps_has_room_for_anything_and_is_near_nothing(db: StateDatabase) -> None:
    held = db.write_now(lambda c: wallet.reserve(c, _asked(900.0, 10**9), [("person", "ann")], {}, 0.8))
    assert held.near == ()
    assert db.read_now(lambda c: wallet.read_spending(c, ("person", "ann"))) == (900.0, 10**9)


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
    summed = database.read_now(lambda db: wallet.read_spending(db, _SCOPES[0]))[0]
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


@pytest.mark.parametrize(
    ("work", "count"),
    [
        pytest.param(run_races, 400, marks=pytest.mark.slow),
        pytest.param(kill, 4, marks=pytest.mark.slow),
        pytest.param(run_races, 10_000, marks=pytest.mark.soak),
        pytest.param(kill, 100, marks=pytest.mark.soak),
    ],
)
def test_no_race_or_kill_overdraws(tmp_path: Path, work: Callable[[Path, int], None], count: int) -> None:
    opened(tmp_path).close()
    work(tmp_path, count)
    assert overdraft(tmp_path) == 0.0


def test_a_goals_budget_counts_its_helpers_and_only_while_it_is_pursued(db: StateDatabase) -> None:

    def prepare(c: apsw.Connection) -> None:
        sessions.create(c, NewSession("root"), _AT)
        sessions.create(c, NewSession("helper", parent_session_id="root", kind="child"), _AT)
        goals.add(c, goals.GoalRow("g", "root", "x", "", {}, 0.5, 0, "running", 1, begun=_AT))

    def ask(c: apsw.Connection) -> wallet.Reservation:
        scopes = wallet.list_scopes(c, "helper", "2026-11-22")
        return wallet.reserve(c, _asked(0.4), scopes, {}, 0.8)

    db.write_now(prepare)
    db.write_now(ask)
    with pytest.raises(BudgetReached) as refused:
        db.write_now(ask)
    assert refused.value.hint == "--budget"
    assert db.read_now(lambda c: wallet.read_spending(c, ("session", "root"))) == (0.4, 100)
    db.write_now(lambda c: goals.end_goal(c, "g", "cancelled", "", _AT))
    db.write_now(ask)
    assert db.read_now(lambda c: wallet.read_spending(c, ("goal", "g"))) == (0.4, 100)
