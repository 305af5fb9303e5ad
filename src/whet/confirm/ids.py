"""Ids of requests: 22 letters and digits that sort by time and can't be guessed.

Seven digits of base 62 hold the milliseconds since the epoch, fifteen hold 89 random bits.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_TIME_DIGITS = 7
_RANDOM_DIGITS = 15
_RANDOM_LIMIT = 62**_RANDOM_DIGITS
SHAPE = re.compile(r"[0-9A-Za-z]{22}")


def new_request_id(now_s: float) -> str:
    """Give a new id for a request that is submitted at `now_s` (Unix seconds)."""
    return _time_part(int(now_s * 1000)) + _base62(secrets.randbelow(_RANDOM_LIMIT), _RANDOM_DIGITS)


@lru_cache(maxsize=1)  # many come in one millisecond
def _time_part(now_ms: int) -> str:
    return _base62(now_ms, _TIME_DIGITS)


def _base62(number: int, width: int) -> str:
    pairs: list[str] = []
    for _ in range((width + 1) // 2):
        number, pair = divmod(number, len(_PAIRS))
        pairs.append(_PAIRS[pair])
    return "".join(reversed(pairs))[-width:]
