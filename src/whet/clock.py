"""Time and ids, injectable, so that tests can fix both; and the time zone of this machine.

Ids sort by creation: milliseconds since the epoch, then random bits, in Crockford base 32.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_owner_zone = ""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """The source of time and ids."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...

    def unix_ms(self) -> int:
        """Return the current time in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go back, for durations."""
        ...

    def new_id(self) -> str:
        """Return a new id of 16 characters that sorts after earlier ones."""
        ...


class SystemClock:
    """The machine's own time and randomness."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def unix_ms(self) -> int:
        """Return the current time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def new_id(self) -> str:
        """Return a new id: 45 bits of time, 35 bits of randomness."""
        return encode_base32(self.unix_ms(), 9) + encode_base32(secrets.randbits(35), 7)


def encode_base32(number: int, width: int) -> str:
    """Write `number` in Crockford base 32 with `width` digits. Higher digits are cut."""
    digits: list[str] = []
    for _ in range(width):
        digits.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def use_zone(name: str) -> None:
    """Set the owner's time zone for this process; an empty string means the machine's. It must exist."""
    global _owner_zone
    _owner_zone = name


def local_zone() -> str:
    """Return the name of the owner's or this machine's time zone, or UTC if it is unknown."""
    if _owner_zone:
        return _owner_zone
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - 5 ms of a start

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


def local_time(moment: datetime, zone: str = "") -> datetime:
    """Return a time in a zone, or in the owner's if none is named. The zone must exist."""
    zone = zone or _owner_zone
    if not zone and set(time.tzname) == {"UTC"}:
        return moment.astimezone(UTC)
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - 5 ms of a start

    if zone:
        return moment.astimezone(ZoneInfo(zone))
    local, named = moment.astimezone(), moment.astimezone(ZoneInfo(local_zone()))
    # TZ may hold a rule of its own (CET-1CEST), which has no name
    return named if named.utcoffset() == local.utcoffset() else local


def midnight_before(moment: datetime) -> datetime:
    """Return when the day of a moment began in the local zone."""
    return local_time(moment).replace(hour=0, minute=0, second=0, microsecond=0)


def iso(moment: datetime) -> str:
    """Format a UTC time as it is stored: 2026-11-21T02:15:30.123Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
