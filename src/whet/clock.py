"""Time and ids, injectable, so that tests can fix both.

Ids sort by creation: milliseconds since the epoch, then random bits, in Crockford base 32.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Protocol

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


def iso(moment: datetime) -> str:
    """Format a UTC time as it is stored: 2026-11-21T02:15:30.123Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
