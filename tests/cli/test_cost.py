"""`whet cost` and the wallet of a running program."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.app.opened import ask, open_app, practice_model
from tests.cli.running import run
from tests.rewind.running import ANSWER, Consenting
from tests.support import noon_zone
from whet.cli import stored
from whet.cli.cost import build_report, estimate_rest_of_day
from whet.clock import SystemClock, iso, local_time
from whet.config.paths import Home
from whet.config.schema import AgentSettings, WalletSettings
from whet.contract.events import Event, Notice, TurnEnd
from whet.contract.messages import Usage
from whet.serve.board import shown
from whet.store import wallet
from whet.store.database import StateDatabase
from whet.terminal.output import usage_cost
from whet.terminal.wording import footer
from whet_lab.practice.server import PracticeServer


def test_the_rest_of_a_day_is_forecast_within_a_fifth() -> None:
    chance = random.Random(3)
    first = datetime(2026, 11, 1, tzinfo=UTC)
    days = [
        [
            (first + timedelta(days=day, seconds=chance.uniform(30_000, 70_000)), chance.uniform(0.01, 0.05))
            for _ in range(50)
        ]
        for day in range(8)
    ]
    now = first + timedelta(days=7, seconds=45_000)
    total = sum(usd for at, usd in days[7] if at <= now)
    total += estimate_rest_of_day([turn for day in days[:7] for turn in day], now)
    assert total == pytest.approx(sum(usd for _, usd in days[7]), rel=0.2)


def test_working_days_are_forecast_from_working_days_and_weekends_from_weekends() -> None:
    monday = datetime(2026, 11, 2, 18, tzinfo=UTC)
    days = [(monday + timedelta(days=day), 1.0 if day % 7 > 4 else 5.0) for day in range(14)]
    friday, saturday = monday.replace(day=20, hour=9), monday.replace(day=21, hour=9)
    assert (estimate_rest_of_day(days, friday), estimate_rest_of_day(days, saturday)) == (5.0, 1.0)
    assert estimate_rest_of_day(days, friday.replace(hour=19)) == 0.0
    assert estimate_rest_of_day(days[:5], saturday) == 5.0  # no weekend is known yet


def _run(folder: Path, caps: WalletSettings, turns: int) -> tuple[list[Event], tuple[float, int], int]:
    (folder / "work").mkdir(exist_ok=True)

    async def run(base_url: str) -> tuple[list[Event], tuple[float, int], int]:
        model = practice_model(base_url, "practice-echo")
        events: list[Event] = []
        agent = AgentSettings(time_zone=noon_zone())
        async with open_app(
            folder / "home", folder / "work", model, Consenting(), wallet=caps, agent=agent
        ) as app:
            session = await app.new_session()
            for _ in range(turns):
                await ask(session, "go", events)
            spent = app.database.read_now(lambda db: wallet.read_spending(db, ("session", session.id)))
            return events, spent, app.database.read_now(wallet.read_open_reservations).count

    with PracticeServer(script=[ANSWER] * turns) as server:
        return asyncio.run(run(server.base_url))


def test_a_turn_past_a_cap_fails_before_the_model_is_asked_and_says_which_cap(tmp_path: Path) -> None:
    events, spent, open_ = _run(tmp_path, WalletSettings(session_tokens=100), 1)
    (end,) = [event for event in events if isinstance(event, TurnEnd)]
    assert end.reason == "failed" and "session's cap" in end.error and "wallet.session_tokens" in end.hint
    assert (spent, open_) == ((0.0, 0), 0)


def test_calls_are_settled_at_what_they_took_and_a_near_cap_is_said(tmp_path: Path) -> None:
    caps = WalletSettings(session_tokens=1_000_000, near=0.000_01)
    events, spent, open_ = _run(tmp_path, caps, 2)
    ends = [event for event in events if isinstance(event, TurnEnd)]
    assert spent[1] == sum(end.usage.total_tokens for end in ends) > 0 and open_ == 0
    assert ["cap is near" in e.text for e in events if isinstance(e, Notice)] == [True]


def test_what_a_day_took_before_its_cap_was_set_counts(tmp_path: Path) -> None:
    before, _, _ = _run(tmp_path, WalletSettings(), 2)
    after, _, _ = _run(tmp_path, WalletSettings(daily_tokens=1_000_000), 1)
    tokens = [event.usage.total_tokens for event in [*before, *after] if isinstance(event, TurnEnd)]
    scope = ("day", local_time(SystemClock().now()).strftime("%Y-%m-%d"))
    spent = stored.read(Home(tmp_path / "home"), lambda db: wallet.read_spending(db, scope))
    assert len(tokens) == 3 and spent[1] == sum(tokens)
    full, _, _ = _run(tmp_path, WalletSettings(daily_tokens=sum(tokens) + 10), 1)
    (end,) = [event for event in full if isinstance(event, TurnEnd)]
    assert end.reason == "failed" and f"{sum(tokens):,} of {sum(tokens) + 10:,} tokens" in end.error


def test_costs_that_rest_on_an_estimate_are_marked() -> None:
    usage = Usage(total_tokens=100, cost_usd=0.5, estimated_tokens=40)
    end = TurnEnd("s", "t", "answered", "", 1, usage, 1.0)
    known = msgspec.structs.replace(usage, estimated_tokens=0)
    assert "~$0.50" in footer(end) and "~" not in footer(msgspec.structs.replace(end, usage=known))
    assert (usage_cost(usage), usage_cost(known), usage_cost(usage + known)) == ("~$0.50", "$0.50", "~$1.00")
    assert shown.usage_cost(usage) == "~$0.50" and shown.usage_cost(known) == "$0.50"


def test_without_caps_nothing_is_reserved(tmp_path: Path) -> None:
    _, spent, _ = _run(tmp_path, WalletSettings(), 1)
    assert spent == (0.0, 0)


@pytest.mark.slow
def test_a_call_that_a_kill_cut_off_counts_in_full_and_is_named(home: Path, tmp_path: Path) -> None:
    """A reservation that is never settled is what a kill in mid-stream leaves. The day is the owner's, here
    yesterday or tomorrow of UTC, and does not end meanwhile."""
    now = datetime.now(UTC)
    zone = "Etc/GMT+12" if now.hour < 11 else "Etc/GMT-14"
    day = local_time(now, zone).strftime("%Y-%m-%d")
    Home(home).ensure()
    (home / "config.yaml").write_text(f"wallet:\n  daily_usd: 1.0\nagent:\n  time_zone: {zone}\n")
    database = StateDatabase.open(Home(home).database, SystemClock())
    call = wallet.PlannedCall("s", "turn", "m", 0.94, 12_544, iso(now))
    database.write_now(lambda db: wallet.reserve(db, call, [("day", day)], {}, 1.0))
    old = msgspec.structs.replace(call, at=iso(now - timedelta(days=30)))
    database.write_now(lambda db: wallet.reserve(db, old, [("day", "2020-01-01")], {}, 1.0))
    database.close()
    code, out, _ = run(["cost"], tmp_path)
    assert code == 0 and "today $0.94" in out and "0.94 of 1, near its cap" in out, out
    assert "1 model call without a known end" in out and "counted in full: $0.94, 12,544 tokens" in out, out
    report = json.loads(run(["cost", "--json"], tmp_path)[1])
    names = ("today_usd", "unsettled", "unsettled_usd", "unsettled_tokens")
    assert [report[name] for name in names] == [0.94, 1, 0.94, 12_544]


@pytest.mark.slow
def test_imported_turns_whose_price_nobody_knows_are_no_cost_of_nothing(home: Path, tmp_path: Path) -> None:
    """Another agent's transcript has tokens and a model, and no price."""
    now = datetime.now(UTC)
    usage = {"input_tokens": 1_000, "output_tokens": 500}
    answer = {"role": "assistant", "content": "so", "id": "m1", "model": "claude-x", "usage": usage}
    fields = {"user": {"role": "user", "content": "why?"}, "assistant": answer}
    base = {"sessionId": "s-1", "cwd": str(tmp_path), "timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.000Z")}
    path = tmp_path / "theirs" / "projects" / "-w" / "s-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(
        "".join(json.dumps(base | {"type": kind, "message": m}) + "\n" for kind, m in fields.items())
    )
    assert run(["import", "claude-code", str(tmp_path / "theirs")], tmp_path)[0] == 0
    for command in (["sessions", "list"], ["sessions", "show", "s-1"], ["sessions", "stats"], ["cost"]):
        code, out, _ = run(command, tmp_path)
        priced = [line for line in out.splitlines() if "$0" in line and not line.startswith("today")]
        assert code == 0 and not priced and "?" in out, out
    report = stored.read(Home(home), lambda db: build_report(db, WalletSettings(), now, 7))
    assert (report.today_usd, report.forecast_usd, report.unpriced_turns) == (None, None, 1)
    tomorrow = now + timedelta(days=1)
    later = stored.read(Home(home), lambda db: build_report(db, WalletSettings(), tomorrow, 7))
    assert later.today_usd == 0
