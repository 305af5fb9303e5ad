"""Ids of requests: 22 letters and digits that sort by time and can't be guessed.

Seven digits of base 62 hold the milliseconds since the epoch, fifteen hold 89 random bits.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME_DIGITS, _RANDOM_DIGITS = 7, 15
_AS_DIGIT = bytes(_DIGITS[byte % 62] for byte in range(256))
_UNEVEN = bytes(range(248, 256))  # left out, or the first digits would come more often
SHAPE = re.compile(r"[0-9A-Za-z]{22}")


def new_request_id(now_s: float) -> str:
    """Give a new id for a request that is submitted at `now_s` (Unix seconds)."""
    rest, digit = divmod(int(now_s * 1000), len(_DIGITS))
    return f"{_time_part(rest)}{_DIGITS[digit]:c}{_random_part()}"


@lru_cache(maxsize=1)  # changes every 62 ms
def _time_part(rest: int) -> str:
    digits = bytearray()
    for _ in range(_TIME_DIGITS - 1):
        rest, digit = divmod(rest, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return digits[::-1].decode()


def _random_part() -> str:
    found = b""
    while len(found) < _RANDOM_DIGITS:
        found += secrets.token_bytes(24).translate(_AS_DIGIT, _UNEVEN)
    return found[:_RANDOM_DIGITS].decode()
