"""Clocks, which are also the source of new ids, and the owner's time zone.

A clock is passed as an argument, so that tests can fix time and ids.

Ids sort by creation: milliseconds since the epoch, then random bits, in Crockford base 32.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whet.late import late_pattern

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_owner_zone: str | Callable[[], str] = ""
_ZONE_RULE = late_pattern(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d{1,3}(?::\d\d){0,2}")
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
        return encode_base32(self.unix_ms(), 9) + encode_base32(int.from_bytes(os.urandom(5)) >> 5, 7)


def encode_base32(number: int, width: int) -> str:
    """Write `number` in Crockford base 32 with `width` digits. Higher digits are cut."""
    digits: list[str] = []
    for _ in range(width):
        digits.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def use_zone(name: str | Callable[[], str]) -> None:
    """Set the owner's time zone for this process. A function is called when a time is first shown. The zone
    must exist; an empty string means the machine's."""
    global _owner_zone
    _owner_zone = name


def _read_owner_zone() -> str:
    if not isinstance(_owner_zone, str):
        use_zone(_owner_zone())
    assert isinstance(_owner_zone, str)
    return _owner_zone


def local_zone() -> str:
    """Return the owner's time zone, or this machine's. Returns a rule as in TZ (CET-1CEST,M3.5.0,M10.5.0/3)
    if the zone has no name, and UTC if it is unknown."""
    if zone := _read_owner_zone():
        return zone
    variable = os.environ.get("TZ", "").removeprefix(":")
    named = name_zone_file(Path(variable)) if variable.startswith("/") else variable
    for name in filter(None, (named, name_zone_file(Path("/etc/localtime")))):
        with suppress(KeyError, ValueError, OSError):
            return str(read_zone(name).key)
    return "UTC"


def name_zone_file(path: Path, names: Path = Path("/etc/timezone")) -> str:
    """Return the name of the zone in a time zone file, or the rule at its end if the name is unknown.

    The name is that of the system's zone file that `path` links to. Otherwise it is read from the file
    `names`, and compared with the system's zone of that name: a container may have another machine's file.
    If `path` can't be read, the name in `names` is returned unchecked, or an empty string.
    """
    from zoneinfo import TZPATH  # noqa: PLC0415 - 5 ms of a start

    if name := os.path.realpath(path).partition("zoneinfo/")[2]:
        return name
    with suppress(OSError, UnicodeDecodeError):
        name = names.read_text("ascii").strip()
    with suppress(OSError, UnicodeDecodeError):
        content = path.read_bytes()
        for folder in TZPATH if name else ():
            with suppress(OSError):
                if Path(folder, name).read_bytes() == content:
                    return name
        return content.removesuffix(b"\n").rpartition(b"\n")[2].decode("ascii")
    return name


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, or by a rule as in TZ. Raises KeyError, ValueError or OSError."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - 5 ms of a start

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        if not _ZONE_RULE.match(name):
            raise
    # A zone file with one type and no changes, which ends with the rule. A summer time without dates has
    # those of the United States.
    summer = _ZONE_RULE.sub("", name, count=1)
    rule = f"{name},M3.2.0,M11.1.0" if summer and "," not in summer else name
    table = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0"
    return ZoneInfo.from_file(io.BytesIO(table * 2 + b"\n" + rule.encode("ascii") + b"\n"), key=name)


def local_time(moment: datetime, zone: str = "") -> datetime:
    """Convert a time to `zone`, which must exist, or by default to the owner's zone."""
    zone = zone or _read_owner_zone()
    if not zone and set(time.tzname) == {"UTC"}:
        return moment.astimezone(UTC)
    if zone:
        return moment.astimezone(read_zone(zone))
    local, named = moment.astimezone(), moment.astimezone(read_zone(local_zone()))
    return named if named.utcoffset() == local.utcoffset() else local


def local_minute(moment: str) -> str:
    """Return a stored time (ISO, UTC) in the owner's time zone, as 2026-11-21 14:05. Other text stays."""
    try:
        return local_time(datetime.fromisoformat(moment)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return moment[:16]


def local_day(moment: str) -> str:
    """Return the day of a stored time (ISO, UTC) in the owner's time zone, as 2026-11-21."""
    return local_minute(moment)[:10]


def midnight_before(moment: datetime) -> datetime:
    """Return when the day of a time began in the owner's zone."""
    return local_time(moment).replace(hour=0, minute=0, second=0, microsecond=0)


def iso(moment: datetime) -> str:
    """Format a UTC time as it is stored: 2026-11-21T02:15:30.123Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
