"""Names as rules and limits compare them.

`Deploy`, `deploy` and `de\u200bploy` are one action: compatibility forms are folded, case is folded, control
and invisible characters are dropped.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from whet.confirm.records import HIGH_RISK_ACTIONS

_PLAIN = re.compile(r"[a-z0-9_.:/]+")
_JOINTS = re.compile(r"[\s\-.]+")


@lru_cache(maxsize=4096)
def action_key(action: str) -> str:
    """Give the normalised name of an action."""
    if _PLAIN.fullmatch(action):
        return action
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", action).casefold())
    kept = "".join(c for c in folded if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return " ".join(kept.split())


@lru_cache(maxsize=4096)
def is_high_risk(key: str) -> bool:
    """Whether a normalised name always needs a person; `wipe-database` is `wipe_database`."""
    return _JOINTS.sub("_", key) in HIGH_RISK_ACTIONS


@lru_cache(maxsize=4096)
def person_key(name: str) -> str:
    """Give a principal's name as people are told apart: `Agent`, `agent` and `ａgent` are one."""
    return action_key(name).replace(" ", "")


def is_same_person(one: str, other: str) -> bool:
    """Whether two principals' names stand for one person."""
    return one == other or person_key(one) == person_key(other)
