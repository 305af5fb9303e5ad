"""Whet's own risk rating of the commands in a request, for the confirmation service's page and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from whet_confirm.risk import RiskReading

_COMMANDS = frozenset(
    ("command", "cmd", "commands", "script", "shell", "bash", "sh", "run", "exec", "args", "argv")
)
_MAX_COMMANDS = 20


def read_risk(details: Mapping[str, Any]) -> RiskReading | None:
    """Rate every command in the details, at any depth, and return the worst rating.

    Returns None if there is no command.
    """
    commands = [text for text in _find_commands(details) if text.strip()][:_MAX_COMMANDS]
    if not commands:
        return None
    # tree-sitter and the program tables take 60 ms to import, so they are imported for the first command.
    from whet.approval.risk import RiskScope, worst  # noqa: PLC0415
    from whet.approval.shell_risk import analyse  # noqa: PLC0415

    scope = RiskScope("/nowhere/workspace", "/nowhere/home", "/nowhere/home/.whet")
    readings = [analyse(command, scope.workspace, scope) for command in commands]
    level = worst(reading.level for reading in readings)
    reasons = tuple(dict.fromkeys(reason for reading in readings for reason in reading.reasons))
    if level in ("dangerous", "forbidden"):
        return RiskReading("dangerous", reasons[:6] or ("it can't be told what it runs",))
    return RiskReading("safe" if level == "safe" else "normal", reasons[:6])


def _find_commands(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _find_commands(inner, key.lower())
    elif isinstance(value, list):
        items = cast("list[object]", value)
        if name in _COMMANDS and items and all(isinstance(item, str) for item in items):
            yield " ".join(cast("list[str]", items))
        for inner in items:
            yield from _find_commands(inner, name)
    elif isinstance(value, str) and name in _COMMANDS:
        yield value
