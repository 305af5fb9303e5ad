"""Normalises names for rules and limits, and creates the ids of requests.

`Deploy`, `deploy` and `de\\u200bploy` are one action: compatibility forms and case are folded, control and
invisible characters are dropped. A rule that restricts an action also covers its other spellings, such as
`DeployX`, `deploy--x` or one with a Cyrillic `o`. A rule that allows it does not.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache

from whet.lookalike import to_latin
from whet.visible import is_hidden
from whet_confirm.records import HIGH_RISK_ACTIONS

_PLAIN = re.compile(r"[a-z0-9_.:/]+")
_GLOBS = re.compile(r"(\[!?\]?[^\]]*\]|[*?])")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"(?:[^\w:/]|_)+")
_NAMED_AFTER = re.compile(r"LATIN (?:(?:SMALL|CAPITAL|LETTER|DOTLESS|SCRIPT|OPEN) )+([A-Z])(?: WITH .*)?")
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIME_DIGITS, _RANDOM_DIGITS = 7, 15
_AS_DIGIT = bytes(_DIGITS[byte % 62] for byte in range(256))
_UNEVEN = bytes(range(248, 256))  # dropped, so that all digits are equally likely
_DRAWN_BYTES = 1024  # for about 66 ids
_RANDOM_PARTS: list[str] = []  # `pop` and `extend` are atomic, so threads may share it
os.register_at_fork(after_in_child=_RANDOM_PARTS.clear)  # a child must not use its parent's
ID_PATTERN = "^[0-9A-Za-z]{22}$"
DIGEST_PATTERN = "^[0-9a-f]{64}$"
REQUEST_ID = re.compile(ID_PATTERN)
SHORTEST_S = 30
"""The shortest timeout of a request."""
GATE_PREFIX = "tool:"
"""The prefix of an action that a hook or a gateway submits for an agent's tool call.

Its rate limit is higher: an agent makes many calls of one tool in an hour, and the hook or gateway waits for
each answer."""


@lru_cache(maxsize=4096)
def action_key(action: str) -> str:
    """Return the normalised name of an action."""
    if _PLAIN.fullmatch(action):
        return action
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", action).casefold())
    return " ".join(unicodedata.normalize("NFKC", _drop_hidden(folded)).split())


def _drop_hidden(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c) in ("Zs", "Zl", "Zp") or not is_hidden(c))


@lru_cache(maxsize=4096)
def fold_spelling(action: str) -> str:
    """Return the form that all spellings of an action or a glob share.

    Look-alikes become Latin letters, accents are dropped, and "DeployX", "deploy--x" and "deploy.x" become
    "deploy_x".
    """
    shown = _drop_hidden(unicodedata.normalize("NFKC", action))
    return "".join(
        part if _GLOBS.fullmatch(part) else _fold_words(part) for part in _GLOBS.split(shown) if part
    )


def _fold_words(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKD", to_latin(text))
        text = "".join(map(_find_base, text))
    return _JOINTS.sub("_", _WORD_BEGINS.sub("_", text)).casefold()


def _find_base(character: str) -> str:
    if character.isascii():
        return character
    if unicodedata.category(character) == "Mn":
        return ""
    match = _NAMED_AFTER.fullmatch(unicodedata.name(character, ""))
    return match[1].lower() if match else character


def is_plain_name(pattern: str) -> bool:
    """Return whether a glob matches one name only."""
    return _GLOBS.search(pattern) is None


@lru_cache(maxsize=4096)
def squash_spelling(action: str) -> str:
    """Return the folded form of a name without its separators: `deployproduction`."""
    return re.sub(r"[\W_]", "", fold_spelling(action))


_HIGH_RISK = frozenset(map(squash_spelling, HIGH_RISK_ACTIONS))


@lru_cache(maxsize=4096)
def is_high_risk(key: str) -> bool:
    """Return whether a normalised name always needs a person, in any spelling of its words."""
    return squash_spelling(key) in _HIGH_RISK


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
    """Return the random digits of one id. They are drawn for many ids at once, and each is used once."""
    try:
        return _RANDOM_PARTS.pop()
    except IndexError:
        digits = os.urandom(_DRAWN_BYTES).translate(_AS_DIGIT, _UNEVEN).decode()
        ends = range(_RANDOM_DIGITS, len(digits) + 1, _RANDOM_DIGITS)
        first, *others = (digits[end - _RANDOM_DIGITS : end] for end in ends)
        _RANDOM_PARTS.extend(others)
        return first
