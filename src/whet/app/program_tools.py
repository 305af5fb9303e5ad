"""Make tools from functions of the program that embeds Whet.

They are the program's own code, so by default a call runs without a question, like a tool that only reads.
If a function writes, sends or costs money, `@tool(effects=...)` declares that, and the gate's rules and
questions apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

from whet.contract.errors import ConfigError
from whet.contract.tools import Effect, Tool
from whet.lanes import ToolPool
from whet.tools.registry import Registry
from whet.tools.signature import make_tool

F = TypeVar("F", bound=Callable[..., object])
_MARK = "__whet_tool__"


class FunctionOptions(TypedDict, total=False):
    """Options of a function: `name` and `description` replace its own name and docstring, `effects` defaults
    to "read", and the limits are those of `whet.Tool`."""

    name: str
    description: str
    effects: Iterable[Effect]
    parallel: bool
    repeatable: bool
    timeout_s: float | None
    output_cap_chars: int
    tags: Iterable[str]


def tool(**options: Unpack[FunctionOptions]) -> Callable[[F], F]:
    """Attach tool options to a function; the function itself does not change. Raises TypeError for an
    option that is not in FunctionOptions."""
    check_options("whet.tool", options, FunctionOptions)

    def mark(function: F) -> F:
        setattr(function, _MARK, options)
        return function

    return mark


def check_options(name: str, options: Mapping[str, object], schema: type) -> None:
    """Raise TypeError if an option is not a field of the TypedDict `schema`, as Python does for arguments."""
    if unknown := sorted(options.keys() - schema.__annotations__.keys()):
        fields = ", ".join(schema.__annotations__)
        raise TypeError(f"{name} has no argument {unknown[0]!r}; it takes {fields}")


def add_functions(
    registry: Registry, functions: Sequence[Tool | Callable[..., object]], pool: ToolPool
) -> Registry:
    """Return the registry with the program's tools after all others. Raises ConfigError if a name exists
    already, TypeError if a function can't be a tool."""
    added = Registry(registry.by_name.values())
    for item in functions:
        new_tool = item if isinstance(item, Tool) else _make_function_tool(item, pool)
        if new_tool.name in added.by_name:
            raise ConfigError(
                f"there is a tool named {new_tool.name} already",
                hint='@whet.tool(name="...") gives it another',
            )
        added.add(new_tool)
    return added


def _make_function_tool(function: Callable[..., object], pool: ToolPool) -> Tool:
    options: dict[str, Any] = {"toolset": "program", "effects": {"read"}, **getattr(function, _MARK, {})}
    return make_tool(function, pool=pool, **options)
