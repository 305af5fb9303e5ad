"""The times that a question names, each with its first day and the first day after it."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.support import each
from whet.store import time_words

_SATURDAY = datetime(2026, 11, 21, 9, 30, 5, 7, tzinfo=UTC)
_WEDNESDAY = datetime(2026, 11, 18, 23, 59, tzinfo=UTC)
_SUNDAY = datetime(2026, 11, 22, tzinfo=UTC)
_MONDAY = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _days(query: str, now: datetime) -> tuple[str, str]:
    span, _ = time_words.parse_time(query, now)
    assert span is not None
    begin, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in span)
    assert {(moment.hour, moment.minute, moment.second, moment.microsecond) for moment in (begin, end)} == {
        (0, 0, 0, 0)
    }
    return f"{begin:%Y-%m-%d}", f"{end:%Y-%m-%d}"


@each(
    ("query", "begin", "end"),
    [
        ("since 2026-11-03", "2026-11-03", "2026-11-04"),
        ("the log of 2026-11", "2026-11-01", "2026-12-01"),
        ("2025-12 and later", "2025-12-01", "2026-01-01"),
        ("the 3rd of november", "2026-11-03", "2026-11-04"),
        ("21 nov", "2026-11-21", "2026-11-22"),
        ("Nov. 22", "2025-11-22", "2025-11-23"),
        ("December 31st, 2024", "2024-12-31", "2025-01-01"),
        ("1 january 2026", "2026-01-01", "2026-01-02"),
        ("May 2025", "2025-05-01", "2025-06-01"),
        ("dec of 2025", "2025-12-01", "2026-01-01"),
        ("in november", "2026-11-01", "2026-12-01"),
        ("in december", "2025-12-01", "2026-01-01"),
        ("last october", "2026-10-01", "2026-11-01"),
        ("today", "2026-11-21", "2026-11-22"),
        ("yesterday", "2026-11-20", "2026-11-21"),
        ("a day ago", "2026-11-20", "2026-11-21"),
        ("three days ago", "2026-11-18", "2026-11-19"),
        ("an week ago", "2026-11-11", "2026-11-18"),
        ("one month ago", "2026-10-07", "2026-11-07"),
        ("two weeks ago", "2026-11-04", "2026-11-11"),
        ("4 years ago", "2022-05-24", "2023-05-24"),
        ("the last 3 days", "2026-11-18", "2026-11-22"),
        ("in the past 2 weeks", "2026-11-07", "2026-11-22"),
        ("past 1 month", "2026-10-22", "2026-11-22"),
        ("this week", "2026-11-16", "2026-11-23"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("this month", "2026-11-01", "2026-12-01"),
        ("past month", "2026-10-01", "2026-11-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("this weekend", "2026-11-21", "2026-11-23"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("on monday", "2026-11-16", "2026-11-17"),
        ("on friday", "2026-11-20", "2026-11-21"),
        ("last saturday", "2026-11-14", "2026-11-15"),
        ("on sunday", "2026-11-15", "2026-11-16"),
        ("2026-02-30, or yesterday", "2026-11-20", "2026-11-21"),
        ("31 february 2026", "2026-02-01", "2026-03-01"),
        ("yesterday, or 2026-11-03", "2026-11-03", "2026-11-04"),
    ],
)
def test_a_time_is_read_as_whole_days(query: str, begin: str, end: str):
    assert _days(query, _SATURDAY) == (begin, end)


@pytest.mark.parametrize(
    ("query", "now", "begin", "end"),
    [
        ("this weekend", _WEDNESDAY, "2026-11-14", "2026-11-16"),
        ("last weekend", _WEDNESDAY, "2026-11-14", "2026-11-16"),
        ("this weekend", _SUNDAY, "2026-11-21", "2026-11-23"),
        ("last weekend", _SUNDAY, "2026-11-14", "2026-11-16"),
        ("this week", _SUNDAY, "2026-11-16", "2026-11-23"),
        ("22 november", _SUNDAY, "2026-11-22", "2026-11-23"),
        ("this week", _MONDAY, "2026-01-05", "2026-01-12"),
        ("last monday", _MONDAY, "2025-12-29", "2025-12-30"),
        ("last month", _MONDAY, "2025-12-01", "2026-01-01"),
        ("this month", _MONDAY, "2026-01-01", "2026-02-01"),
    ],
)
def test_days_are_counted_from_today(query: str, now: datetime, begin: str, end: str):
    assert _days(query, now) == (begin, end)


@pytest.mark.parametrize(
    "query",
    ["why is it so", 'the function "yesterday"', 'an open quote: "last week', "version 1.2026-11-03",
     "feb 30", "may the build pass", "0000-01-01", "2026-13"],
)  # fmt: skip
def test_a_query_without_a_time_stays_as_it_is(query: str):
    assert time_words.parse_time(query, _SATURDAY) == (None, query)


def test_only_a_time_relative_to_now_is_taken_out_of_the_query():
    def rest(query: str) -> str:
        return time_words.parse_time(query, _SATURDAY).other_text

    assert rest("What broke last week in CI") == "What broke   in CI"
    assert rest('"A b" 3 days ago') == '"A b"  '
    for absolute in ("since 2026-11-03", "in May", "May 2025 build", "on 3 nov"):
        assert rest(absolute) == absolute


def test_days_are_those_of_the_askers_zone() -> None:
    zone = ZoneInfo("Pacific/Kiritimati")
    now = datetime(2026, 11, 29, 8, 30, tzinfo=zone)
    span, _ = time_words.parse_time("what did I say yesterday?", now)
    assert span is not None
    begin, end = datetime(2026, 11, 28, tzinfo=zone), datetime(2026, 11, 29, tzinfo=zone)
    assert span == (int(begin.timestamp() * 1000), int(end.timestamp() * 1000))
    week, _ = time_words.parse_time("last week", now)
    assert week is not None and week.begin_ms == int(datetime(2026, 11, 16, tzinfo=zone).timestamp() * 1000)
