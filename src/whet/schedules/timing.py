"""When a schedule is due: cron expressions in a time zone, single times, and what a missed time becomes.

Daylight saving, as cron on Debian does it: a time of day that the clock skips comes when the clock goes on
(02:30 at 03:00), one that comes twice comes the first time only; what runs in every hour keeps its real
distance. Expressions are read on a clock that never changes and then put on the wall's clock here: cronsim's
own arithmetic loses hours where a clock is changed by half an hour. Pure but for `local_zone`, which reads
the machine's setting.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

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
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ON_TIME_S = 120.0
_MOST_COUNTED = 1_000
_EXPRESSION_HINT = (
    "five fields: minute hour day month weekday, e.g. '0 9 * * 1-5'; or @hourly, @daily, @weekly"
)


class RunWindow(msgspec.Struct, frozen=True):
    """Whether a run may still begin, how many times were missed, and the latest of them (ISO or datetime)."""

    may_run: bool
    missed: int
    latest: datetime


def zone(name: str) -> ZoneInfo:
    """Give a time zone by its name. Raises ConfigError."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        near = [known for known in sorted(available_timezones()) if name.lower() in known.lower()][:4]
        hint = f"perhaps {', '.join(near)}" if near and name else "a name like Europe/Berlin, or UTC"
        raise ConfigError(f"there is no time zone {name!r}", hint=hint) from error


def local_zone() -> str:
    """Give the name of this machine's time zone; UTC where it can't be told."""
    candidates = [os.environ.get("TZ", "").removeprefix(":")]
    with suppress(OSError, UnicodeDecodeError):
        candidates.append(Path("/etc/timezone").read_text("ascii").strip())
    candidates.append(os.path.realpath("/etc/localtime").partition("zoneinfo/")[2])
    for name in filter(None, candidates):
        try:
            return ZoneInfo(name).key
        except (KeyError, ValueError, OSError):
            continue
    return "UTC"


def expression(text: str) -> str:
    """Give a cron expression as it is kept. Raises ConfigError for one that is none or never comes."""
    plain = " ".join(text.split())
    plain = _NAMED.get(plain.lower(), plain)
    if len(plain.split(" ")) != 5:
        raise ConfigError(f"{text!r} is no cron expression", hint=_EXPRESSION_HINT)
    _check(plain)
    return plain


def single_time(text: str, zone_name: str, now: datetime) -> datetime:
    """Read a single time: ISO, HH:MM (today or tomorrow), or +30m, +2h, +1d. In UTC. Raises ConfigError."""
    here, plain = zone(zone_name), text.strip()
    try:
        moment = _moment(plain, here, now)
    except (ValueError, OverflowError) as error:
        hint = "e.g. 2026-12-24T09:00, 18:30, or +2h"
        raise ConfigError(f"{text!r} is no time", hint=hint) from error
    if moment < now:
        raise ConfigError(f"{text} is past", hint="name a time that is still to come")
    return moment


def _moment(plain: str, here: ZoneInfo, now: datetime) -> datetime:
    if found := _IN.fullmatch(plain):
        return now + timedelta(**{_UNITS[found[2]]: int(found[1])})
    if found := _CLOCK_TIME.fullmatch(plain):
        local = now.astimezone(here).replace(
            hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0
        )
        moment = _real(local)
        if moment <= now:
            moment = _real((local.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=here))
        return moment
    moment = datetime.fromisoformat(plain)
    return _real(moment.replace(tzinfo=here)) if moment.tzinfo is None else moment.astimezone(UTC)


def next_after(schedule: Schedule, moment: datetime) -> datetime:
    """Give the first time of a recurring schedule after `moment`, in UTC."""
    here = zone(schedule.time_zone)
    minute, hour = schedule.expression.split(" ")[:2]
    if hour in ("*", "*/1"):
        return _next_real(schedule.expression, here, moment)
    # A time of the day is made up where the clock skips it; a step has its next time soon enough.
    is_made_up = not (minute.startswith("*") or hour.startswith("*"))
    for wall in _times(schedule.expression, moment.astimezone(here).replace(tzinfo=None)):
        found = _first_pass(wall, here, is_made_up)
        if found is not None and found > moment:
            return found
    raise RuntimeError("a checked expression has come to its end")


def _next_real(plain: str, here: ZoneInfo, moment: datetime) -> datetime:
    """Give the first minute after `moment` whose time on the wall fits, in both passes of a doubled hour."""
    after = moment
    while True:
        offset = _offset(here, after)
        found = next(_times(plain, moment.astimezone(timezone(offset)))).astimezone(UTC)
        if _offset(here, found) == offset:
            return found
        after = _change(here, after, found)
        moment = max(moment, after - timedelta(minutes=1))


def _first_pass(wall: datetime, here: ZoneInfo, is_made_up: bool) -> datetime | None:
    """Give a time on the wall in UTC, the first where it comes twice; of one that the clock skips the moment
    when the clock goes on, or None."""
    first, last = (wall.replace(tzinfo=here, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(here).replace(tzinfo=None) == wall:
        return first
    return _change(here, last, first) if is_made_up else None


def _offset(here: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(here).utcoffset() or timedelta()


def _change(here: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Give the moment between two of different offsets when the clock is changed."""
    old = _offset(here, before)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        before, after = (middle, after) if _offset(here, middle) == old else (before, middle)
    return after.replace(microsecond=0)


def judge(schedule: Schedule, due: datetime, now: datetime, catch_up_s: float) -> RunWindow:
    """Say whether a run that was due may begin now: the latest time missed must not be too long ago.

    Several missed times are one run.
    """
    latest, missed = due, 0
    if schedule.expression:
        while missed < _MOST_COUNTED and (following := next_after(schedule, latest)) <= now:
            latest, missed = following, missed + 1
        if missed == _MOST_COUNTED:  # so many that their number means nothing
            latest = now
    late_s = (now - latest).total_seconds()
    return RunWindow(late_s <= max(catch_up_s, _ON_TIME_S), missed, latest)


def is_late(due: datetime, now: datetime) -> bool:
    """Say whether a run begins so much after its time that a person should be told."""
    return (now - due).total_seconds() > _ON_TIME_S


def _real(local: datetime) -> datetime:
    """Give a local time in UTC; one that the clock skips is as much later as the clock goes forward."""
    return local.replace(fold=0).astimezone(UTC)


@lru_cache(maxsize=64)
def _check(plain: str) -> None:
    try:
        next(_times(plain, datetime(2026, 1, 1, tzinfo=UTC)))
    except StopIteration as error:
        raise ConfigError(f"{plain!r} never comes", hint="no such day exists in any year") from error


def _times(plain: str, moment: datetime) -> CronSim:
    try:
        return CronSim(plain, moment)
    except CronSimError as error:
        raise ConfigError(f"{plain!r} is no cron expression ({error})", hint=_EXPRESSION_HINT) from error
