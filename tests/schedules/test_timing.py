"""When schedules are due: expressions, single times, daylight saving, and what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from whet.contract.errors import ConfigError
from whet.schedules import timing
from whet.store.schedules import Schedule

NOW = datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def schedule(expression: str = "", zone: str = "Europe/Berlin", single: str = "") -> Schedule:
    return Schedule("s", "s", "", expression, single, zone, "go")


def following(expression: str, start: str, count: int, zone: str = "Europe/Berlin") -> list[str]:
    """The next times in the zone's own clock."""
    moment, texts = at(start), list[str]()
    for _ in range(count):
        moment = timing.next_after(schedule(expression, zone), moment)
        texts.append(moment.astimezone(timing.find_zone(zone)).strftime("%d %H:%M %Z"))
    return texts


@pytest.mark.parametrize(
    "text", ["", "* * * *", "* * * * * *", "61 * * * *", "0 9 * * 1-", "0 0 30 2 *", "soon", "0 9 * * 7/2"]
)
def test_what_is_no_expression_or_never_comes_is_refused(text):
    with pytest.raises(ConfigError):
        timing.parse_expression(text)


def test_short_names_and_blanks_are_read():
    assert timing.parse_expression("@daily") == "0 0 * * *"
    assert timing.parse_expression("  0  9 * *  mon-fri ") == "0 9 * * mon-fri"


def test_a_time_that_the_clock_skips_comes_when_it_goes_on_and_only_that_day():
    # Berlin, 29 March 2026: 02:00 becomes 03:00.
    assert following("30 2 * * *", "2026-03-28T12:00:00+01:00", 2) == ["29 03:00 CEST", "30 02:30 CEST"]


def test_a_time_that_comes_twice_comes_the_first_time_only():
    # Berlin, 25 October 2026: 03:00 becomes 02:00.
    times = following("30 2 * * *", "2026-10-24T12:00:00+02:00", 2)
    assert times == ["25 02:30 CEST", "26 02:30 CET"]
    in_second_pass = following("30 2 * * *", "2026-10-25T02:10:00+01:00", 1)
    assert in_second_pass == ["26 02:30 CET"]


def test_every_half_hour_keeps_its_distance_when_the_clock_is_changed():
    moment, gaps = at("2026-10-25T01:30:00+02:00"), set[timedelta]()
    for _ in range(8):
        later = timing.next_after(schedule("*/30 * * * *"), moment)
        gaps.add(later - moment)
        moment = later
    assert gaps == {timedelta(minutes=30)}


def test_single_times_are_read_in_the_zone():
    read = timing.parse_single_time
    assert read("+30m", "UTC", NOW) == NOW + timedelta(minutes=30)
    assert read("18:30", "Europe/Berlin", NOW) == at("2026-11-21T18:30:00+01:00")
    assert read("08:00", "Europe/Berlin", NOW) == at("2026-11-22T08:00:00+01:00")
    assert read("2026-12-24T09:00", "Europe/Berlin", NOW) == at("2026-12-24T09:00:00+01:00")
    assert read("2026-12-24T09:00:00Z", "Europe/Berlin", NOW) == at("2026-12-24T09:00:00+00:00")
    assert read("2027-03-28T02:30", "Europe/Berlin", NOW) == at("2027-03-28T03:00:00+02:00")


@pytest.mark.parametrize("text", ["2020-01-01", "25:00", "soon", "", "+5y", "2026-13-01"])
def test_a_time_that_is_none_or_past_is_refused(text):
    with pytest.raises(ConfigError) as error:
        timing.parse_single_time(text, "UTC", NOW)
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [("UTC+2", "Etc/GMT-2 is 2 h east"), ("gmt-05", "Etc/GMT+5 is 5 h west"), ("UTC+5:30", "a place")],
)
def test_an_offset_whose_side_depends_on_the_reader_is_refused(name, hint):
    with pytest.raises(ConfigError, match="both sides") as error:
        timing.check_typed_zone(name)
    assert error.value.hint.startswith(hint)
    assert timing.find_zone(name)  # TZ of a machine may say so
    for zone in ("UTC", "Etc/GMT-2", "Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3", "<+0530>-5:30"):
        timing.check_typed_zone(zone)


def test_a_zone_that_is_none_is_refused_with_one_that_is_near():
    with pytest.raises(ConfigError) as error:
        timing.find_zone("berlin")
    assert "Europe/Berlin" in error.value.hint
    with pytest.raises(ConfigError):
        timing.find_zone("../../etc/passwd")


def test_missed_times_are_one_run_if_the_latest_is_not_too_long_ago():
    daily, due = schedule("0 9 * * *", "UTC"), at("2026-11-18T09:00:00+00:00")
    soon = timing.judge(daily, due, at("2026-11-21T11:00:00+00:00"), 43_200)
    assert (soon.may_run, soon.missed_count, soon.latest) == (True, 3, at("2026-11-21T09:00:00+00:00"))
    late = timing.judge(daily, due, at("2026-11-22T06:00:00+00:00"), 43_200)
    assert (late.may_run, late.missed_count) == (False, 3)
    never = timing.judge(daily, due, at("2026-11-18T09:05:00+00:00"), 0)
    assert not never.may_run
    on_time = timing.judge(daily, due, at("2026-11-18T09:00:20+00:00"), 0)
    assert on_time.may_run
    often = timing.judge(schedule("* * * * *", "UTC"), due, at("2027-11-18T09:00:30+00:00"), 0)
    assert often.may_run
    once = timing.judge(schedule(single="2026-11-18T09:00:00Z"), due, at("2026-11-18T20:00:00+00:00"), 43_200)
    assert (once.may_run, once.missed_count) == (True, 0)


@pytest.mark.parametrize(
    ("expression", "hours"),
    [
        ("0 */2 * * *", ["25 00:00 CEST", "25 02:00 CEST", "25 04:00 CET", "25 06:00 CET"]),
        ("0 0-23/2 * * *", ["25 00:00 CEST", "25 02:00 CEST", "25 04:00 CET", "25 06:00 CET"]),
        ("*/30 2-3 * * *", ["25 02:00 CEST", "25 02:30 CEST", "25 03:00 CET", "25 03:30 CET"]),
    ],
)
def test_what_skips_hours_does_not_come_twice_when_the_clock_goes_back(expression, hours):
    assert following(expression, "2026-10-24T23:30+02:00", 4) == hours


def offset(name: str, moment: datetime) -> timedelta:
    return moment.astimezone(ZoneInfo(name)).utcoffset() or timedelta()


def changes(name: str) -> tuple[tuple[datetime, timedelta], ...]:
    """When a zone's clock is changed in 2026 (within half an hour), and by how much."""
    found: list[tuple[datetime, timedelta]] = []
    moment, day, step = at("2026-01-01T00:00:00+00:00"), timedelta(days=1), timedelta(minutes=30)
    while moment.year == 2026:
        end = moment + day
        if offset(name, moment) != offset(name, end):
            while offset(name, moment) == offset(name, moment + step):
                moment += step
            found.append((moment, offset(name, end) - offset(name, moment)))
        moment = end
    return tuple(found)


@cache
def changed() -> dict[tuple[tuple[datetime, timedelta], ...], str]:
    """A zone for each way in which clocks are changed this year, all zones looked at."""
    return {changes(name): name for name in sorted(available_timezones(), reverse=True)}


def around(expression: str, name: str, moment: datetime, hours: int = 48) -> list[datetime]:
    values, end = [moment - timedelta(hours=hours)], moment + timedelta(hours=hours)
    while values[-1] < end:
        values.append(timing.next_after(schedule(expression, name), values[-1]))
    return values[1:-1]


@pytest.mark.slow
@pytest.mark.parametrize("minute", [0, 30])
@pytest.mark.parametrize("hours", [2, 3, 4, 6])
def test_every_few_hours_nothing_is_lost_or_doubled_in_any_zone(hours, minute):
    for found, name in changed().items():
        for moment, by in found:
            times = around(f"{minute} */{hours} * * *", name, moment)
            step = timedelta(minutes=15)
            real = [times[0] + step * number for number in range((times[-1] - times[0]) // step + 1)]
            walls = [(one, one.astimezone(ZoneInfo(name))) for one in real]
            due = (minute, 0, 0)
            fit = [one for one, wall in walls if (wall.minute, wall.hour % hours, wall.fold) == due]
            assert times == fit, name
            gaps = {later - one for one, later in pairwise(times)} - {timedelta(hours=hours)}
            least, most = timedelta(hours=hours) - abs(by), timedelta(hours=2 * hours)
            assert len(gaps) <= 1 and all(least <= gap <= most for gap in gaps), (name, gaps)


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["*/15 * * * *", "*/30 * * * *"])
def test_what_runs_in_every_hour_keeps_its_distance_in_any_zone(expression):
    for found, name in changed().items():
        for moment, _ in found:
            times = around(expression, name, moment, 4)
            assert len({later - one for one, later in pairwise(times)}) == 1, name


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["0 2 * * *", "30 2 * * *", "45 1 * * *", "30 0 * * *", "0 0 * * *"])
def test_a_time_of_day_comes_once_a_day_in_any_zone(expression):
    for found, name in changed().items():
        for moment, _ in found:
            days = [one.astimezone(ZoneInfo(name)).date() for one in around(expression, name, moment)]
            assert {later - day for day, later in pairwise(days)} == {timedelta(days=1)}, name


def test_half_an_hour_of_change_loses_no_hour():
    times = following("0 */2 * * *", "2026-04-05T00:30+11:00", 2, "Australia/Lord_Howe")
    assert times == ["05 02:00 +1030", "05 04:00 +1030"]
