"""Lists the available engines, defines the one that never compacts, and turns an engine's tools into session
tools.

Built-in engines and those of plugins are offered in the same way. Choosing an unknown one returns the
default and a reason. Tool schemas may be bare or wrapped. A schema that no provider would accept is left
out with a notice, because a single bad one makes a server refuse every request.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import msgspec

from whet.context.engine_runner import EngineRunner, accepted
from whet.contract.context_engine import ChatRows, ContextEngine, EngineOffer
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec

DEFAULT = "compressor"
NONE = "none"
TOOLSET = "context_engine"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class NoEngine(ContextEngine):
    """Shows the model the whole conversation, always."""

    threshold_percent: float = 0.0

    @property
    def name(self) -> str:
        """Its name in `context.engine`."""
        return NONE

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Keep the counts for status displays."""
        self.last_prompt_tokens: int = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens: int = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens: int = int(usage.get("total_tokens") or 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return False."""
        return False

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """Return False: this engine does nothing."""
        return False

    def compress(
        self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
    ) -> ChatRows:
        """Return the list unchanged."""
        return messages


NO_ENGINE = EngineOffer(
    NONE, "Never compacts: the model sees the whole conversation.", fresh=NoEngine, is_quick=True
)


def offers(*groups: Iterable[EngineOffer]) -> dict[str, EngineOffer]:
    """Combine offers by name. Earlier groups win."""
    merged: dict[str, EngineOffer] = {NONE: NO_ENGINE}
    for group in groups:
        for offer in group:
            merged.setdefault(offer.name, offer)
    return merged


def built_in(available: Mapping[str, EngineOffer]) -> EngineOffer:
    """Return the engine that replaces any other that fails."""
    return available.get(DEFAULT) or available[NONE]


def choose(available: Mapping[str, EngineOffer], wanted: str) -> tuple[EngineOffer, str]:
    """Return the offer of that name, or the built-in one and a line with the reason."""
    if wanted in available:
        return available[wanted], ""
    default = built_in(available)
    if wanted == DEFAULT:
        return default, ""
    near = difflib.get_close_matches(wanted, list(available), 1)
    guess = f"; did you mean {near[0]}?" if near else "; `whet context engines` lists what there is"
    return default, f"{wanted!r} is not there, {default.name} is used instead{guess}"


async def engine_tools(seat: EngineRunner, taken: Collection[str]) -> list[Tool]:
    """Return the engine's tools, leaving out names that are in use. The engine is asked once."""
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
    """Return a schema as a spec, or the reason why it can't be one ("" if it has no name)."""
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
            f"the tool {spec.name}", lambda: hook(spec.name, arguments, **keywords), seat.deadlines.compress_s
        )
        if outcome.error is not None:
            text = json.dumps({"error": f"{type(outcome.error).__name__}: {outcome.error}"})
            return ToolOutput(text, error_kind="failed")
        answer: object = outcome.value
        return ToolOutput(answer if isinstance(answer, str) else _as_json(answer))

    return Tool(spec, TOOLSET, frozenset({"read"}), run, repeatable=True, timeout_s=None)


def _as_json(answer: object) -> str:
    return msgspec.json.encode(answer, enc_hook=str).decode()
