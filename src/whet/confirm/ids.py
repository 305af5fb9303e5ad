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
    return _time_part(int(now_s * 1000)) + _random_part()


@lru_cache(maxsize=1)  # many come in one millisecond
def _time_part(now_ms: int) -> str:
    digits = bytearray()
    for _ in range(_TIME_DIGITS):
        now_ms, digit = divmod(now_ms, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return digits[::-1].decode()


def _random_part() -> str:
    found = b""
    while len(found) < _RANDOM_DIGITS:
        found += secrets.token_bytes(24).translate(_AS_DIGIT, _UNEVEN)
    return found[:_RANDOM_DIGITS].decode()
