"""When a schedule is due: cron expressions in a time zone, single times, and what a missed time becomes.

Daylight saving, as cron on Debian does it: a time of day that the clock skips comes when the clock goes on
(02:30 at 03:00), one that comes twice comes the first time only; what runs in every hour keeps its real
distance. Pure but for `local_zone`, which reads the machine's setting.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
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
    local = moment.astimezone(zone(schedule.time_zone))
    # What does not run in each hour has run in a doubled hour's first pass: again an hour later would be no
    # even distance.
    is_hourly = schedule.expression.split(" ")[1] in ("*", "*/1")
    for one in _times(schedule.expression, local):
        found = one.astimezone(UTC)
        # A moment in the second pass is given its own hour's first pass again.
        if found > moment and (is_hourly or found.astimezone(local.tzinfo).fold == 0):
            return found
    raise RuntimeError("a checked expression has come to its end")


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
