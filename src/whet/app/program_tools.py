"""Functions of the program that embeds Whet, made into tools of its agent.

They are the program's own code, so a call runs without a question, as a tool that only reads does. One that
writes, sends or costs says so with `@tool(effects=...)` and then meets the gate's rules and questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

from whet.contract.errors import ConfigError
from whet.contract.tools import Effect, Tool
from whet.lanes import ToolPool
from whet.tools.registry import Registry
from whet.tools.signature import make_tool

F = TypeVar("F", bound=Callable[..., object])
_MARK = "__whet_tool__"


class FunctionOptions(TypedDict, total=False):
    """What a program says of its function: `name` and `description` instead of its own and its docstring's,
    `effects` ("read" where it says nothing), and the limits of `whet.Tool`."""

    name: str
    description: str
    effects: Iterable[Effect]
    parallel: bool
    repeatable: bool
    timeout_s: float | None
    output_cap_chars: int
    tags: Iterable[str]


def tool(**options: Unpack[FunctionOptions]) -> Callable[[F], F]:
    """Say more of a function that becomes a tool than its signature does; the function stays as it is."""

    def mark(function: F) -> F:
        setattr(function, _MARK, options)
        return function

    return mark


def with_functions(
    registry: Registry, given: Sequence[Tool | Callable[..., object]], pool: ToolPool
) -> Registry:
    """Give the registry with the program's tools after all others. Raises ConfigError for a name that comes
    twice, TypeError for a function that can't be a tool."""
    added = Registry(registry.by_name.values())
    for item in given:
        made = item if isinstance(item, Tool) else _of_function(item, pool)
        if made.name in added.by_name:
            raise ConfigError(
                f"there is a tool named {made.name} already", hint='@whet.tool(name="...") gives it another'
            )
        added.add(made)
    return added


def _of_function(function: Callable[..., object], pool: ToolPool) -> Tool:
    options: dict[str, Any] = {"toolset": "program", "effects": {"read"}, **getattr(function, _MARK, {})}
    return make_tool(function, pool=pool, **options)
