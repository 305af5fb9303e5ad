"""Names in the form that rules and limits compare, and the ids of requests.

`Deploy`, `deploy` and `de\\u200bploy` are one action: compatibility forms and case are folded, control and
invisible characters are dropped.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from functools import lru_cache

from whet_confirm.records import HIGH_RISK_ACTIONS

_PLAIN = re.compile(r"[a-z0-9_.:/]+")
_JOINTS = re.compile(r"[\s\-.]+")
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME_DIGITS, _RANDOM_DIGITS = 7, 15
_AS_DIGIT = bytes(_DIGITS[byte % 62] for byte in range(256))
_UNEVEN = bytes(range(248, 256))  # dropped, so that all digits are equally likely
REQUEST_ID = re.compile(r"[0-9A-Za-z]{22}")
GATE_PREFIX = "tool:"
"""Begins the action of a call that a gate holds: a hook or a gateway. It waits for each answer, so it can't
flood people as fast as a caller that only submits, and an agent makes many calls of one tool in an hour."""


@lru_cache(maxsize=4096)
def action_key(action: str) -> str:
    """Return the normalised name of an action."""
    if _PLAIN.fullmatch(action):
        return action
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", action).casefold())
    visible = "".join(c for c in folded if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return " ".join(visible.split())


@lru_cache(maxsize=4096)
def is_high_risk(key: str) -> bool:
    """Return whether a normalised name always needs a person. `wipe-database` counts as `wipe_database`."""
    return _JOINTS.sub("_", key) in HIGH_RISK_ACTIONS


@lru_cache(maxsize=4096)
def person_key(name: str) -> str:
    """Return the normalised name of a principal: `Agent`, `agent` and `ａgent` are one person."""
    return action_key(name).replace(" ", "")


def is_same_person(name: str, other: str) -> bool:
    """Return whether two principals' names denote one person."""
    return name == other or person_key(name) == person_key(other)


def new_request_id(now_s: float) -> str:
    """Return a new id for a request that is submitted at `now_s` (Unix seconds)."""
    quotient, digit = divmod(int(now_s * 1000), len(_DIGITS))
    return f"{_time_part(quotient)}{_DIGITS[digit]:c}{_random_part()}"


@lru_cache(maxsize=1)  # changes every 62 ms
def _time_part(value: int) -> str:
    digits = bytearray()
    for _ in range(_TIME_DIGITS - 1):
        value, digit = divmod(value, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return digits[::-1].decode()


def _random_part() -> str:
    digits = b""
    while len(digits) < _RANDOM_DIGITS:
        digits += secrets.token_bytes(24).translate(_AS_DIGIT, _UNEVEN)
    return digits[:_RANDOM_DIGITS].decode()
