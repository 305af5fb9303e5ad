"""The gateway's rules: which tool calls wait for a person, which pass, and which are refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from whet.config.paths import read_small
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values

Effect = Literal["allow", "ask", "deny"]
_ORDER: tuple[Effect, ...] = ("deny", "ask", "allow")  # the strictest first
_HINT = 'a rule is [[rules]] with tool = "read_*" and effect = "allow"; default = "ask" is for other calls'


class GatewayRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[rules]]`: patterns for the tool's name and for its arguments, all of which must match.

    `arguments` maps the name of an argument (`options.path` for one inside another) to a pattern.
    """

    tool: str = "*"
    arguments: dict[str, str] = {}
    effect: Effect = "ask"

    def matches(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule is about this call."""
        return fnmatchcase(tool, self.tool) and all(
            any(fnmatchcase(text, pattern) for text in _texts(arguments, name))
            for name, pattern in self.arguments.items()
        )


class GatewayRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. The strictest rule that matches a call decides, and `default` if none does."""

    default: Effect = "ask"
    rules: tuple[GatewayRule, ...] = ()

    def judge(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        """Return what happens to a call."""
        matching = {rule.effect for rule in self.rules if rule.matches(tool, arguments)}
        for effect in _ORDER:
            if effect in matching:
                return effect
        return self.default


def read_rules(path: Path | None) -> GatewayRules:
    """Read a rules file; without one every call is asked about. Raises ConfigError."""
    if path is None:
        return GatewayRules()
    text = read_small(path)
    if text is None:
        raise ConfigError(f"there is no rules file {path}", hint=_HINT)
    try:
        return from_values(tomllib.loads(text), GatewayRules)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", hint=_HINT) from error


def _texts(arguments: Mapping[str, Any], name: str) -> list[str]:
    """Return an argument as the texts that a pattern is compared with: each item of a list is one."""
    value: object = arguments
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return []
        value = cast("Mapping[str, object]", value)[part]
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in items]
