"""Compute when a schedule is due, from a cron expression in a time zone or a single time.

Daylight saving works as in Debian's cron: a time of day that the clock skips is due when the clock moves
forward (02:30 at 03:00), and one that occurs twice is due only the first time. Schedules that run every hour
run every real hour. Expressions are evaluated on a clock without changes and converted to the local clock
here, because cronsim loses hours if a clock changes by half an hour.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from whet.clock import read_zone
from whet.contract.errors import ConfigError
from whet.store.schedules import Schedule

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_RELATIVE = re.compile(r"\+\s*(\d{1,6})\s*(s|m|h|d)")
_CLOCK_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_SIGNED = re.compile(r"(?:UTC|GMT|Z)([+-])(\d{1,2})(:?\d\d)?", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ON_TIME_S = 120.0
_MAX_COUNTED = 1_000
_EXPRESSION_HINT = (
    "five fields: minute hour day month weekday, e.g. '0 9 * * 1-5'; or @hourly, @daily, @weekly"
)


class RunWindow(msgspec.Struct, frozen=True):
    """Whether a run may still begin, the number of times missed since it was due, and the latest of them."""

    may_run: bool
    missed_count: int
    latest: datetime


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name or rule. Raises ConfigError."""
    try:
        return read_zone(name)
    except (KeyError, ValueError, OSError) as error:
        near = [
            candidate for candidate in sorted(available_timezones()) if name.lower() in candidate.lower()
        ][:4]
        hint = f"perhaps {', '.join(near)}" if near and name else "a name like Europe/Berlin, or UTC"
        raise ConfigError(f"there is no time zone {name!r}", hint=hint) from error


def check_typed_zone(name: str) -> None:
    """Raise ConfigError if a typed zone does not exist, or is like UTC+2: people mean two hours east by it,
    but as a TZ rule it is two hours west."""
    find_zone(name)
    if match := _SIGNED.fullmatch(name):
        other = "-" if match[1] == "+" else "+"
        hint = "a place such as Europe/Berlin"
        if match[3] is None:
            side = "east" if match[1] == "+" else "west"
            hint = f"Etc/GMT{other}{int(match[2])} is {int(match[2])} h {side} of UTC; or {hint}"
        raise ConfigError(f"{name} can mean both sides of UTC", hint=hint)


def parse_expression(text: str) -> str:
    """Return a cron expression in its stored form. Raises ConfigError if it is invalid or never due."""
    expression = " ".join(text.split())
    expression = _NAMED.get(expression.lower(), expression)
    if len(expression.split(" ")) != 5:
        hint = "--tz sets the time zone" if "TZ=" in expression else _EXPRESSION_HINT
        raise ConfigError(f"{text!r} is not a cron expression", hint=hint)
    if re.search(r"(?:^|,)\d+/", expression.rpartition(" ")[2]):
        hint = "a step needs a range: 0-6/2, or */2 for every second day"
        raise ConfigError(f"{text!r} has a step behind a single weekday", hint=hint)
    _check_occurs(expression)
    return expression


def parse_single_time(text: str, zone_name: str, now: datetime) -> datetime:
    """Parse a single time: ISO, HH:MM (today or tomorrow), or +30m, +2h, +1d. Returns UTC. Raises
    ConfigError, also if the time is past."""
    zone = find_zone(zone_name)
    try:
        moment = _parse_moment(text.strip(), zone, now)
    except (ValueError, OverflowError) as error:
        hint = "e.g. 2026-12-24T09:00, 18:30, or +2h"
        raise ConfigError(f"{text!r} is not a time", hint=hint) from error
    if moment < now:
        raise ConfigError(f"{text} is past", hint="name a time that is still to come")
    return moment


def _parse_moment(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    if match := _RELATIVE.fullmatch(text):
        return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
    if match := _CLOCK_TIME.fullmatch(text):
        today = now.astimezone(zone).replace(tzinfo=None)
        local = today.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        moment = _to_utc(local, zone)
        return moment if moment > now else _to_utc(local + timedelta(days=1), zone)
    moment = datetime.fromisoformat(text)
    return _to_utc(moment, zone) if moment.tzinfo is None else moment.astimezone(UTC)


def next_after(schedule: Schedule, moment: datetime) -> datetime:
    """Return the first time of a recurring schedule after `moment`, in UTC."""
    zone = find_zone(schedule.time_zone)
    minute, hour = schedule.expression.split(" ")[:2]
    if hour in ("*", "*/1"):
        return _next_every_hour(schedule.expression, zone, moment)
    # A skipped time of day is made up for; an expression with a step is due again soon.
    is_made_up = not (minute.startswith("*") or hour.startswith("*"))
    for local in _times(schedule.expression, moment.astimezone(zone).replace(tzinfo=None)):
        due = _first_pass(local, zone, is_made_up)
        if due is not None and due > moment:
            return due
    raise RuntimeError("a checked expression has come to its end")


def _next_every_hour(expression: str, zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the first minute after `moment` whose local time matches, in both passes of a repeated hour."""
    after = moment
    while True:
        offset = _offset(zone, after)
        due = next(_times(expression, moment.astimezone(timezone(offset)))).astimezone(UTC)
        if _offset(zone, due) == offset:
            return due
        after = _find_change(zone, after, due)
        moment = max(moment, after - timedelta(minutes=1))


def _first_pass(local: datetime, zone: ZoneInfo, is_made_up: bool) -> datetime | None:
    """Convert a local time to UTC, using the first pass of a repeated hour.

    If the clock skips the time, return the moment of the clock's change, or None unless `is_made_up`.
    """
    first, last = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return first
    return _find_change(zone, last, first) if is_made_up else None


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _find_change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Return the moment of the clock change between two moments with different offsets."""
    old_offset = _offset(zone, before)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if _offset(zone, middle) == old_offset:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)


def judge(schedule: Schedule, due: datetime, now: datetime, catch_up_s: float) -> RunWindow:
    """Return whether a due run may begin now: its latest time must be at most `catch_up_s` ago. One run makes
    up for all missed times."""
    latest, missed_count = due, 0
    if schedule.expression:
        while missed_count < _MAX_COUNTED and (following := next_after(schedule, latest)) <= now:
            latest, missed_count = following, missed_count + 1
        if missed_count == _MAX_COUNTED:  # too many to find the latest
            latest = now
    late_s = (now - latest).total_seconds()
    return RunWindow(late_s <= max(catch_up_s, _ON_TIME_S), missed_count, latest)


def is_late(due: datetime, now: datetime) -> bool:
    """Return whether a run begins so late that its note says so."""
    return (now - due).total_seconds() > _ON_TIME_S


def _to_utc(local: datetime, zone: ZoneInfo) -> datetime:
    """Convert a local time to UTC. A time that the clock skips becomes the moment of the clock's change."""
    moment = _first_pass(local, zone, is_made_up=True)
    assert moment is not None
    return moment


@lru_cache(maxsize=64)
def _check_occurs(expression: str) -> None:
    try:
        next(_times(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except StopIteration as error:
        raise ConfigError(f"{expression!r} never comes", hint="no such day exists in any year") from error


def _times(expression: str, moment: datetime) -> CronSim:
    try:
        return CronSim(expression, moment)
    except CronSimError as error:
        text = f"{expression!r} is not a cron expression ({error})"
        raise ConfigError(text, hint=_EXPRESSION_HINT) from error
