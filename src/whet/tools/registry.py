"""The tools of one process, in a fixed order.

Sessions send exactly this order and these bytes, so neither depends on hashing or time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from whet.contract.errors import BadInput, ConfigError
from whet.contract.tags import BUILT_IN
from whet.contract.texts import from_json
from whet.contract.tools import Tool, ToolSpec
from whet.tools.signature import suggest

TOOLSETS = ("file", "terminal", "web", "memory", "skills", "session", "delegation", "planning", "code")


class Registry:
    """Tools by name, in the order they were given. Raises ConfigError if a name occurs twice."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.by_name: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool at the end. Raises ConfigError if its name exists."""
        if tool.spec.name in self.by_name:
            raise ConfigError(
                f"two tools are named {tool.name}", hint="disable the plugin that brings the second one"
            )
        self.by_name[tool.spec.name] = tool

    def select(self, toolsets: Iterable[str], disabled: Iterable[str] = ()) -> Registry:
        """Return the tools of these toolsets without the disabled ones, in this registry's order.

        A known toolset without tools adds nothing; an unknown one raises ConfigError.
        """
        chosen, without = list(toolsets), set(disabled)
        toolset_names = dict.fromkeys([*TOOLSETS, *(tool.toolset for tool in self.by_name.values())])
        for name in chosen:
            _check("toolset", name, toolset_names, "tools.toolsets")
        for name in sorted(without):
            _check("tool", name, {**BUILT_IN, **self.by_name}, "tools.disabled")
        return Registry(
            tool for tool in self.by_name.values() if tool.toolset in chosen and tool.spec.name not in without
        )

    def get(self, name: str) -> Tool:
        """Return the tool of that name. Raises BadInput of kind unknown_tool with the nearest name."""
        match = self.by_name.get(name)
        if match is None:
            message = f"there is no tool named {name!r}{suggest(name, self.by_name)}"
            error = BadInput(message, hint="the tools are: " + ", ".join(self.by_name))
            error.kind = "unknown_tool"
            raise error
        return match

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specs that the model gets, in order."""
        return tuple(tool.spec for tool in self.by_name.values())

    @property
    def tools_json(self) -> bytes:
        """The specs as JSON for storing. Specs read back with `read_specs` encode to the same bytes."""
        return msgspec.json.encode(self.specs())


class OfferedTools:
    """The tools that new sessions get. `trust` receives them again whenever they change."""

    def __init__(self, registry: Registry, trust: Callable[[Iterable[Tool]], None]) -> None:
        self._trust = trust
        self.offer(registry)

    def offer(self, registry: Registry) -> None:
        """Offer other tools from now on."""
        self.registry: Registry = registry
        self._trust(registry.by_name.values())

    @property
    def by_name(self) -> dict[str, Tool]:
        """The tools by name, in their order."""
        return self.registry.by_name


def read_specs(tools_json: bytes) -> tuple[ToolSpec, ...]:
    """Return the specs that `tools_json` was made from, with their key order."""
    return from_json(tools_json, tuple[ToolSpec, ...])


def _check(kind: str, name: str, known_names: Iterable[str], setting: str) -> None:
    names = list(known_names)
    if name in names:
        return
    message = f"{setting} names the unknown {kind} {name!r}{suggest(name, names)}"
    raise ConfigError(message, hint=f"known: {', '.join(names)}")
