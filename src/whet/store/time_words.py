"""Find the time that a question names: "last week", "yesterday", "3 days ago", 2026-11-21, "in May".

Days are those of the zone of `now`. A month or a weekday without a year is the latest one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
_ORDINAL = r"(\d{1,2})(?:st|nd|rd|th)?"
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}


class TimeSpan(NamedTuple):
    """The time from `begin_ms` to before `end_ms`, in milliseconds since the epoch."""

    begin_ms: int
    end_ms: int


class TimeWords(NamedTuple):
    """The time that a query names, and the query without words such as "yesterday" that name only the
    time."""

    span: TimeSpan | None
    other_text: str


def parse_time(query: str, now: datetime) -> TimeWords:
    """Find the first time that a query names. Text in quotes is ignored."""
    plain = re.sub(r'"[^"]*"?', lambda quoted: " " * len(quoted[0]), query.lower())
    for pattern, span_of, is_relative in _FORMS:
        match = re.search(pattern, plain)
        if match is None:
            continue
        try:
            begin, end = span_of(match, now)
        except (ValueError, OverflowError):
            continue  # 2026-02-30, or a number of years outside the calendar
        text_query = f"{query[: match.start()]} {query[match.end() :]}" if is_relative else query
        return TimeWords(TimeSpan(_ms(begin), _ms(end)), text_query)
    return TimeWords(None, query)


_Ends = tuple[datetime, datetime]


def _iso_day(match: re.Match[str], now: datetime) -> _Ends:
    return _day(datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=now.tzinfo))


def _iso_month(match: re.Match[str], now: datetime) -> _Ends:
    return _month(now, int(match[1]), int(match[2]))


def _named_day(match: re.Match[str], now: datetime) -> _Ends:
    day, month = int(match["d1"] or match["d2"]), _number(match["m1"] or match["m2"])
    if match["y"]:
        return _day(datetime(int(match["y"]), month, day, tzinfo=now.tzinfo))
    this = datetime(now.year, month, day, tzinfo=now.tzinfo)
    return _day(this if this <= now else this.replace(year=now.year - 1))


def _named_month(match: re.Match[str], now: datetime) -> _Ends:
    month, year = _number(match["m"]), match["y"]
    return _month(now, int(year) if year else now.year - (month > now.month), month)


def _today_or_yesterday(match: re.Match[str], now: datetime) -> _Ends:
    begin, end = _day(now)
    return (begin, end) if match[1] == "today" else (begin - timedelta(days=1), begin)


def _ago(match: re.Match[str], now: datetime) -> _Ends:
    count = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3}.get(match[1]) or int(match[1])
    days = _UNITS[match[2]]
    middle = _day(now - timedelta(days=count * days))[0]
    around = timedelta(days=days // 2)
    return middle - around, middle + around + timedelta(days=1)


def _past(match: re.Match[str], now: datetime) -> _Ends:
    days = int(match[1]) * _UNITS[match[2]]
    return _day(now)[0] - timedelta(days=days), _day(now)[1]


def _unit(match: re.Match[str], now: datetime) -> _Ends:
    today = _day(now)[0]
    steps_back = 0 if match[1] == "this" else 1
    if match[2] == "week":
        monday = today - timedelta(days=today.weekday() + 7 * steps_back)
        return monday, monday + timedelta(days=7)
    if match[2] == "month":
        number = now.year * 12 + now.month - 1 - steps_back
        return _month(now, number // 12, number % 12 + 1)
    if match[2] == "year":
        year = now.year - steps_back
        return datetime(year, 1, 1, tzinfo=now.tzinfo), datetime(year + 1, 1, 1, tzinfo=now.tzinfo)
    saturday = today - timedelta(
        days=(today.weekday() - 5) % 7 + (7 * steps_back if today.weekday() >= 5 else 0)
    )
    return saturday, saturday + timedelta(days=2)


def _weekday(match: re.Match[str], now: datetime) -> _Ends:
    today = _day(now)[0]
    days_back = (today.weekday() - _DAYS.index(match[1])) % 7 or 7
    return _day(today - timedelta(days=days_back))


_YEAR = r"(?P<y>(?:19|20)\d\d)"
_FORMS: tuple[tuple[str, Callable[[re.Match[str], datetime], _Ends], bool], ...] = (
    (r"(?<![\w.-])(\d{4})-(\d\d)-(\d\d)(?![\w-])", _iso_day, False),
    (r"(?<![\w.-])((?:19|20)\d\d)-(0[1-9]|1[0-2])(?![\w-])", _iso_month, False),
    (
        rf"\b(?:{_ORDINAL.replace('(', '(?P<d1>', 1)}\s+(?:of\s+)?(?P<m1>{_MONTH})"
        rf"|(?P<m2>{_MONTH})\.?\s+{_ORDINAL.replace('(', '(?P<d2>', 1)})\b(?:,?\s+{_YEAR}\b)?",
        _named_day,
        False,
    ),
    (rf"\b(?P<m>{_MONTH})\.?,?\s+(?:of\s+)?{_YEAR}\b", _named_month, False),
    (rf"\b(?:in|during|since|last|of|from)\s+(?P<m>{_MONTH})\b(?P<y>)", _named_month, False),
    (r"\b(today|yesterday)\b", _today_or_yesterday, True),
    (r"\b(\d{1,3}|an?|one|two|three)\s+(day|week|month|year)s?\s+ago\b", _ago, True),
    (r"\b(?:in the |the )?(?:last|past)\s+(\d{1,3})\s+(day|week|month|year)s?\b", _past, True),
    (r"\b(this|last|past)\s+(weekend|week|month|year)\b", _unit, True),
    (rf"\b(?:last|on)\s+({'|'.join(_DAYS)})\b", _weekday, True),
)


def _number(name: str) -> int:
    return [month[:3] for month in _MONTHS].index(name[:3]) + 1


def _day(moment: datetime) -> _Ends:
    begin = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return begin, begin + timedelta(days=1)


def _month(now: datetime, year: int, month: int) -> _Ends:
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return datetime(year, month, 1, tzinfo=now.tzinfo), datetime(*following, 1, tzinfo=now.tzinfo)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
