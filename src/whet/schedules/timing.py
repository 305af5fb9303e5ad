"""When a schedule is due: cron expressions in a time zone, single times, and judging missed times.

Daylight saving works as in cron on Debian: a time of day that the clock skips comes when the clock moves
forward (02:30 at 03:00), and one that occurs twice comes only the first time. Schedules that run every
hour keep their real distance. Expressions are evaluated on a clock without changes and then converted to
the local clock here: cronsim's own arithmetic loses hours if a clock changes by half an hour. The
functions are pure, except `local_zone`, which reads the machine's setting.
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
_IN = re.compile(r"\+\s*(\d{1,6})\s*(s|m|h|d)")
_CLOCK_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_SIGNED = re.compile(r"(?:UTC|GMT|Z)([+-])(\d{1,2})(:?\d\d)?", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ON_TIME_S = 120.0
_MAX_COUNTED = 1_000
_EXPRESSION_HINT = (
    "five fields: minute hour day month weekday, e.g. '0 9 * * 1-5'; or @hourly, @daily, @weekly"
)


class RunWindow(msgspec.Struct, frozen=True):
    """Whether a run may still begin, the number of missed times, and the latest of them."""

    may_run: bool
    missed: int
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
    """Check a zone that somebody typed. Raises ConfigError if it does not exist, or if it is UTC+2, which
    means two hours east to people and, as a rule in TZ, two hours west."""
    find_zone(name)
    if match := _SIGNED.fullmatch(name):
        other = "-" if match[1] == "+" else "+"
        hint = "a place such as Europe/Berlin"
        if match[3] is None:
            side = "east" if match[1] == "+" else "west"
            hint = f"Etc/GMT{other}{int(match[2])} is {int(match[2])} h {side} of UTC; or {hint}"
        raise ConfigError(f"{name} can mean both sides of UTC", hint=hint)


def parse_expression(text: str) -> str:
    """Return a cron expression in its stored form. Raises ConfigError if it is invalid or never comes."""
    plain = " ".join(text.split())
    plain = _NAMED.get(plain.lower(), plain)
    if len(plain.split(" ")) != 5:
        raise ConfigError(f"{text!r} is not a cron expression", hint=_EXPRESSION_HINT)
    _check_occurs(plain)
    return plain


def parse_single_time(text: str, zone_name: str, now: datetime) -> datetime:
    """Parse a single time: ISO, HH:MM (today or tomorrow), or +30m, +2h, +1d. Returns UTC. Raises
    ConfigError."""
    tz, plain = find_zone(zone_name), text.strip()
    try:
        moment = _parse_moment(plain, tz, now)
    except (ValueError, OverflowError) as error:
        hint = "e.g. 2026-12-24T09:00, 18:30, or +2h"
        raise ConfigError(f"{text!r} is not a time", hint=hint) from error
    if moment < now:
        raise ConfigError(f"{text} is past", hint="name a time that is still to come")
    return moment


def _parse_moment(plain: str, tz: ZoneInfo, now: datetime) -> datetime:
    if match := _IN.fullmatch(plain):
        return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
    if match := _CLOCK_TIME.fullmatch(plain):
        today = now.astimezone(tz).replace(tzinfo=None)
        wall = today.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        moment = _to_utc(wall, tz)
        return moment if moment > now else _to_utc(wall + timedelta(days=1), tz)
    moment = datetime.fromisoformat(plain)
    return _to_utc(moment, tz) if moment.tzinfo is None else moment.astimezone(UTC)


def next_after(schedule: Schedule, moment: datetime) -> datetime:
    """Return the first time of a recurring schedule after `moment`, in UTC."""
    tz = find_zone(schedule.time_zone)
    minute, hour = schedule.expression.split(" ")[:2]
    if hour in ("*", "*/1"):
        return _next_real(schedule.expression, tz, moment)
    # A skipped time of day is made up for; a repeating step has its next time soon enough.
    is_made_up = not (minute.startswith("*") or hour.startswith("*"))
    for wall in _times(schedule.expression, moment.astimezone(tz).replace(tzinfo=None)):
        due = _first_pass(wall, tz, is_made_up)
        if due is not None and due > moment:
            return due
    raise RuntimeError("a checked expression has come to its end")


def _next_real(plain: str, tz: ZoneInfo, moment: datetime) -> datetime:
    """Return the first minute after `moment` whose local time matches, in both passes of a repeated hour."""
    after = moment
    while True:
        offset = _offset(tz, after)
        due = next(_times(plain, moment.astimezone(timezone(offset)))).astimezone(UTC)
        if _offset(tz, due) == offset:
            return due
        after = _find_change(tz, after, due)
        moment = max(moment, after - timedelta(minutes=1))


def _first_pass(wall: datetime, tz: ZoneInfo, is_made_up: bool) -> datetime | None:
    """Convert a local time to UTC, using the first pass of a repeated hour.

    If the clock skips the time, return the moment when the clock changes, or None unless `is_made_up`.
    """
    first, last = (wall.replace(tzinfo=tz, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(tz).replace(tzinfo=None) == wall:
        return first
    return _find_change(tz, last, first) if is_made_up else None


def _offset(tz: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(tz).utcoffset() or timedelta()


def _find_change(tz: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Return the moment of the clock change between two moments with different offsets."""
    old = _offset(tz, before)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        before, after = (middle, after) if _offset(tz, middle) == old else (before, middle)
    return after.replace(microsecond=0)


def judge(schedule: Schedule, due: datetime, now: datetime, catch_up_s: float) -> RunWindow:
    """Return whether a due run may begin now: the latest missed time must not be too long ago.

    Several missed times are one run.
    """
    latest, missed = due, 0
    if schedule.expression:
        while missed < _MAX_COUNTED and (following := next_after(schedule, latest)) <= now:
            latest, missed = following, missed + 1
        if missed == _MAX_COUNTED:  # so many that the exact number means nothing
            latest = now
    late_s = (now - latest).total_seconds()
    return RunWindow(late_s <= max(catch_up_s, _ON_TIME_S), missed, latest)


def is_late(due: datetime, now: datetime) -> bool:
    """Return whether a run begins so late that the person should be notified."""
    return (now - due).total_seconds() > _ON_TIME_S


def _to_utc(wall: datetime, tz: ZoneInfo) -> datetime:
    """Convert a local time to UTC. For a time that the clock skips it is the moment of the change."""
    moment = _first_pass(wall, tz, is_made_up=True)
    assert moment is not None
    return moment


@lru_cache(maxsize=64)
def _check_occurs(plain: str) -> None:
    try:
        next(_times(plain, datetime(2026, 1, 1, tzinfo=UTC)))
    except StopIteration as error:
        raise ConfigError(f"{plain!r} never comes", hint="no such day exists in any year") from error


def _times(plain: str, moment: datetime) -> CronSim:
    try:
        return CronSim(plain, moment)
    except CronSimError as error:
        raise ConfigError(f"{plain!r} is not a cron expression ({error})", hint=_EXPRESSION_HINT) from error
