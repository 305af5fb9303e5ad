"""How numbers, times and days stand on the pages, and which events a feed still has."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.support import each
from whet.contract.events import TextDelta
from whet.contract.messages import Usage
from whet.serve.board import charts, shown
from whet.serve.board.charts import Bar, Dot, Spot, Tick
from whet.serve.feed import Feed, FeedEvent, is_too_large
from whet.serve.team_feed import EventRow
from whet.stats import Interval
from whet.store.costs import Spending

NOW = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (812.4, "812"),
        (999, "999"),
        (1000, "1k"),
        (3_449, "3.4k"),
        (1e6, "1M"),
        (1.5e6, "1.5M"),
        (2e9, "2G"),
    ],
)
def test_numbers_are_written_short(number: float, written: str) -> None:
    assert shown.count(number) == written


@pytest.mark.parametrize(
    ("usd", "written"),
    [(None, "unknown"), (0, "$0.00"), (0.0123, "$0.0123"), (0.1, "$0.10"), (1234.5, "$1,234.50")],
)
def test_costs_have_four_places_where_they_are_small(usd: float | None, written: str) -> None:
    assert shown.cost(usd) == written


def test_what_was_spent_says_what_is_not_known() -> None:
    def spent(turns: int, cost_usd: float, unpriced: int) -> str:
        return shown.spending_cost(Spending("day", turns, 9, 0, 9, cost_usd, unpriced))

    assert shown.spending_cost(None) == spent(0, 0, 0) == "–"
    assert spent(2, 1.0, 0) == "$1.00" and spent(2, 1.0, 1) == "$1.00 + unknown"
    assert spent(2, 0, 2) == "unknown"
    assert shown.usage_cost(Usage()) == "–" and shown.usage_cost(Usage(cost_usd=0.5)) == "$0.50"
    assert shown.usage_cost(Usage(total_tokens=9, cost_usd=None)) == "unknown"


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (None, ""),
        (0.25, "250 ms"),
        (0.999, "999 ms"),
        (1, "1.0 s"),
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (125, "2 min 5 s"),
    ],
)
def test_spans_of_time(seconds: float | None, written: str) -> None:
    assert shown.duration(seconds) == written


@pytest.mark.parametrize(
    ("ago", "written"),
    [
        (timedelta(seconds=-5), "now"),
        (timedelta(seconds=59), "now"),
        (timedelta(seconds=60), "1 min ago"),
        (timedelta(seconds=3_599), "59 min ago"),
        (timedelta(hours=1), "1 h ago"),
        (timedelta(hours=23, minutes=59), "23 h ago"),
        (timedelta(days=1), "1 d ago"),
        (timedelta(days=29, hours=23), "29 d ago"),
        (timedelta(days=30), "2026-10-22"),
    ],
)
def test_how_long_ago_a_time_was(ago: timedelta, written: str) -> None:
    then = NOW - ago
    assert shown.age(then.isoformat(), NOW) == written
    assert shown.age(then.replace(tzinfo=None).isoformat(), NOW) == written, "a stored time is UTC"


def test_times_that_are_none_and_times_by_the_minute() -> None:
    assert shown.age("some day", NOW) == ""
    assert shown.moment("2026-11-21T09:05:33Z") == "2026-11-21 09:05"
    assert shown.moment("2026-11-21T09:05") == "2026-11-21 09:05"
    assert shown.moment("2026-11-21") == "2026-11-21"
    assert shown.clock_time(int(NOW.timestamp() * 1000) + 61_000) == "09:01:01"
    assert (
        shown.percent(0.256) == "26%"
        and shown.difference_with_interval(Interval(-0.1, -0.25, 0.05)) == "-10 (-25 to +5)"
    )


def test_a_line_is_cut_at_its_limit() -> None:
    assert shown.line("a\n  b") == "a b"
    assert shown.line("x" * 120) == "x" * 120 and shown.line("x" * 121) == "x" * 119 + "…"
    assert shown.line("abcdef", 3) == "ab…" and shown.line("a" + " " * 100 + "b", 10) == "a"


def test_a_share_is_written_with_its_range_and_a_text_cut_with_hidden_characters_spelled_out() -> None:
    assert shown.rate_with_interval(Interval(0.5, 0.25, 0.75)) == "50% (25% to 75%)"
    assert shown.text("a\u202eb") == "a<U+202E>b" and len(shown.text("x" * 30_000)) < 20_100


def test_a_difference_is_shown_with_two_lines_around_and_what_is_left_out_between() -> None:
    before = "\n".join(f"line {number}" for number in range(20))
    after = before.replace("line 3\n", "line 3 changed\n").replace("line 18", "line 18\u202e")
    rows = [(diff_line.kind, diff_line.mark, diff_line.text) for diff_line in shown.diff(before, after)]
    assert rows == [
        ("same", "", "line 1"),
        ("same", "", "line 2"),
        ("removed", "−", "line 3"),
        ("added", "+", "line 3 changed"),
        ("same", "", "line 4"),
        ("same", "", "line 5"),
        ("gap", "⋯", ""),
        ("same", "", "line 16"),
        ("same", "", "line 17"),
        ("removed", "−", "line 18"),
        ("added", "+", "line 18<U+202E>"),
        ("same", "", "line 19"),
    ]


def test_a_long_difference_is_cut_with_the_number_of_lines_left_out() -> None:
    diff_lines = shown.diff("", "\n".join("x" * 400))
    assert len(diff_lines) == 400 and diff_lines[-1].kind == "added"
    longer = shown.diff("", "\n".join("x" * 403))
    assert len(longer) == 401 and longer[-1].text == "3 more lines" and longer[-1].kind == "gap"


# Charts.


def test_the_days_up_to_today() -> None:
    assert charts.days_back(date(2026, 3, 1), 3) == ["2026-02-27", "2026-02-28", "2026-03-01"]


@each(
    ("most", "top"),
    [
        (0, 1),
        (-1, 1),
        (1, 1),
        (1.0005, 1),
        (1.1, 2),
        (2.5, 3),
        (4.2, 5),
        (5.5, 6),
        (7, 8),
        (9, 10),
        (10, 10),
        (450, 500),
        (0.07, 0.08),
    ],
)
def test_the_next_round_number_above(most: float, top: float) -> None:
    assert charts.nice_top(most) == pytest.approx(top)


def test_bars_stand_on_each_other_and_on_the_ground() -> None:
    chart = charts.draw_bars("T", ["2026-11-20", "2026-11-21"], [("a", "A", [1, 0]), ("b", "B", [1, 4])], str)
    # Two columns of 324 within 720 wide less 60 and 12; 160 high for a top of 4.
    assert chart.bars == (
        Bar(105.36, 132.0, 233.28, 40.0, "a"),
        Bar(105.36, 92.0, 233.28, 40.0, "b"),
        Bar(429.36, 12.0, 233.28, 160.0, "b"),
    )
    assert chart.rows == (Tick(172.0, "0.0"), Tick(92.0, "2.0"), Tick(12.0, "4.0"))
    assert chart.columns == (Tick(222.0, "11-20"), Tick(546.0, "11-21"))
    assert chart.spots == (
        Spot(60.0, 324.0, "2026-11-20: 1 A, 1 B"),
        Spot(384.0, 324.0, "2026-11-21: 0 A, 4 B"),
    )
    assert (chart.title, chart.width, chart.height, chart.left, chart.bottom) == ("T", 720, 200, 60, 172)
    assert chart.series == (("a", "A"), ("b", "B")) and chart.line == "" and chart.dots == ()
    bars = charts.draw_bars("T", ["x"], [("a", "A", [1])], str, tooltips=["other"])
    assert [spot.title for spot in bars.spots] == ["other"] and bars.columns[0].text == "x"


def test_a_line_leaves_out_days_that_have_no_value() -> None:
    chart = charts.draw_line("T", ["2026-11-20", "2026-11-21"], [None, 0.25], "hit")
    assert chart.dots == (Dot(546.0, 132.0),) and chart.line == "546.00,132.00"
    assert [spot.title for spot in chart.spots] == ["2026-11-20: no requests", "2026-11-21: 25% hit"]
    assert [row.text for row in chart.rows] == ["0%", "50%", "100%"] and chart.series == (("hit", "hit"),)


def test_of_many_days_every_few_have_a_label_and_the_last_always() -> None:
    def labels(days: int) -> list[str]:
        named = [f"2026-x{day:02d}" for day in range(days)]
        return [tick.text for tick in charts.draw_bars("T", named, [], str).columns]

    assert labels(6) == [f"x{day:02d}" for day in range(6)]
    assert labels(7) == ["x00", "x02", "x04", "x06"] and labels(14) == ["x01", "x04", "x07", "x10", "x13"]
    assert labels(0) == []


# Feeds.


def heard(feed: Feed, number: int) -> list[str]:
    """Give the ids of the events after a number, "gap" for what is missing."""
    sent, _ = feed.since(number)
    return [
        row.removeprefix("id: ").removeprefix("event: ")
        for row in sent.decode().splitlines()
        if row.startswith("id: ") or row == "event: gap"
    ]


def events(numbers: Iterable[int]) -> list[FeedEvent]:
    return [FeedEvent(number, "text_delta", b'{"type":"text_delta","text":"x"}') for number in numbers]


def filled(feed: Feed, numbers: Iterable[int]) -> Feed:
    for event in events(numbers):
        feed.add(event)
    return feed


def test_a_feed_is_gone_on_with_where_a_listener_was() -> None:
    feed = filled(Feed("f"), range(1, 4))
    assert feed.last_id == "f-3" and feed.after("") == feed.after("f-3") == (3, False)
    assert feed.after("f-1") == (1, False)
    assert feed.after("f-0") == (0, False)
    for other in ("g-1", "nonsense", "f-", "f-1x"):
        assert feed.after(other) == (0, True)
    assert feed.after("f-4") == (4, False), "another process may have sent what this one has not read yet"
    assert heard(feed, 1) == ["f-2", "f-3"] and heard(feed, 3) == [] and feed.since(0)[1] == 3


def test_a_feed_keeps_the_newest_and_says_what_is_gone() -> None:
    feed = filled(Feed("f"), range(1, 4_003))
    assert feed.after("f-1") == (2, True) and feed.after("f-2") == (2, False) and feed.start == 2
    assert heard(feed, 1)[:2] == ["gap", "f-3"] and heard(feed, 2)[0] == "f-3"
    assert feed.size_bytes == len(feed.since(2)[0])
    assert not is_too_large(range(4_000), 2_000_000) and is_too_large(range(2), 2_000_001)
    assert is_too_large(range(4_001), 1) and not is_too_large(range(1), 9_000_000)


def test_a_team_feed_has_the_rows_after_its_start_and_takes_earlier_ones() -> None:
    feed = Feed("team", 5)
    assert feed.last_id == "team-5" and feed.since(5) == (b"", 5)
    filled(feed, [7, 9])
    assert feed.after("") == (9, False) and feed.after("team-7") == (7, False)
    assert feed.after("team-5") == (5, False) and feed.after("team-4") == (5, True)
    assert feed.after("nonsense") == feed.after("f-7") == (5, True)
    assert heard(feed, 5) == ["team-7", "team-9"] and heard(feed, 7) == ["team-9"] == heard(feed, 8)
    assert heard(feed, 4) == ["gap", "team-7", "team-9"]
    feed.begin_at(1, events([2, 4, 7]))
    assert heard(feed, 1) == ["team-2", "team-4", "team-7", "team-9"] and feed.start == 1
    feed.begin_at(3, [])
    assert feed.start == 1 and feed.size_bytes == len(feed.since(1)[0])


def test_a_row_that_says_that_something_is_missing_is_no_event() -> None:
    gap = EventRow(1, "s", "t", '{"type":"gap"}')
    assert gap.event is None and EventRow(1, "s", "t", '{"type":"text_delta","text":"x"}').event == TextDelta(
        "x"
    )
    feed = Feed("team")
    feed.add(gap.feed_event)
    assert feed.since(0)[0] == b'id: team-1\nevent: gap\ndata: {"type":"gap"}\n\n'
