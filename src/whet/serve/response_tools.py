"""Read the tools of a Responses request, and write the calls of them.

A program may offer functions, functions in namespaces, and tools that take text instead of arguments. The
model sees all of them as functions in one list. The program receives each call in the format in which it
offered the tool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.contract.messages import ToolCall
from whet.contract.texts import NOT_JSON, as_object
from whet.contract.tools import ToolSpec
from whet.serve.chat import call_of
from whet.serve.client_tools import check_tools, ignore_hosted_tool, spec_of

_LONGEST = 64
_INPUT = "input"
_TEXT_SCHEMA = {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT]}


CALL_EVENTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""For each type of call, the prefix of its stream events and the field with its input."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as the program offered it. `takes_text`: it takes text instead of arguments."""

    name: str
    namespace: str = ""
    takes_text: bool = False


class ResponseTools(msgspec.Struct, frozen=True):
    """A request's tools: `specs` for the model, and `offered`, by the model's names, as the program sees
    them."""

    specs: tuple[ToolSpec, ...] = ()
    offered: Mapping[str, OfferedTool] = {}

    def call_fields(self, call: ToolCall) -> dict[str, Any]:
        """Return the fields of an output item that describe a call."""
        tool = self.offered.get(call.name) or OfferedTool(call.name)
        if tool.takes_text:
            return {"type": "custom_tool_call", "name": tool.name, "input": _text_in(call.arguments)}
        within = {"namespace": tool.namespace} if tool.namespace else {}
        return {"type": "function_call", "name": tool.name, **within, "arguments": call.arguments}


NO_TOOLS = ResponseTools()


def read_tools(tools: Sequence[object]) -> ResponseTools:
    """Read a request's tools. Raises ApiError that names the field."""
    pairs = [pair for number, tool in enumerate(tools) for pair in _read_tool(tool, f"tools[{number}]", "")]
    specs = check_tools([spec for spec, _ in pairs])
    return ResponseTools(specs, {spec.name: tool for spec, tool in pairs})


def read_call(item: dict[str, Any], location: str) -> ToolCall:
    """Read a call from a program's history. Raises ApiError."""
    if item.get("type") == "custom_tool_call":
        arguments = msgspec.json.encode({_INPUT: item.get(_INPUT)}).decode()
        return call_of(item.get("call_id"), {**item, "arguments": arguments}, location)
    call = call_of(item.get("call_id"), item, location)
    namespace = item.get("namespace")
    return msgspec.structs.replace(
        call, name=_model_name(namespace if isinstance(namespace, str) else "", call.name)
    )


def _read_tool(item: object, location: str, namespace: str) -> Iterator[tuple[ToolSpec, OfferedTool]]:
    tool = as_object(item)
    kind, name = tool.get("type"), tool.get("name")
    if kind == "namespace" and not namespace and isinstance(name, str):
        inner = cast("list[object]", tool["tools"]) if isinstance(tool.get("tools"), list) else []
        for number, within in enumerate(inner):
            yield from _read_tool(within, f"{location}.tools[{number}]", name)
    elif kind in ("function", "custom"):
        model_name = _model_name(namespace, name) if isinstance(name, str) else name
        spec = spec_of(model_name, tool.get("description"), tool.get("parameters"), location)
        if kind == "custom":
            description = _with_grammar(spec.description, tool.get("format"))
            spec = ToolSpec(spec.name, description, _TEXT_SCHEMA)
        yield spec, OfferedTool(str(name), namespace, kind == "custom")
    else:
        ignore_hosted_tool(kind, location)


def _model_name(namespace: str, name: str) -> str:
    """Return the model's name for a tool. A name that is too long is cut and ends with a digest."""
    full_name = f"{namespace}__{name}" if namespace else name
    if len(full_name) <= _LONGEST:
        return full_name
    digest = hashlib.sha256(full_name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{full_name[: _LONGEST - 9]}_{digest}"


def _with_grammar(description: str, form: object) -> str:
    """Add the grammar that a tool's text must match, if it has one, to the tool's description."""
    fields = as_object(form)
    definition = fields.get("definition")
    if not isinstance(definition, str):
        return description
    return f"{description}\n\nThe input must match this {fields.get('syntax') or ''} grammar:\n{definition}"


def _text_in(arguments: str) -> str:
    """Return the text in the arguments of a tool that takes text, or invalid arguments unchanged."""
    try:
        value: object = msgspec.json.decode(arguments)
    except NOT_JSON:
        return arguments
    text = cast("dict[str, Any]", value).get(_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
