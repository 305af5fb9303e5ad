"""`whet cost`: show the cost of model calls, a forecast for today, and the use of the caps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from statistics import mean

import apsw
import click
import msgspec

from whet.cli import stored
from whet.clock import SystemClock, iso, local_time, use_zone
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import WalletSettings
from whet.contract.texts import plural
from whet.providers.catalog import PRICES_AS_OF
from whet.store import costs, wallet
from whet.store.costs import Spending
from whet.store.database import has_store
from whet.terminal.output import Column, emit, emit_json, home_and_json, style_text, table
from whet.terminal.output import cost as as_usd
from whet.terminal.wording import count

_HISTORY_DAYS = 28
_FEW_DAYS = 3
_SATURDAY = 5


class CapUse(msgspec.Struct, frozen=True):
    """A cap and the amount of it that is spent or reserved."""

    setting: str
    used: float
    cap: float
    is_near: bool


class CostReport(msgspec.Struct, frozen=True):
    """The report of `whet cost`.

    `forecast_usd` is the expected cost of the whole day. It and `today_usd` are None if today has turns but
    the price of none is known. `unsettled` counts the calls of the reported days that still run or that a
    kill cut off; `unsettled_usd` and `unsettled_tokens` are the most that they can cost. `today_usd` and the
    caps include those of today.
    """

    today_usd: float | None
    forecast_usd: float | None
    days: list[Spending]
    models: list[Spending]
    caps: list[CapUse]
    unpriced_turns: int
    unsettled: int
    unsettled_usd: float
    unsettled_tokens: int
    prices_as_of: str = PRICES_AS_OF


_NOTHING_SPENT = CostReport(0.0, 0.0, [], [], [], 0, 0, 0.0, 0)


@click.command(help="Show what was spent, what the day will come to, and the caps.")
@click.option("--days", type=click.IntRange(1, 366), default=7, help="How many days back.")
@home_and_json
def cost(home: Home, days: int, as_json: bool) -> None:
    """Show the last days, each model, today's forecast, and the caps."""
    if not has_store(home):
        return emit(_NOTHING_SPENT, "Nothing was spent: no sessions yet. Begin one: whet", as_json=as_json)
    settings = load(home, {}, environ=os.environ).settings
    use_zone(settings.agent.time_zone)
    now = local_time(SystemClock().now())
    cost_report = stored.read(home, lambda db: build_report(db, settings.wallet, now, days))
    if as_json:
        return emit_json(cost_report)
    click.echo(table(cost_report.days, _make_columns("day")))
    click.echo(table(cost_report.models, _make_columns("model")))
    click.echo(f"today {as_usd(cost_report.today_usd)}, by its end about {as_usd(cost_report.forecast_usd)}")
    if cost_report.unsettled:
        sums = f"{as_usd(cost_report.unsettled_usd)}, {cost_report.unsettled_tokens:,} tokens"
        click.echo(
            f"{plural(cost_report.unsettled, 'model call')} without a known end (running, or cut off by a"
            f" kill), counted in full: {sums}"
        )
    for cap in cost_report.caps:
        line = f"{cap.setting}: {cap.used:,.2f} of {cap.cap:,.2f}".replace(".00", "")
        click.echo(style_text(f"{line}, near its cap", "yellow") if cap.is_near else line)
    if any(spending.estimated_tokens for spending in cost_report.models):
        click.echo("~: the server reported no tokens or too few, so Whet estimated some of them")
    if cost_report.unpriced_turns:
        click.echo(
            f"{cost_report.unpriced_turns} turns have no known price and are not in the sums (prices.csv)"
        )
    click.echo(f"list prices as of {cost_report.prices_as_of}; prices.csv in the home goes before them")


def build_report(
    connection: apsw.Connection, settings: WalletSettings, now: datetime, days: int
) -> CostReport:
    """Build the report for `now`, a local time."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = iso(midnight - timedelta(days=days - 1))
    turns = _read_turns(connection, iso(midnight - timedelta(days=_HISTORY_DAYS)), now)
    prices = [usd for at, usd in turns if at >= midnight]
    today = None if prices and not any(usd is not None for usd in prices) else sum(usd or 0 for usd in prices)
    if open_usd := wallet.read_open_reservations(connection, iso(midnight)).usd:
        today = (today or 0.0) + open_usd
    before = [(at, usd or 0.0) for at, usd in turns if at < midnight]
    unsettled = wallet.read_open_reservations(connection, since)
    models = costs.sum_spending(connection, "model", since)
    return CostReport(
        today,
        None if today is None else today + estimate_rest_of_day(before, now),
        costs.sum_spending(connection, "day", since),
        models,
        _read_caps(connection, settings, midnight),
        sum(group.unpriced for group in models),
        unsettled.count,
        unsettled.usd,
        unsettled.tokens,
    )


def estimate_rest_of_day(before: Sequence[tuple[datetime, float]], now: datetime) -> float:
    """Estimate today's further cost: the mean cost after this time of day on earlier days with turns.

    Weekends are compared only with weekends, and working days only with working days, if there are enough
    of them.
    """
    days: dict[date, float] = {}
    for at, usd in before:
        days[at.date()] = days.get(at.date(), 0.0) + (usd if at.time() > now.time() else 0.0)
    alike = [usd for day, usd in days.items() if _is_weekend(day) == _is_weekend(now)]
    amounts = alike if len(alike) >= _FEW_DAYS else list(days.values())
    return mean(amounts) if amounts else 0.0


def _is_weekend(day: date) -> bool:
    return day.weekday() >= _SATURDAY


def _read_turns(
    connection: apsw.Connection, since: str, now: datetime
) -> list[tuple[datetime, float | None]]:
    rows = connection.execute(
        "SELECT t.started, json_extract(t.usage, '$.cost_usd') FROM turns t"
        " WHERE t.started >= ? AND t.usage <> ''",
        (since,),
    )
    return [(datetime.fromisoformat(at).astimezone(now.tzinfo), usd) for at, usd in rows]


def _read_caps(connection: apsw.Connection, settings: WalletSettings, midnight: datetime) -> list[CapUse]:
    scope = ("day", midnight.strftime("%Y-%m-%d"))
    # The cap's own sum lacks the day's cost before the first call under that cap.
    stored = wallet.read_stored_spending(connection, scope, iso(midnight))
    usd, tokens = map(max, wallet.read_spending(connection, scope), stored)
    rows = [("wallet.daily_usd", usd, settings.daily_usd)]
    rows.append(("wallet.daily_tokens", float(tokens), float(settings.daily_tokens)))
    return [CapUse(name, used, cap, used >= cap * settings.near) for name, used, cap in rows if cap]


def _make_columns(title: str) -> list[Column[Spending]]:
    return [
        Column(title, lambda row: row.label, grows=True),
        Column("turns", lambda row: str(row.turns), right=True, rank=2),
        Column("tokens", lambda row: count(row.prompt_tokens + row.output_tokens), right=True, rank=1),
        Column("cost", _cost_text, right=True),
    ]


def _cost_text(row: Spending) -> str:
    """Format a group's cost. Turns without a known price are shown as unknown, not as free."""
    if row.unpriced >= row.turns:
        return as_usd(None)
    text = as_usd(row.cost_usd, is_estimate=bool(row.estimated_tokens))
    return f"{text} + ?" if row.unpriced else text
