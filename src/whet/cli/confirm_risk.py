"""Whet's own reading of the commands in a request, for the confirmation service's page and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from whet.confirm.risk import RiskReading

_COMMANDS = frozenset(
    ("command", "cmd", "commands", "script", "shell", "bash", "sh", "run", "exec", "args", "argv")
)
_MOST = 20


def read_risk(details: Mapping[str, Any]) -> RiskReading | None:
    """Read every command in the details, at any depth; the worst counts. None where there is none."""
    commands = [text for text in _commands(details) if text.strip()][:_MOST]
    if not commands:
        return None
    # tree-sitter and the tables of programs: 60 ms, when the first command is shown.
    from whet.approval.risk import RiskScope, worst  # noqa: PLC0415
    from whet.approval.shell_risk import analyse  # noqa: PLC0415

    place = RiskScope("/nowhere/workspace", "/nowhere/home", "/nowhere/home/.whet")
    found = [analyse(command, place.workspace, place) for command in commands]
    level = worst(one.level for one in found)
    reasons = tuple(dict.fromkeys(reason for one in found for reason in one.reasons))
    if level in ("dangerous", "forbidden"):
        return RiskReading("dangerous", reasons[:6] or ("it can't be told what it runs",))
    return RiskReading("safe" if level == "safe" else "normal", reasons[:6])


def _commands(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _commands(inner, key.lower())
    elif isinstance(value, list):
        items = cast("list[object]", value)
        if name in _COMMANDS and items and all(isinstance(one, str) for one in items):
            yield " ".join(cast("list[str]", items))
        for inner in items:
            yield from _commands(inner, name)
    elif isinstance(value, str) and name in _COMMANDS:
        yield value
