"""An engine's own tools as tools of the session.

Schemas come bare or wrapped; one that no provider would accept is left out, visibly, because a single bad
schema makes a server refuse every request. A call runs on the engine's lane.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, cast

import msgspec

from whet.context.seat import EngineRunner, accepted
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec

TOOLSET = "context_engine"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def engine_tools(seat: EngineRunner, taken: Collection[str]) -> list[Tool]:
    """Give the engine's tools except those whose name is taken; the engine is asked once."""
    if seat.tools is not None:
        return seat.tools
    outcome = await seat.run("get_tool_schemas", lambda: list(seat.engine.get_tool_schemas()))
    tools: dict[str, Tool] = {}
    for schema in outcome.value or []:
        spec = _spec(schema)
        if isinstance(spec, str):
            if spec:
                seat.note(f"{seat.name}: {spec}")
        elif spec.name in taken:
            seat.note(f"{seat.name}: its tool {spec.name} is left out, there is one of that name")
        elif spec.name not in tools:
            tools[spec.name] = _tool(seat, spec)
    seat.tools = list(tools.values())
    return seat.tools


def _spec(schema: object) -> ToolSpec | str:
    """Give a schema as a spec, or why it can't be one ("" for one without a name)."""
    bare = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    inner = bare.get("function")
    if isinstance(inner, dict):
        bare = cast("dict[str, Any]", inner)
    name = bare.get("name")
    if not isinstance(name, str) or not name:
        return ""
    if not _NAME.fullmatch(name):
        return f"its tool {name[:80]!r} is left out, no server would accept the name"
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    parameters: object = bare.get("parameters") or empty
    if not isinstance(parameters, dict) or cast("dict[str, Any]", parameters).get("type") != "object":
        return f"its tool {name} is left out, its parameters are no JSON schema object"
    try:
        plain = json.loads(json.dumps(parameters, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"its tool {name} is left out, its schema is not JSON ({error})"
    return ToolSpec(name, str(bare.get("description") or name), plain)


def _tool(seat: EngineRunner, spec: ToolSpec) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        rows = list(seat.live())
        hook = seat.engine.handle_tool_call
        keywords = accepted(hook, {"messages": rows})
        outcome = await seat.run(
            f"the tool {spec.name}",
            lambda: hook(spec.name, arguments, **keywords),
            seat.deadlines.compress_s,
        )
        if outcome.error is not None:
            text = json.dumps({"error": f"{type(outcome.error).__name__}: {outcome.error}"})
            return ToolOutput(text, error_kind="failed")
        answer: object = outcome.value
        return ToolOutput(answer if isinstance(answer, str) else _as_json(answer))

    return Tool(
        spec, TOOLSET, frozenset({"read"}), run, repeatable=True, timeout_s=None, tags=frozenset({seat.name})
    )


def _as_json(answer: object) -> str:
    return msgspec.json.encode(answer, enc_hook=str).decode()
