"""Which skills a request offers, as its prompt lists them, and how the stand-in opens one."""

from __future__ import annotations

import re

import msgspec

from whet.practice.ask import PracticeCall, PracticeRequest

_INDEX_LINE = re.compile(r"^\W*([a-z0-9][a-z0-9-]*)\W*[:—–-]+ +(.+)$", re.M)


def offered(ask: PracticeRequest) -> list[tuple[str, str]]:
    """Give name and description of every line of the prompt that reads like one of a skill index."""
    return _INDEX_LINE.findall(ask.system) if "skill_view" in ask.offers else []


def to_open(ask: PracticeRequest, start: int, words: re.Pattern[str]) -> list[str]:
    """Give the skills whose name or description holds `words` and that were not opened since `start`."""
    opened = {d.arguments.get("name") for d in ask.done if d.at > start and d.name == "skill_view"}
    return [name for name, about in offered(ask) if words.search(f"{name} {about}") and name not in opened]


def opening(name: str) -> PracticeCall:
    """Give the call that opens a skill."""
    return PracticeCall("skill_view", msgspec.json.encode({"name": name}).decode())
