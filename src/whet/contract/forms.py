"""Formats of text settings, such as rules, addresses and time zones. The settings reader and the code that
uses a setting share the same expressions, so no value is accepted that would fail later."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from whet.contract.texts import split_http_url
from whet.late import late_pattern

_RULE = r"\s*(?P<tool>[\w*?.:/-]+)\s*(?:\((?P<pattern>.*\S.*)\))?\s*"
RULE = late_pattern(_RULE, re.DOTALL)
"""`tool` or `tool(pattern)`."""
ACTION_RULE = late_pattern(rf"(?s:{_RULE})=\s*(?P<action>[a-z][a-z0-9_.-]{{0,63}})\s*", re.DOTALL)
"""A rule and the name of the action that it maps to."""
BACKEND = late_pattern(
    r"\s*(?:local|container\s+(?P<image>[^-\s]\S*)|ssh\s+(?P<host>[^-\s]\S*)(?:\s+(?P<folder>[^-\s]\S*))?)\s*"
)
"""Where commands run: on this machine, in a container, or on another machine by ssh."""
_HOST = late_pattern(r"(?:\*\.)?[\w.-]*\w|\[?[0-9a-fA-F:.]+\]?")
_VARIABLES = late_pattern(r"\s*\w+\s*(?:,\s*\w+\s*)*")
DATABASE_SCHEMES = ("postgresql://", "postgres://")


class SettingForm(msgspec.Struct, frozen=True):
    """The format of a setting. `allowed` describes valid values to a person; `is_valid` returns a true value
    for them."""

    allowed: str
    is_valid: Callable[[str], object]


def _is_service(text: str) -> bool:
    return text.startswith("unix:/") or split_http_url(text) is not None


def _is_rule(text: str) -> bool:
    match = RULE.fullmatch(text)
    pattern = (match and match["pattern"]) or ""
    return match is not None and not (pattern.endswith(")") and pattern.count(")") > pattern.count("("))


def _is_zone(text: str) -> bool:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - 5 ms of a start that few settings need

    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        return False
    return True


FORMS = {
    "rule": SettingForm(
        "tool or tool(pattern), such as terminal(git commit *), with no parenthesis too many", _is_rule
    ),
    "action": SettingForm(
        "tool(pattern) = action, such as terminal(make release *) = publish_package",
        lambda text: ACTION_RULE.fullmatch(text),
    ),
    "backend": SettingForm(
        "local, container IMAGE, or ssh HOST [FOLDER]", lambda text: BACKEND.fullmatch(text)
    ),
    "host": SettingForm(
        "a host's name such as api.example.com, *.example.com, or a preset",
        lambda text: _HOST.fullmatch(text),
    ),
    "variables": SettingForm("names of variables, comma-separated", lambda text: _VARIABLES.fullmatch(text)),
    "address": SettingForm("an http(s) URL such as http://localhost:11434/v1", split_http_url),
    "service": SettingForm("an http(s) URL such as http://127.0.0.1:6000, or unix:/PATH", _is_service),
    "zone": SettingForm("a time zone such as Europe/Berlin", _is_zone),
    "database": SettingForm(
        "postgresql://user@host/database", lambda text: text.startswith(DATABASE_SCHEMES)
    ),
}
"""The formats, by the name used in the schema."""

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
# The types of settings with a format of FORMS. A setting whose default is the empty text accepts it, too.
Rules = Annotated[tuple[str, ...], msgspec.Meta(extra={"form": "rule"})]
Address = Annotated[str, msgspec.Meta(extra={"form": "address"})]
Variables = Annotated[str, msgspec.Meta(extra={"form": "variables"})]
