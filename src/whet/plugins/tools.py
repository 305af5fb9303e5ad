"""Make a `Tool` from a plugin's schema and handler.

A handler is called as `handler(args, **facts)`, where `args` is the dict of arguments. It may be async. It
returns text, data that JSON can express, or a `ToolOutput`. Without declared effects, a tool counts as
dangerous and its output as untrusted, so that the gate asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack, get_args

from whet.contract.errors import BadInput, PluginError
from whet.contract.texts import as_object
from whet.contract.tools import (
    TOOL_NAME,
    Effect,
    Handler,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
    is_json_type,
)
from whet.plugins.calls import accepted_keywords, attribute_errors, call

_ALLOWED_TAGS = frozenset({"untrusted", "destructive"})


class PluginToolOptions(TypedDict, total=False):
    """The options of register_tool beyond name, toolset, schema and handler.

    `check_fn` and `requires_env` decide once whether the tool can work here. `override` replaces a built-in
    tool. A plugin may only set `tags` that make a tool less trusted. `emoji` and `is_async` have no effect;
    plugins of other programs pass them.
    """

    description: str
    effects: Iterable[Effect]
    tags: Iterable[str]
    parallel: bool
    repeatable: bool
    timeout_s: float | None
    output_cap_chars: int
    check_fn: Callable[[], object] | None
    requires_env: Iterable[str] | None
    emoji: str
    is_async: bool
    override: bool


def make_tool(
    plugin: str,
    name: str,
    toolset: str,
    schema: Mapping[str, Any],
    handler: Callable[..., object],
    **options: Unpack[PluginToolOptions],
) -> Tool:
    """Make a tool. Raises PluginError if the registration is invalid.

    `schema` is a function schema, bare or wrapped as {"type": "function", "function": ...}, or only the
    parameters' JSON schema.
    """
    if not TOOL_NAME.fullmatch(name):
        raise _registration_error(
            plugin, f"the tool name {name[:80]!r} is not usable (letters, digits, _ and -)"
        )
    if not callable(handler):
        raise _registration_error(plugin, f"the handler of {name} can't be called")
    unknown = set(options) - set(PluginToolOptions.__annotations__)
    if unknown:
        raise _registration_error(plugin, f"register_tool does not know {', '.join(sorted(unknown))}")
    spec = _make_spec(plugin, name, schema, options.get("description", ""))
    effects = frozenset(options.get("effects", ("execute",)))
    if unknown_effects := effects - set(get_args(Effect)):
        raise _registration_error(
            plugin, f"{name} has the unknown effect {', '.join(sorted(unknown_effects))}"
        )
    tags = frozenset(options.get("tags", ("untrusted",)))
    if forbidden := tags - _ALLOWED_TAGS:
        raise _registration_error(
            plugin, f"{name} claims {', '.join(sorted(forbidden))}, which only Whet's own tools have"
        )
    return Tool(
        spec=spec,
        toolset=toolset or plugin,
        effects=effects or frozenset({"execute"}),
        run=_make_runner(plugin, spec, handler),
        parallel=options.get("parallel", False),
        repeatable=options.get("repeatable", False),
        timeout_s=options.get("timeout_s", 120.0),
        output_cap_chars=options.get("output_cap_chars", 30_000),
        tags=tags,
    )


def _make_spec(plugin: str, name: str, schema: Mapping[str, Any], description: str) -> ToolSpec:
    bare = as_object(schema.get("function", schema))
    is_only_parameters = bare.get("type") == "object" and "parameters" not in bare
    parameter_schema = bare if is_only_parameters else bare.get("parameters") or {}
    parameters = as_object(parameter_schema)
    if not bare or not isinstance(parameter_schema, dict) or not _is_json(parameters):
        raise _registration_error(plugin, f"the schema of {name} is not a function schema")
    summary = description or ("" if is_only_parameters else str(bare.get("description", "")))
    return ToolSpec(name, summary, {"type": "object", "properties": {}, **parameters})


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _make_runner(plugin: str, spec: ToolSpec, handler: Callable[..., object]) -> Handler:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        check_arguments(spec, arguments)
        facts = {
            "session_id": context.session_id,
            "task_id": context.session_id,
            "turn_id": context.turn_id,
            "tool_call_id": context.call_id,
            "workspace": str(context.workspace),
        }
        try:
            with attribute_errors(plugin, f"the tool {spec.name}"):
                return to_output(await call(handler, arguments, **accepted_keywords(handler, facts)))
        except PluginError as error:
            text = f"{spec.name} of the plugin {plugin} crashed: {error.message}"
            return ToolOutput(text, error_kind="crashed")

    return run


def to_output(value: object) -> ToolOutput:
    """Convert a handler's return value to a tool output. A JSON object with an `error` counts as failed."""
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return ToolOutput("done")
    if isinstance(value, str):
        return ToolOutput(value, error_kind="failed" if _has_error(value) else "")
    text = json.dumps(value, ensure_ascii=False, default=str)
    return ToolOutput(text, error_kind="failed" if _has_error(text) else "")


def _has_error(text: str) -> bool:
    if '"error"' not in text[:200] or not text.lstrip().startswith("{"):
        return False
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(value.get("error"))


def check_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
    """Raise BadInput if a required argument is missing or an argument has the wrong type."""
    properties = as_object(spec.parameters.get("properties"))
    for name in spec.parameters.get("required") or ():
        if name not in arguments:
            hint = f"it takes: {', '.join(properties)}"
            raise BadInput(f"{spec.name} needs the argument {name!r}", hint=hint)
    for name, value in arguments.items():
        kind = as_object(properties.get(name)).get("type")
        if isinstance(kind, str) and not is_json_type(kind, value):
            raise BadInput(f"{spec.name}: {name!r} must be of type {kind}", hint="nothing was run")


def _registration_error(plugin: str, reason: str) -> PluginError:
    return PluginError(reason, plugin=plugin, hook="register_tool")
